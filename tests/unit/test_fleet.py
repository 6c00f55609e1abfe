"""Decisions through the fleet: tiers, spread, bookings, pickers, what a decision tells."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fleet_parts import (
    COLD_MS,
    H2D_MS,
    WAIT,
    adapter,
    engine,
    fleet,
    held,
    query,
    row,
    winners,
)

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import SCORES, Candidate, LoadKind, Refused, Term
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.engine_row import WaitRule
from axiom_common.policy.rendezvous import rendezvous, stable_hash

A, B, C, D = (adapter(i) for i in range(4))
HOST, LOADING = AdapterState.HOST, AdapterState.LOADING
BUSY_PAIR = (held(C, in_flight=1), held(D, in_flight=1))


def waiting(wait_ms: float) -> WaitRule:
    return WaitRule(base_ms=wait_ms, per_request_ms=0.0, per_token_ms=0.0, seats=64)


@pytest.mark.parametrize(
    ("residents", "affinity", "load", "load_ms", "tier"),
    [
        ((held(A), BUSY_PAIR[0]), 1.0, LoadKind.NONE, 0.0, 1),
        ((held(A, LOADING, remaining_ms=7.1),), 0.9, LoadKind.JOIN, 7.1, 1),
        ((held(A, HOST),), 1 - H2D_MS / COLD_MS, LoadKind.FROM_HOST, H2D_MS, 1),
        ((), 0.25, LoadKind.COLD, COLD_MS, 1),
        ((held(B), held(C)), 0.0, LoadKind.COLD, COLD_MS, 2),
    ],
)
def test_what_a_winner_has_to_do(
    residents: tuple[object, ...], affinity: float, load: LoadKind, load_ms: float, tier: int
) -> None:
    decision = fleet(row(0, residents=residents)).decide(query(A), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.winner.scores["adapter-affinity"] == pytest.approx(affinity)
    assert decision.winner.terms_ms[list(Term).index(Term.ADAPTER_LOAD)] == pytest.approx(load_ms)
    assert (decision.load, decision.winner.tier) == (load, tier)


def test_the_ladder_is_climbed_from_the_top() -> None:
    """Best first: resident, loading, host, free slot, safe eviction; then nobody."""
    rows = [
        row(0, residents=(held(A), held(B))),
        row(1, residents=(held(A, LOADING, remaining_ms=10.0),)),
        row(2, residents=(held(A, HOST),)),
        row(3),
        row(4, residents=(held(B), held(C))),
        row(5, residents=BUSY_PAIR),
    ]
    left = list(rows)
    for expected in range(5):
        decision = fleet(*left).choose(query(A), "axiom", 0.0)
        assert decision.winner is not None
        assert decision.winner.engine == engine(expected)
        del left[0]
    decision = fleet(*left).choose(query(A), "axiom", 0.0)
    assert decision.winner is None
    assert decision.refusals == {Reason.QUARANTINED: 1}


def test_a_load_pays_for_the_streams_that_it_stalls() -> None:
    made = fleet(row(0, residents=(held(A, HOST),)), row(1, residents=(held(A, HOST),)))
    made.set_peer_load(engine(0), {BASE: 3})
    seen = {c.engine: c for c in made.explain(query(A), "axiom", 0.0) if isinstance(c, Candidate)}
    load = list(Term).index(Term.ADAPTER_LOAD)
    assert seen[engine(0)].terms_ms[load] == pytest.approx(4 * H2D_MS)
    assert seen[engine(1)].terms_ms[load] == pytest.approx(H2D_MS)


def test_the_tail_does_not_diffuse() -> None:
    """A holder under moderate load keeps its adapter although an idle engine has a free slot."""
    made = fleet(row(0, residents=(held(A),)), row(1))
    assert winners(made, [query(A, i) for i in range(7)]) == [engine(0)] * 7


def test_a_hot_adapter_spreads_when_waiting_has_paid_for_a_load() -> None:
    """The holder's wait of 100 ms is dearer than a load of 71 ms; one wait pays for it."""
    made = fleet(row(0, residents=(held(A),), wait=waiting(100.0)), row(1))
    assert winners(made, [query(A, i) for i in range(3)]) == [engine(0), engine(1), engine(1)]


def test_small_waits_never_pay_for_a_load_however_many() -> None:
    """The idle engine would cost less, but a wait of 50 ms is less than its load of 71 ms."""
    busy = WaitRule(
        base_ms=50.0, per_request_ms=0.0, per_token_ms=0.0, seats=64, slowdown_per_request_ms=100.0
    )
    made = fleet(row(0, residents=(held(A),), wait=busy), row(1))
    assert winners(made, [query(A, i) for i in range(9)]) == [engine(0)] * 9


def test_each_load_starts_a_new_account() -> None:
    """Engine 0 waits 100 ms; the others wait 200 ms once they have a request."""
    full_after_one = WaitRule(base_ms=0.0, per_request_ms=200.0, per_token_ms=0.0, seats=1)
    made = fleet(
        row(0, residents=(held(A),), wait=waiting(100.0)),
        row(1, wait=full_after_one),
        row(2, wait=full_after_one),
    )
    found = winners(made, [query(A, i) for i in range(4)])
    assert (found[0], found[2]) == (engine(0), engine(0))
    assert {found[1], found[3]} == {engine(1), engine(2)}


@pytest.mark.parametrize("column", ["kv_slowdown", "thermal_slowdown", "latency_slowdown"])
def test_an_adapter_leaves_a_sick_holder(column: str) -> None:
    made = fleet(row(0, residents=(held(A),), **{column: 1.5}), row(1))
    assert winners(made, [query(A, i) for i in range(2)]) == [engine(0), engine(1)]


def test_nobody_is_evicted_while_a_slot_is_free_elsewhere() -> None:
    """Even though the engine with the free slot is the busier one."""
    made = fleet(row(0), row(1, residents=(held(B), held(C))))
    made.set_peer_load(engine(0), {BASE: 5})
    assert winners(made, [query(A)]) == [engine(0)]


def test_the_last_resort_opens_only_when_waiting_is_dearer_than_its_load() -> None:
    victim = row(1, residents=(held(B), held(C)))
    cheap = fleet(row(0, residents=(held(A),), wait=waiting(COLD_MS - 1.0)), victim)
    assert winners(cheap, [query(A, i) for i in range(9)]) == [engine(0)] * 9
    dear = fleet(row(0, residents=(held(A),), wait=waiting(COLD_MS + 1.0)), victim)
    assert winners(dear, [query(A, i) for i in range(2)]) == [engine(0), engine(1)]
    full = fleet(row(0, residents=(held(A),), wait=waiting(500.0)), victim)
    assert winners(full, [query(A)]) == [engine(1)]


def test_old_waits_pay_for_nothing() -> None:
    made = fleet(row(0, residents=(held(A),), wait=waiting(100.0)), row(1))
    made.decide(query(A, 1), "axiom", 0.0)
    later = made.choose(query(A, 2), "axiom", 60_000.0)
    assert later.winner is not None
    assert later.winner.engine == engine(0)


def test_a_second_request_joins_the_load_and_books_no_slot() -> None:
    made = fleet(row(0), row(1))
    first = made.decide(query(A, 1), "axiom", 1000.0)
    joined = made.decide(query(A, 2), "axiom", 1030.0)
    assert first.winner is not None
    assert joined.winner is not None
    assert (first.load, joined.load) == (LoadKind.COLD, LoadKind.JOIN)
    assert joined.winner.engine == first.winner.engine
    load = list(Term).index(Term.ADAPTER_LOAD)
    assert joined.winner.terms_ms[load] == pytest.approx(COLD_MS - 30.0)
    # one of two slots is taken: another adapter still gets the other one
    other = made.explain(query(B, 3), "axiom", 1030.0)
    assert all(isinstance(c, Candidate) and c.scores["adapter-affinity"] == 0.25 for c in other)


def test_the_same_free_slot_is_never_given_twice() -> None:
    made = fleet(row(0, hbm_slots=2), row(1, hbm_slots=1))
    found = winners(made, [query(adapter(i), i) for i in range(3)])
    assert sorted(found) == [engine(0), engine(0), engine(1)]
    decision = made.decide(query(D, 9), "axiom", 0.0)
    assert decision.winner is None
    assert decision.refusals == {Reason.QUARANTINED: 2}


def test_an_idle_victim_is_promised_once() -> None:
    made = fleet(row(0, residents=(held(B), held(C, in_flight=1))))
    first = made.decide(query(A, 1), "axiom", 0.0)
    assert first.winner is not None
    assert made.decide(query(D, 2), "axiom", 0.0).refusals == {Reason.QUARANTINED: 1}
    made.release(first.booking)
    assert made.decide(query(D, 3), "axiom", 0.0).winner is not None


def test_a_booked_load_evicts_its_victim_at_once() -> None:
    made = fleet(row(0, hbm_slots=1, residents=(held(B),)))
    booking = made.decide(query(A), "axiom", 0.0).booking
    assert made.choose(query(B), "axiom", 0.0).refusals == {Reason.QUARANTINED: 1}
    made.release(booking)
    assert made.choose(query(B), "axiom", 0.0).load is LoadKind.NONE


def test_loads_on_one_engine_queue() -> None:
    made = fleet(row(0, load_queue_ms=30.0))
    load = list(Term).index(Term.ADAPTER_LOAD)

    def load_ms(name: EngineAdapter, now_ms: float) -> float:
        (seen,) = made.explain(query(name), "axiom", now_ms)
        assert isinstance(seen, Candidate)
        return seen.terms_ms[load]

    assert load_ms(A, 0.0) == pytest.approx(30.0 + COLD_MS)
    made.decide(query(A), "axiom", 0.0)
    stall_ms = H2D_MS
    assert load_ms(B, 0.0) == pytest.approx(30.0 + COLD_MS + COLD_MS + stall_ms)
    assert load_ms(B, 60.0) == pytest.approx(30.0 + COLD_MS - 60.0 + COLD_MS + stall_ms)
    # the engine's own word on its queue stands when what is booked is over
    assert load_ms(B, 1e6) == pytest.approx(30.0 + COLD_MS + stall_ms)


def test_a_load_that_the_report_shows_is_timed_by_the_report() -> None:
    made = fleet(row(0))
    made.decide(query(A), "axiom", 0.0)
    load = list(Term).index(Term.ADAPTER_LOAD)

    def load_ms(name: EngineAdapter) -> float:
        (seen,) = made.explain(query(name), "axiom", 10.0)
        assert isinstance(seen, Candidate)
        return seen.terms_ms[load]

    stall_ms = H2D_MS
    assert load_ms(A) == pytest.approx(COLD_MS - 10.0)
    assert load_ms(B) == pytest.approx(COLD_MS - 10.0 + COLD_MS + stall_ms)
    for rest_ms in (9.0, 4.0):
        under_way = held(A, LOADING, remaining_ms=rest_ms)
        made.set_row(row(0, residents=(under_way,), load_queue_ms=rest_ms))
        assert load_ms(A) == rest_ms
        assert load_ms(B) == pytest.approx(rest_ms + COLD_MS + stall_ms)
    made.set_row(row(0, residents=(held(A, in_flight=1),)))
    assert load_ms(A) == 0.0
    assert load_ms(B) == pytest.approx(COLD_MS + stall_ms)


def test_a_booked_resident_is_no_victim() -> None:
    made = fleet(row(0, residents=(held(A), held(B))))
    winners(made, [query(A, 1), query(B, 2)])
    assert made.choose(query(C, 3), "axiom", 0.0).refusals == {Reason.QUARANTINED: 1}
    assert made.choose(query(A, 4), "axiom", 0.0).winner is not None


def test_peers_requests_claim_slots_and_make_tenants_busy() -> None:
    made = fleet(row(0, residents=(held(A), held(B))))
    made.set_peer_load(engine(0), {A: 1, B: 2, C: 0})
    assert made.choose(query(C), "axiom", 0.0).refusals == {Reason.QUARANTINED: 1}
    made.set_peer_load(engine(0), {D: 1, B: 1})
    joined = made.choose(query(D), "axiom", 0.0)
    assert joined.load is LoadKind.JOIN
    made.set_peer_load(engine(0), {})
    assert made.choose(query(D), "axiom", 0.0).load is LoadKind.COLD
    made.set_peer_load(EngineId("not.there"), {A: 1})


def test_telemetry_takes_over_from_the_booking() -> None:
    made = fleet(row(0))
    booking = made.decide(query(A), "axiom", 0.0).booking
    made.first_token(booking)
    made.set_row(row(0, residents=(held(A, in_flight=1),)))
    assert made.in_flight() == {(engine(0), A): 1}
    made.release(booking)
    made.set_row(row(0, residents=(held(A),)))
    assert made.choose(query(A), "axiom", 0.0).load is LoadKind.NONE


def test_tokens_wait_until_the_first_token() -> None:
    made = fleet(row(0))
    booking = made.decide(query(prompt_tokens=4000), "axiom", 0.0).booking
    wait = list(Term).index(Term.WAIT)

    def waits_ms() -> float:
        (seen,) = made.explain(query(), "axiom", 0.0)
        assert isinstance(seen, Candidate)
        return seen.terms_ms[wait]

    assert waits_ms() == pytest.approx(400.0 + WAIT.slowdown_per_request_ms)
    made.first_token(booking)
    assert waits_ms() == pytest.approx(WAIT.slowdown_per_request_ms)
    made.release(booking)
    assert waits_ms() == 0.0


def test_requests_beyond_the_seats_queue() -> None:
    made = fleet(row(0))
    made.set_peer_load(engine(0), {BASE: WAIT.seats - 1})
    assert made.explain(query(), "axiom", 0.0)[0].scores["queue-pressure"] == 1.0  # type: ignore[union-attr]
    made.set_peer_load(engine(0), {BASE: WAIT.seats + 1})
    assert made.explain(query(), "axiom", 0.0)[0].scores["queue-pressure"] == pytest.approx(0.6)  # type: ignore[union-attr]
    made.set_peer_load(engine(0), {BASE: WAIT.seats + 4})
    assert made.explain(query(), "axiom", 0.0) == (
        Refused(engine=engine(0), reason=Reason.SATURATED),
    )


@pytest.mark.parametrize("column", ["kv_slowdown", "thermal_slowdown", "latency_slowdown"])
def test_slow_engines_are_avoided(column: str) -> None:
    made = fleet(row(0, **{column: 1.5}), row(1), row(2, **{column: 1.1}))
    decision = made.choose(query(), "axiom", 0.0)
    assert decision.winner is not None
    assert [c.engine for c in (decision.winner, *decision.runners_up)] == [
        engine(1),
        engine(2),
        engine(0),
    ]
    assert decision.runners_up[1].cost_ms - decision.winner.cost_ms == pytest.approx(1000.0)


def test_a_decision_carries_its_parts() -> None:
    made = fleet(*(row(i, latency_slowdown=1.0 + i) for i in range(5)), row(9, base_model="other"))
    decision = made.decide(query(prompt_tokens=100), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.profile == "axiom"
    assert decision.booking > 0
    assert decision.refusals == {Reason.BASE_MISMATCH: 1}
    assert [c.engine for c in decision.runners_up] == [engine(1), engine(2)]
    terms_ms = dict(zip(Term, decision.winner.terms_ms, strict=True))
    assert {term: ms for term, ms in terms_ms.items() if ms} == {Term.PREFILL: pytest.approx(10.0)}
    assert decision.winner.cost_ms == pytest.approx(10.0)
    # the worst of the five costs 10 + 4 x 2000 ms
    assert decision.winner.composite == pytest.approx(1.0 - 10.0 / 8010.0)
    assert list(decision.winner.scores) == list(SCORES.values())


def test_explain_names_every_engine_once_in_order() -> None:
    made = fleet(row(2), row(0, refusal=Reason.DRAINING), row(1, base_model="other"))
    seen = made.explain(query(), "axiom", 0.0)
    assert [one.engine for one in seen] == [engine(0), engine(1), engine(2)]
    assert [type(one) for one in seen] == [Refused, Refused, Candidate]


def test_an_empty_fleet_decides_nothing() -> None:
    decision = fleet().decide(query(A), "axiom", 0.0)
    assert (decision.winner, decision.refusals, decision.booking) == (None, {}, 0)


def test_rows_grow_and_are_used_again() -> None:
    made = fleet(*(row(i) for i in range(40)))
    assert len(made.explain(query(), "axiom", 0.0)) == 40
    for i in range(39):
        made.remove(engine(i))
    assert winners(made, [query(number=i) for i in range(3)]) == [engine(39)] * 3
    for i in range(100, 139):
        made.set_row(row(i, residents=(held(A),)))
    decision = made.choose(query(), "axiom", 0.0)
    assert decision.refusals == {}
    assert {c.engine for c in made.explain(query(A), "axiom", 0.0)} == {
        engine(i) for i in (39, *range(100, 139))
    }


def test_a_removed_engine_leaves_every_index() -> None:
    made = fleet(row(0, residents=(held(A),), failures=frozenset({B})), row(1))
    made.set_peer_load(engine(0), {C: 5})
    booking = made.decide(query(C), "axiom", 0.0).booking
    made.remove(engine(0))
    made.remove(engine(0))
    made.release(booking)
    made.set_row(row(2))
    seen = {c.engine: c for c in made.explain(query(A), "axiom", 0.0) if isinstance(c, Candidate)}
    assert seen[engine(2)].scores["adapter-affinity"] == 0.25
    assert made.choose(query(B), "axiom", 0.0).refusals == {}
    made.set_row(row(0))
    first, second, third = made.explain(query(C), "axiom", 0.0)
    assert isinstance(first, Candidate)
    assert first.terms_ms == second.terms_ms == third.terms_ms  # type: ignore[union-attr]


def test_streams_outlive_the_row_of_their_engine() -> None:
    """A node that flaps, or a report without the engine, ends no stream."""
    made = fleet(row(0, residents=(held(A), held(B))), row(1))
    first = made.decide(query(A), "axiom", 0.0).booking
    made.remove(engine(0))
    assert made.in_flight() == {(engine(0), A): 1}
    assert made.choose(query(A), "axiom", 0.0).load is LoadKind.COLD
    made.set_row(row(0, residents=(held(B),)))
    back = made.choose(query(A), "axiom", 0.0)
    assert back.winner is not None
    assert (back.winner.engine, back.load) == (engine(0), LoadKind.JOIN)
    made.remove(engine(0))
    made.release(first)
    assert made.in_flight() == {}


def test_failures_end_with_the_next_row() -> None:
    made = fleet(row(0, failures=frozenset({A, B})))
    made.set_row(row(0, failures=frozenset({B})))
    assert made.choose(query(A), "axiom", 0.0).winner is not None
    assert made.choose(query(B), "axiom", 0.0).refusals == {Reason.LOAD_FAILED: 1}


def test_ties_go_by_hash_and_rounding() -> None:
    """Costs within the same microsecond are equal, so the hash decides, not the last bit."""
    exact = fleet(*(row(i) for i in range(8)))
    noisy = fleet(*(row(i, latency_slowdown=1.0 + i * 1e-12) for i in range(8)))
    for i in range(50):
        asked = query(A, i, affinity_hash=i * 7919)
        left, right = exact.choose(asked, "axiom", 0.0), noisy.choose(asked, "axiom", 0.0)
        assert left.winner is not None
        assert right.winner is not None
        assert left.winner.engine == right.winner.engine


def test_the_highest_hash_wins_a_tie() -> None:
    made = fleet(*(row(i) for i in range(8)))
    identities = np.array([stable_hash(engine(i)) for i in range(8)], np.uint64)
    for key in range(50):
        decision = made.choose(query(affinity_hash=key), "axiom", 0.0)
        assert decision.winner is not None
        assert decision.winner.engine == engine(int(np.argmax(rendezvous(identities, key))))


def test_round_robin_takes_turns_and_skips_the_refused() -> None:
    made = fleet(*(row(i) for i in range(4)), row(4, refusal=Reason.NOT_READY))
    found = winners(made, [query(adapter(i), i) for i in range(12)], "round-robin")
    assert sorted(found[:4]) == [engine(i) for i in range(4)]
    assert found == found[:4] * 3


def test_turns_are_taken_by_base_model_and_profile() -> None:
    made = fleet(*(row(i) for i in range(3)), row(7, base_model="other"))
    expected = winners(made, [query(number=i) for i in range(3)], "round-robin")
    found = []
    for i in range(3):
        found += winners(made, [query(number=i)], "round-robin")
        winners(made, [query(number=i, base_model="other")], "round-robin")
        winners(made, [query(number=i)], "axiom")
    assert found == expected


def test_least_loaded_counts_bookings_and_peers_and_ignores_adapters() -> None:
    made = fleet(row(0, residents=(held(A),)), row(1), row(2))
    made.set_peer_load(engine(2), {BASE: 2})
    found = winners(made, [query(A, i) for i in range(4)], "least-loaded")
    assert sorted(found) == [engine(0), engine(0), engine(1), engine(1)]


@pytest.mark.parametrize("profile", ["round-robin", "least-loaded"])
def test_baselines_know_no_quarantine_and_no_cap(profile: str) -> None:
    made = fleet(row(0, residents=BUSY_PAIR, wait=waiting(9_000.0)))
    decision = made.decide(query(A), profile, 0.0)
    assert decision.winner is not None
    assert decision.winner.scores["adapter-affinity"] == -1.0
    assert decision.load is LoadKind.COLD
    refused = fleet(row(0, max_lora_rank=8)).decide(query(A), profile, 0.0)
    assert refused.refusals == {Reason.RANK_TOO_LARGE: 1}


def test_explain_comes_in_pages_that_together_are_the_whole() -> None:
    made = fleet(*[row(n, refusal=Reason.DRAINING if n % 2 else None) for n in range(7)])
    whole = made.explain(query(A), "axiom", 0.0)
    pages = [made.explain(query(A), "axiom", 0.0, limit=3)]
    while pages[-1]:
        after = pages[-1][-1].engine
        pages.append(made.explain(query(A), "axiom", 0.0, after=after, limit=3))
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert tuple(one for page in pages for one in page) == whole


def test_where_one_engine_alone_could_win_those_further_out_are_shown_after_it() -> None:
    made = fleet(
        row(0, residents=(held(A),), wait=WAIT._replace(base_ms=400.0)),
        row(1, residents=(held(A, HOST),)),
        row(2),
        row(3, residents=(held(A, HOST),)),
        row(4, residents=BUSY_PAIR),
    )
    decision = made.choose(query(A), "axiom", 0.0).whole()
    assert decision.winner is not None
    assert decision.winner.engine == engine(0)
    assert {one.engine for one in decision.runners_up} == {engine(1), engine(3)}
    assert decision.refusals == {Reason.QUARANTINED: 1}
    made.remove(engine(1))
    assert [one.engine for one in made.choose(query(A), "axiom", 0.0).runners_up] == [
        engine(3),
        engine(2),
    ]
