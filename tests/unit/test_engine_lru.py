"""Inferred residency: what each event does to the two LRUs."""

from __future__ import annotations

import pytest

from axiom_common.model.ids import EngineAdapter
from axiom_common.state.engine_lru import EngineLru


def names(*texts: str) -> frozenset[EngineAdapter]:
    return frozenset(EngineAdapter(text) for text in texts)


def loaded(*texts: str, hbm_slots: int = 2, host_slots: int = 4) -> EngineLru:
    lru = EngineLru(hbm_slots=hbm_slots, host_slots=host_slots)
    for at_ms, text in enumerate(texts):
        lru = lru.loaded(EngineAdapter(text), float(at_ms))
    return lru


def shown(lru: EngineLru) -> str:
    """Copies oldest first; capitals are in HBM, brackets mark a forgotten name."""
    texts = (copy.adapter.upper() if copy.in_hbm else copy.adapter for copy in lru.copies)
    pairs = zip(texts, lru.copies, strict=True)
    return " ".join(text if copy.named else f"({text})" for text, copy in pairs)


def test_a_load_takes_the_oldest_slot_and_the_oldest_host_copy() -> None:
    assert shown(loaded("a", "b")) == "A B"
    assert shown(loaded("a", "b", "c")) == "a B C"
    assert shown(loaded("a", "b", "c", "d", "e")) == "b c D E"


def test_a_use_brings_a_host_copy_back_and_makes_it_the_youngest() -> None:
    assert shown(loaded("a", "b", "c").used(EngineAdapter("a"), 9.0)) == "b C A"


def test_a_use_of_a_name_whose_copy_was_dropped_reads_it_again() -> None:
    lru = loaded("a", "b", "c", "d", "e").used(EngineAdapter("a"), 9.0)
    assert shown(lru) == "c d E A"


def test_what_runs_is_never_the_victim_of_a_load() -> None:
    lru = loaded("a", "b").loaded(EngineAdapter("c"), 9.0, running=names("a"))
    assert shown(lru) == "b A C"


@pytest.mark.parametrize(
    ("running", "after"),
    [(names("a", "b"), "A B"), (names("a"), "b A C"), (names(), "a B C")],
    ids=["all slots run: it waits", "one idle slot", "all idle"],
)
def test_a_use_waits_while_everything_in_hbm_runs(
    running: frozenset[EngineAdapter], after: str
) -> None:
    assert shown(loaded("a", "b").used(EngineAdapter("c"), 9.0, running=running)) == after


def test_an_engine_that_frees_what_is_unloaded_has_its_slot_at_once() -> None:
    lru = EngineLru(keeps_forgotten=False, hbm_slots=2, host_slots=4)
    for text in ("a", "b", "c"):
        lru = lru.loaded(EngineAdapter(text), 0.0)
    assert shown(lru.forgotten(EngineAdapter("b"))) == "a C"
    assert shown(lru.resized(hbm_slots=1, host_slots=2).forgotten(EngineAdapter("c"))) == "b"


@pytest.mark.parametrize(
    ("listed", "is_idle", "after"),
    [
        ("d b a c", True, "d b A C"),
        ("d b a c", False, "d B a C"),
        ("c", True, "C"),
        ("e f", False, "e f"),
        ("", True, ""),
        ("a b c d e f", True, "a b c d E F"),
    ],
    ids=["idle", "busy", "others-gone", "others-came", "none", "more-than-known-room"],
)
def test_a_list_by_use_is_what_host_ram_holds(listed: str, is_idle: bool, after: str) -> None:
    lru = loaded("a", "b", "c")
    assert shown(lru) == "a B C"
    names = map(EngineAdapter, listed.split())
    assert shown(lru.listed(names, 9.0, is_idle=is_idle)) == after


def test_an_unload_forgets_the_name_and_its_copy_goes_when_its_turn_comes() -> None:
    lru = loaded("a", "b").forgotten(EngineAdapter("a"))
    assert shown(lru) == "(A) B"
    assert shown(lru.loaded(EngineAdapter("a"), 9.0)) == "(a) B A"
    assert shown(lru.loaded(EngineAdapter("c"), 9.0)) == "(a) B C"


def test_what_the_engine_runs_is_held_whatever_was_thought() -> None:
    lru = loaded("a", "b").seen_running(names("x", "b"), 9.0)
    assert shown(lru) == "a B X"


def test_a_restart_beside_a_running_engine_takes_the_youngest_names_as_held() -> None:
    registered = [EngineAdapter(text) for text in "abcdef"]
    lru = EngineLru(hbm_slots=2, host_slots=4).seeded(registered, names("a"), 9.0)
    assert shown(lru) == "d e F A"
    idle = EngineLru(hbm_slots=2, host_slots=4).seeded(registered[:2], names(), 9.0)
    assert shown(idle) == "A B", "an idle adapter must not look cold"


def test_the_engines_own_word_replaces_all() -> None:
    lru = EngineLru.told(
        hbm=(EngineAdapter("c"), EngineAdapter("(7)")),
        host=(EngineAdapter("a"), EngineAdapter("c"), EngineAdapter("(7)")),
        registered=names("a", "c"),
        hbm_slots=2,
        host_slots=4,
        now_ms=3.0,
    )
    assert shown(lru) == "a C ((7))"
    assert {copy.known_ms for copy in lru.copies} == {3.0}


def test_evidence_has_an_age_and_a_touch_renews_it() -> None:
    lru = loaded("a", "b").touched(names("a"), 50.0)
    assert {copy.adapter: copy.known_ms for copy in lru.copies} == {"a": 50.0, "b": 1.0}


def test_other_capacities_keep_the_youngest() -> None:
    lru = loaded("a", "b", "c", hbm_slots=3, host_slots=3).resized(hbm_slots=1, host_slots=2)
    assert shown(lru) == "b C"


def test_unknown_slots_infer_nothing_and_host_ram_holds_what_hbm_holds() -> None:
    assert shown(loaded("a", hbm_slots=0)) == ""
    assert shown(loaded("a", "b", "c", hbm_slots=2, host_slots=0)) == "B C"
