"""The fold of one engine: what each word of engine, loader and gateways changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import (
    Changes,
    declared,
    models,
    name,
    names,
    ready_book,
    sample,
    spec,
    word,
)

from axiom_common.model.adapter import AdapterState, ResidencySource
from axiom_common.model.engine import EngineRank, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.ports.engine import SGLANG, LoadedAdapters
from axiom_node_agent.adapter_lives import FAILED_MAX
from axiom_node_agent.engine_view import view_of
from axiom_node_agent.report import engine_state
from axiom_node_agent.state import EngineBook


def residents(book: EngineBook, now_ms: float = 0.0) -> dict[str, AdapterState]:
    return {
        resident.adapter.partition("~")[0]: resident.state
        for resident in engine_state(book, now_ms).residents
    }


def loaded(book: EngineBook, text: str, now_ms: float) -> None:
    book.load_accepted(spec(text), now_ms)
    book.load_started(name(text), now_ms)
    book.load_ended(name(text), None, now_ms)


def test_an_engine_is_ready_once_it_answered_and_listed_its_names() -> None:
    book = EngineBook(declared(), Changes())
    assert book.status is EngineStatus.STARTING
    book.saw_sample(sample(), 0.0)
    assert book.status is EngineStatus.STARTING
    book.saw_models(models(), 0.0)
    assert book.status is EngineStatus.READY
    book.unreachable(1.0)
    assert book.status is EngineStatus.UNREACHABLE


def test_health_counts_when_it_fails_twice_and_an_error_at_once() -> None:
    book = ready_book()
    book.saw_health(False, 1.0)
    assert book.status is EngineStatus.READY
    book.saw_health(False, 2.0)
    assert book.status is EngineStatus.STARTING
    book.saw_health(True, 3.0)
    assert book.status is EngineStatus.READY
    book.not_serving(4.0)
    assert book.status is EngineStatus.STARTING


def test_beside_a_running_engine_idle_residents_are_kept() -> None:
    book = ready_book("a", "b", "c", "d", "e")
    assert residents(book) == {
        "b": AdapterState.HOST,
        "c": AdapterState.HOST,
        "d": AdapterState.RESIDENT,
        "e": AdapterState.RESIDENT,
    }
    assert {r.source for r in engine_state(book, 0.0).residents} == {ResidencySource.INFERRED}


def test_the_engines_own_word_on_slots_wins() -> None:
    book = ready_book("a", "b", "c", hbm_slots=0)
    assert residents(book) == {}
    book.saw_sample(replace(sample(), max_loras=2), 1.0)
    assert engine_state(book, 1.0).limits.hbm_slots == 2
    book.saw_sample(replace(sample("a"), max_loras=2), 2.0)
    assert residents(book) == {"a": AdapterState.RESIDENT}


def test_names_that_others_load_and_unload_are_seen() -> None:
    book = ready_book("a")
    book.saw_models(models("a", "b"), 1.0)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}
    book.saw_models(models("b"), 2.0)
    assert residents(book) == {"a": AdapterState.UNLOADING, "b": AdapterState.RESIDENT}
    assert view_of(book, 2.0).free_slots == 0, "the copy of a still has its slot"
    loaded(book, "c", 3.0)
    assert residents(book) == {"b": AdapterState.RESIDENT, "c": AdapterState.RESIDENT}
    assert view_of(book, 3.0).held == names("b", "c")


def test_a_name_that_came_back_is_told_once_at_the_place_of_its_new_copy() -> None:
    book = ready_book("a", "b", hbm_slots=3)
    book.saw_models(models("b"), 1.0)
    book.saw_models(models("b", "a"), 2.0)
    assert [copy.named for copy in book.lru.copies] == [False, True, True]
    told = engine_state(book, 2.0).residents
    assert [resident.adapter for resident in told] == [name("b"), name("a")]
    assert {resident.state for resident in told} == {AdapterState.RESIDENT}


def test_an_unlisted_name_that_runs_makes_the_list_due() -> None:
    book = ready_book("a")
    assert not book.names.due(1.0, every_ms=100.0)
    book.saw_sample(sample("b"), 1.0)
    assert book.names.due(1.0, every_ms=100.0)


def test_an_age_grows_until_the_adapter_is_seen_again() -> None:
    book = ready_book("a")
    assert engine_state(book, 700.0).residents[0].age_ms == 700.0
    book.saw_sample(sample("a"), 800.0)
    assert engine_state(book, 900.0).residents[0].age_ms == 100.0


def test_a_new_process_has_nothing_of_the_old_one() -> None:
    book = ready_book("a", "b")
    book.saw_sample(sample(started_s=2.0), 1.0)
    assert book.restarts == 1
    assert book.status is EngineStatus.STARTING
    assert residents(book) == {}
    assert book.names.due(1.0, every_ms=1e9)
    book.saw_models(models(), 1.0)
    assert book.status is EngineStatus.READY
    assert not book.registered


def test_a_new_process_may_load_what_the_old_one_could_not() -> None:
    book = ready_book()
    book.load_accepted(spec("a"), 0.0)
    book.load_started(name("a"), 0.0)
    book.load_ended(name("a"), Reason.ENGINE_REFUSED, 0.0)
    book.saw_sample(sample(started_s=2.0), 1.0)
    assert engine_state(book, 1.0).failures == ()


def test_a_gap_of_unknown_length_may_hide_a_new_process() -> None:
    book = EngineBook(declared(), Changes())
    for now_ms in (0.0, 1.0):
        book.saw_sample(sample(started_s=None), now_ms)
    assert book.restarts == 0
    book.unreachable(2.0)
    book.saw_sample(sample(started_s=None), 3.0)
    assert book.restarts == 1


def test_a_gap_that_the_process_outlived_changes_nothing() -> None:
    book = ready_book("a", "b")
    book.unreachable(1.0)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}
    book.saw_sample(sample(), 2.0)
    assert book.restarts == 0
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}


def test_a_load_is_seen_from_its_acceptance_on() -> None:
    book = ready_book()
    book.load_accepted(spec("a"), 0.0)
    book.load_accepted(spec("b"), 0.0)
    book.load_started(name("a"), 0.0)
    first, second = engine_state(book, 10.0).residents
    predicted_ms = declared().link.cold_ms(spec("a").size_bytes)
    assert (first.adapter, first.state) == (name("a"), AdapterState.LOADING)
    assert first.remaining_ms == pytest.approx(predicted_ms - 10.0)
    assert (second.adapter, second.state) == (name("b"), AdapterState.FETCHING)
    assert second.remaining_ms == pytest.approx(2 * predicted_ms - 10.0)
    assert engine_state(book, 10.0).load_queue_ms == second.remaining_ms
    book.load_ended(name("a"), None, predicted_ms / 2)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.FETCHING}
    assert book.names.due(0.0, every_ms=1e9), "the list changed"
    link = engine_state(book, 10.0).link
    assert link.cold_ms(10**8) < declared().link.cold_ms(10**8), "it was faster than declared"


def test_a_failed_load_is_told_for_longer_each_time() -> None:
    book = ready_book()
    waits = []
    for now_ms in (0.0, 10_000.0, 20_000.0):
        book.load_accepted(spec("a"), now_ms)
        book.load_started(name("a"), now_ms)
        book.load_ended(name("a"), Reason.ADAPTER_NOT_FOUND, now_ms)
        [failure] = engine_state(book, now_ms).failures
        assert failure.adapter == name("a")
        assert failure.reason is Reason.ADAPTER_NOT_FOUND
        waits.append(failure.retry_in_ms)
    assert waits[1] == 2 * waits[0]
    assert waits[2] == 4 * waits[0]
    assert residents(book) == {}
    assert engine_state(book, 20_000.0 + waits[2]).failures == ()


def test_the_memory_of_failures_is_bounded() -> None:
    book = ready_book()
    for number in range(FAILED_MAX + 3):
        text = f"a{number}"
        book.load_accepted(spec(text), float(number))
        book.load_started(name(text), float(number))
        book.load_ended(name(text), Reason.ENGINE_REFUSED, float(number))
    assert len(book.lives) == FAILED_MAX
    assert name("a0") not in book.lives


def test_a_withdrawn_load_leaves_no_trace() -> None:
    book = ready_book()
    book.load_accepted(spec("a"), 0.0)
    book.load_withdrawn(name("a"), 1.0)
    assert residents(book) == {}
    assert engine_state(book, 1.0).failures == ()


def test_a_load_under_way_outlives_the_engines_restart() -> None:
    book = ready_book("b")
    book.load_accepted(spec("a"), 0.0)
    book.saw_sample(sample(started_s=2.0), 1.0)
    book.saw_models(models(), 1.0)
    assert residents(book) == {"a": AdapterState.FETCHING}


def test_a_name_without_a_copy_drains_as_well() -> None:
    book = ready_book("a", "b", "c", hbm_slots=1, host_slots=1)
    book.draining([name("a")], 5.0)
    book.saw_sample(sample(), 300.0)
    assert book.lives[name("a")].state is AdapterState.DRAINING
    assert book.lives[name("a")].since_ms == 5.0
    assert "a" not in residents(book)
    book.draining([], 400.0)
    assert name("a") not in book.lives


def test_draining_holds_exactly_what_is_to_go() -> None:
    book = ready_book("a", "b")
    book.draining([name("a")], 5.0)
    assert residents(book) == {"a": AdapterState.DRAINING, "b": AdapterState.RESIDENT}
    book.draining([name("a")], 9.0)
    assert book.lives[name("a")].since_ms == 5.0
    book.draining([], 10.0)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}


def test_an_unload_forgets_the_name_and_a_failed_one_does_not() -> None:
    book = ready_book("a", "b")
    for text in ("a", "b"):
        book.draining([name(text)], 0.0)
        book.unload_started(name(text), 1.0)
        assert name(text) not in view_of(book, 1.0).registered
        book.unload_ended(name(text), 2.0, done=text == "a")
    assert residents(book) == {"a": AdapterState.UNLOADING, "b": AdapterState.DRAINING}
    assert book.registered.keys() == names("b")


def test_an_unload_frees_the_slot_of_an_sglang() -> None:
    book = EngineBook(replace(declared(), kind=SGLANG), lambda: None)
    book.saw_sample(sample(max_loras=2), 0.0)
    book.saw_models(models("a", "b"), 0.0)
    book.unload_started(name("a"), 1.0)
    book.unload_ended(name("a"), 2.0, done=True)
    assert residents(book) == {"b": AdapterState.RESIDENT}
    assert view_of(book, 2.0).free_slots == 1


def test_a_list_by_use_says_what_host_ram_holds_and_in_which_order() -> None:
    book = EngineBook(replace(declared(), kind=SGLANG), lambda: None)
    book.saw_sample(sample(max_loras=2), 0.0)
    book.saw_models(replace(models("a", "b", "c"), by_use=True), 0.0)
    resident, host = AdapterState.RESIDENT, AdapterState.HOST
    assert residents(book) == {"a": host, "b": resident, "c": resident}
    # While something runs the youngest may still be on their way into a slot.
    book.saw_sample(replace(sample(max_loras=2), running=1), 1.0)
    book.saw_models(replace(models("b", "c", "a"), by_use=True), 1.0)
    assert residents(book) == {"b": resident, "c": resident, "a": host}
    book.saw_sample(sample(max_loras=2), 2.0)
    book.saw_models(replace(models("c", "a"), by_use=True), 2.0)
    assert residents(book) == {"c": resident, "a": resident}


def test_what_an_engine_counts_is_told() -> None:
    book = EngineBook(declared(), lambda: None)
    ranks = (EngineRank(rank=0, running=1), EngineRank(rank=1, waiting=2))
    before = {"preemptions": 1.0, "rejections": 1.0, "prefix_queries": 0.0, "prefix_hits": 0.0}
    after = {"preemptions": 3.0, "rejections": 1.0, "prefix_queries": 8.0, "prefix_hits": 2.0}
    for now_ms, totals in ((1000.0, before), (2000.0, after)):
        book.saw_sample(replace(sample(kv_tokens=4096, **totals), ranks=ranks), now_ms)
    state = engine_state(book, 2000.0)
    assert (state.limits.kv_tokens, state.ranks) == (4096, ranks)
    assert (state.preemptions_per_s, state.rejections_per_s) == (2.0, 0.0)
    assert state.prefix_hit_share == 0.25


def test_what_gateways_count_is_busy_and_what_others_run_is_told() -> None:
    book = ready_book("a", "b")
    book.in_flight({name("a"): 3, BASE: 7}, 1.0)
    book.saw_sample(sample("a", "b"), 1.0)
    in_flight = {r.adapter: r.in_flight for r in engine_state(book, 1.0).residents}
    assert in_flight == {name("a"): 0, name("b"): 1}
    assert view_of(book, 1.0).busy == names("a", "b")
    book.in_flight({}, 2.0)
    assert view_of(book, 2.0).busy == names("b")


@pytest.mark.parametrize(
    ("before", "after", "busy"),
    [
        ([], [], True),
        ([(10.0, 1)], [], True),
        ([(10.0, 1), (20.0, 0)], [], True),
        ([(10.0, 1), (195.0, 0)], [], False),
        ([(10.0, 1)], [(210.0, 0)], False),
        ([], [(210.0, 1), (220.0, 0)], False),
    ],
    ids=["nobody", "still", "until long before", "until just before", "until now", "since then"],
)
def test_a_scrape_does_not_count_for_requests_that_a_gateway_has_ended(
    before: list[tuple[float, int]], after: list[tuple[float, int]], busy: bool
) -> None:
    """The counts of a gateway, before and after a scrape at 200 ms that shows the adapter."""
    book = ready_book("a")
    for now_ms, count in before:
        book.in_flight({name("a"): count} if count else {}, now_ms)
    book.saw_sample(sample("a"), 200.0)
    for now_ms, count in after:
        book.in_flight({name("a"): count} if count else {}, now_ms)
    assert (name("a") in view_of(book, 250.0).busy) is busy


def test_a_request_that_came_and_went_between_two_vectors_was_a_use() -> None:
    book = ready_book("a", "b")
    book.granted(spec("a"), 0.0)
    book.granted(spec("b"), 0.0)
    assert list(residents(book)) == ["a", "b"]
    book.in_flight({}, 200.0, told=names("a"))
    assert list(residents(book)) == ["b", "a"]
    assert view_of(book, 200.0).busy == names("b"), "and the lease of it has served"


def test_a_lease_ends_when_the_last_vector_drops_the_adapter() -> None:
    book = ready_book("a")
    book.granted(spec("a"), 0.0)
    book.in_flight({name("a"): 2}, 200.0)
    book.in_flight({name("a"): 1}, 300.0)
    book.in_flight({}, 400.0)
    assert view_of(book, 399.0).busy == names("a")
    assert view_of(book, 400.0).busy == frozenset()


def test_a_change_of_counts_is_a_use() -> None:
    book = ready_book("a", "b")
    book.in_flight({name("a"): 1}, 1.0)
    assert list(residents(book)) == ["b", "a"]
    book.in_flight({name("a"): 1, name("b"): 1}, 2.0)
    assert list(residents(book)) == ["a", "b"]
    book.in_flight({name("b"): 1}, 3.0)
    assert list(residents(book)) == ["b", "a"], "it was used until now"


def test_a_booking_for_what_is_not_held_changes_nothing() -> None:
    book = ready_book("a", "b", "c")
    before = residents(book)
    book.in_flight({name("a"): 1, EngineAdapter("nobody-knows"): 1}, 1.0)
    assert residents(book) == before


def test_a_grant_leases_and_counts_as_a_use() -> None:
    book = ready_book("a", "b", "c")
    assert residents(book)["a"] is AdapterState.HOST
    book.granted(spec("a"), 1.0)
    assert residents(book)["b"] is AdapterState.HOST
    assert name("a") in view_of(book, 1.0).held
    assert name("a") in view_of(book, 1.0).busy


@pytest.mark.parametrize("has_host_copy", [True, False])
def test_what_a_request_is_about_to_load_is_told_as_loading(has_host_copy: bool) -> None:
    book = ready_book(*"abcde" if has_host_copy else "abcdef")
    asked, link = spec("b"), declared().link
    assert (name("b") in view_of(book, 0.0).copied) is has_host_copy
    takes_ms = (link.h2d_ms if has_host_copy else link.cold_ms)(asked.size_bytes)
    book.granted(asked, 0.0)
    told = engine_state(book, 10.0)
    assert told.residents[-1].state is AdapterState.LOADING
    assert told.residents[-1].remaining_ms == pytest.approx(takes_ms - 10.0)
    assert told.load_queue_ms == told.residents[-1].remaining_ms
    assert residents(book, takes_ms)["b"] is AdapterState.RESIDENT
    book.saw_sample(sample("b"), 20.0)
    assert residents(book, 20.0)["b"] is AdapterState.RESIDENT, "it runs, so it is there"


def test_a_held_adapter_is_granted_as_it_is() -> None:
    book = ready_book("a", "b")
    book.granted(spec("a"), 1.0)
    assert residents(book, 1.0)["a"] is AdapterState.RESIDENT
    assert engine_state(book, 1.0).load_queue_ms == 0.0


def test_a_load_that_is_overdue_looks_the_longer_the_later_it_is() -> None:
    book = ready_book()
    book.load_accepted(spec("a"), 0.0)
    book.load_started(name("a"), 0.0)
    predicted_ms = declared().link.cold_ms(spec("a").size_bytes)
    rests = [engine_state(book, now).load_queue_ms for now in (predicted_ms, 3 * predicted_ms)]
    assert rests == pytest.approx([0.0, 2 * predicted_ms])


def test_a_name_with_other_weights_is_loaded_anew() -> None:
    book = ready_book("a", "b")
    book.saw_models(
        replace(models("b"), adapters={name("a"): "/else", **models("b").adapters}), 1.0
    )
    view = view_of(book, 1.0)
    assert view.has_other_weights(spec("a"))
    assert not view.has_other_weights(spec("b"))
    assert not view.has_other_weights(spec("c"))
    book.load_accepted(spec("a"), 2.0)
    assert residents(book) == {"a": AdapterState.FETCHING, "b": AdapterState.RESIDENT}
    assert view_of(book, 2.0).slots_taken == 2, "the copy of the old weights has its slot"
    book.load_started(name("a"), 3.0)
    book.load_ended(name("a"), None, 4.0)
    assert residents(book)["a"] is AdapterState.RESIDENT
    assert not view_of(book, 4.0).has_other_weights(spec("a"))


def test_an_engine_that_tells_is_believed_until_it_tells_no_more() -> None:
    book = ready_book("a", "b", "c")
    told = word(hbm=("a",), host=("c", "a"), registered=("a", "b", "c"))
    book.saw_word(told, 1.0)
    assert residents(book) == {"c": AdapterState.HOST, "a": AdapterState.RESIDENT}
    assert {r.source for r in engine_state(book, 1.0).residents} == {ResidencySource.EXTENSION}
    book.granted(spec("c"), 2.0)
    assert residents(book)["c"] is AdapterState.HOST, "the engine will tell"
    book.saw_word(None, 3.0)
    assert residents(book) == {"c": AdapterState.HOST, "a": AdapterState.RESIDENT}
    assert {r.source for r in engine_state(book, 3.0).residents} == {ResidencySource.INFERRED}
    book.granted(spec("c"), 3.0)
    assert name("c") in view_of(book, 3.0).held


def test_a_word_from_before_a_load_or_an_unload_does_not_undo_it() -> None:
    book = ready_book("a")
    book.saw_word(word(hbm=("a",), host=("a",)), 1.0)
    loaded(book, "b", 2.0)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}
    # The worker has told of the copy, the API server not yet of its name.
    book.saw_word(word(hbm=("a", "b"), host=("a", "b"), registered=("a",)), 3.0)
    assert residents(book)["b"] is AdapterState.RESIDENT
    assert list(book.registered) == [name("a"), name("b")]
    book.unload_started(name("a"), 4.0)
    book.unload_ended(name("a"), 5.0, done=True)
    book.saw_word(word(hbm=("a", "b"), host=("a", "b")), 6.0)
    assert list(book.registered) == [name("b")]
    book.saw_word(word(hbm=("(1)", "b"), host=("(1)", "b")), 7.0)
    assert view_of(book, 7.0).held == names("b")
    assert view_of(book, 7.0).slots_taken == 2
    # Both agree by now: another word counts again.
    book.saw_word(word(hbm=("(1)", "b"), host=("(1)", "b"), registered=("a", "b")), 8.0)
    assert book.registered.keys() == names("a", "b")


def test_a_copy_that_the_worker_told_of_before_the_load_ended_gets_its_name_then() -> None:
    book = ready_book()
    book.saw_word(word(), 1.0)
    book.load_accepted(spec("a"), 2.0)
    book.load_started(name("a"), 2.0)
    book.saw_word(word(hbm=("a",), host=("a",), registered=()), 3.0)
    assert residents(book) == {"a": AdapterState.LOADING}
    book.load_ended(name("a"), None, 4.0)
    assert residents(book) == {"a": AdapterState.RESIDENT}
    assert view_of(book, 4.0).slots_taken == 1


def test_a_new_process_by_its_own_word_or_by_its_metrics_holds_nothing_of_the_old_one() -> None:
    book = ready_book("a")
    book.saw_word(word(hbm=("a",), host=("a",), in_flight={"a": 1}), 1.0)
    book.saw_word(word(life="two"), 2.0)
    assert (book.restarts, residents(book), book.status) == (1, {}, EngineStatus.STARTING)
    book.saw_sample(sample(started_s=2.0), 3.0)
    assert book.restarts == 1, "it is the process that told already"
    book.saw_models(models(), 3.0)
    book.saw_word(word(hbm=("b",), host=("b",), life="two"), 4.0)
    book.saw_sample(sample(started_s=3.0), 5.0)
    assert (book.restarts, residents(book)) == (2, {})
    assert book.source is ResidencySource.INFERRED


def test_metrics_that_tell_what_is_held_are_the_next_best_source() -> None:
    book = ready_book("a", "b", "c")
    book.saw_word(word(hbm=("a", "b"), host=("c", "a", "b")), 1.0)
    told = LoadedAdapters(hbm=names("c", "a"), host=names("b"))
    book.saw_sample(replace(sample("c"), loaded=told), 2.0)
    assert residents(book)["b"] is AdapterState.RESIDENT, "the extension speaks"
    book.saw_word(None, 3.0)
    assert book.source is ResidencySource.METRICS, "what they said last is known"
    assert residents(book) == {
        "c": AdapterState.RESIDENT,
        "a": AdapterState.RESIDENT,
        "b": AdapterState.HOST,
    }
    book.saw_sample(replace(sample("a"), loaded=told), 4.0)
    assert [r.adapter for r in engine_state(book, 4.0).residents] == [name(t) for t in "cba"]
    book.saw_sample(sample("b"), 5.0)
    assert book.source is ResidencySource.INFERRED
    assert residents(book)["b"] is AdapterState.RESIDENT
    book.saw_sample(replace(sample("b"), loaded=told), 6.0)
    assert residents(book)["b"] is AdapterState.HOST
    assert {r.source for r in engine_state(book, 6.0).residents} == {ResidencySource.METRICS}


def test_metrics_that_go_on_telling_of_an_unloaded_name_do_not_bring_it_back() -> None:
    """vLLM's Python server forgets the name alone: its copy is told until an LRU drops it."""
    book = ready_book("a", "b")
    both = LoadedAdapters(hbm=names("a", "b"), host=names())
    book.saw_sample(replace(sample(max_loras=2), loaded=both), 10.0)
    assert residents(book) == {"a": AdapterState.RESIDENT, "b": AdapterState.RESIDENT}
    book.unload_started(name("a"), 20.0)
    book.unload_ended(name("a"), 30.0, done=True)
    for now_ms in (40.0, 50.0):
        book.saw_sample(replace(sample(max_loras=2), loaded=both), now_ms)
        assert residents(book) == {"a": AdapterState.UNLOADING, "b": AdapterState.RESIDENT}
        assert view_of(book, now_ms).free_slots == 0
    # Loaded again, the name has a copy of its own.
    loaded(book, "a", 60.0)
    book.saw_sample(replace(sample(max_loras=2), loaded=both), 70.0)
    assert residents(book)["a"] is AdapterState.RESIDENT
    book.unload_started(name("a"), 80.0)
    book.unload_ended(name("a"), 90.0, done=True)
    rest = LoadedAdapters(hbm=names("b", "c"), host=names())
    book.saw_sample(replace(sample(max_loras=2), loaded=rest), 100.0)
    # Somebody loaded it, and the list of names does not show it yet.
    assert residents(book) == {"b": AdapterState.RESIDENT, "c": AdapterState.UNLOADING}
    book.saw_models(models("b", "c"), 110.0)
    book.saw_sample(replace(sample(max_loras=2), loaded=rest), 120.0)
    assert residents(book) == {"b": AdapterState.RESIDENT, "c": AdapterState.RESIDENT}


def test_a_load_that_ended_after_a_scrape_was_asked_for_is_newer_than_it() -> None:
    book = ready_book("a")
    loaded(book, "b", 10.0)
    stale = replace(sample(), loaded=LoadedAdapters(hbm=names("a"), host=frozenset()))
    book.saw_sample(stale, 11.0, asked_ms=9.0)
    assert residents(book)["b"] is AdapterState.RESIDENT
    book.saw_sample(stale, 21.0, asked_ms=20.0)
    assert "b" not in residents(book)


def test_a_slot_that_is_pinned_is_nobody_elses() -> None:
    book = ready_book("a", "b")
    book.saw_word(word(hbm=("a", "b"), host=("a", "b")), 1.0)
    assert view_of(book, 1.0).idle_slots(name("c")) == 2
    book.saw_word(word(hbm=("a", "b"), host=("a", "b"), pinned=("a",)), 2.0)
    assert view_of(book, 2.0).idle_slots(name("c")) == 1
    assert view_of(book, 2.0).idle_slots(name("a")) == 2
    book.saw_word(word(hbm=("b",), host=("a", "b"), pinned=("a",)), 3.0)
    assert view_of(book, 3.0).idle_slots(name("c")) == 2, "it has none"


def test_what_an_engine_runs_for_others_by_its_own_counts() -> None:
    book = ready_book("a", "b")
    held = {"hbm": ("a", "b"), "host": ("a", "b")}
    book.saw_word(word(**held, in_flight={"a": 1, "b": 3}), 0.0)
    book.saw_sample(sample("a", "b"), 50.0)
    assert book.foreign.counts == {}, "a gateway may tell of them any moment"
    book.in_flight({name("a"): 1, name("b"): 1}, 60.0)
    book.saw_sample(sample("a", "b"), 300.0)
    assert book.foreign.counts == {name("b"): 2}
    assert {r.adapter: r.in_flight for r in engine_state(book, 300.0).residents} == {
        name("a"): 0,
        name("b"): 2,
    }
    book.saw_word(word(**held, in_flight={"b": 1}), 310.0)
    assert book.foreign.counts == {}


def test_only_changes_that_matter_are_told_at_once() -> None:
    changes = Changes()
    book = EngineBook(declared(), changes)
    book.saw_sample(sample(), 0.0)
    book.saw_models(models("a", "b"), 0.0)
    before = changes.count
    book.in_flight({name("a"): 1}, 1.0)
    book.saw_sample(replace(sample("a"), waiting=9), 1.0)
    book.saw_models(models("a", "b"), 2.0)
    assert changes.count == before
    book.saw_models(models("a", "b", "c"), 3.0)
    assert changes.count == before + 1


def test_names_of_the_base_model() -> None:
    assert (ready_book().base_model, ready_book().served_name) == ("base", "served")
    unnamed = EngineBook(replace(declared(), base_model=""), Changes())
    assert unnamed.base_model == ""
    unnamed.saw_models(models(), 0.0)
    assert (unnamed.base_model, unnamed.served_name) == ("served", "served")
