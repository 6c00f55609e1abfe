"""Liveness from arrivals; the freeze when too many fall silent together."""

from __future__ import annotations

import pytest

from axiom_common.model.ids import NodeId
from axiom_common.state.liveness import DEAD_MS, FREEZE_MAX_MS, SUSPECT_MS, Liveness, Sweep


def nodes(count: int, start: int = 0) -> list[NodeId]:
    return [NodeId(f"n{i}") for i in range(start, start + count)]


def heard(liveness: Liveness, names: list[NodeId], now_ms: float) -> None:
    for name in names:
        liveness.heard(name, now_ms)


def test_alive_suspect_dead() -> None:
    liveness = Liveness()
    a, b = nodes(2)
    heard(liveness, [a, b], 0.0)
    assert liveness.sweep(SUSPECT_MS - 1.0) == Sweep(suspect=(), dead=(), frozen=False)
    liveness.heard(b, SUSPECT_MS)
    assert liveness.sweep(SUSPECT_MS) == Sweep(suspect=(a,), dead=(), frozen=False)
    liveness.heard(b, DEAD_MS)
    assert liveness.sweep(DEAD_MS) == Sweep(suspect=(), dead=(a,), frozen=False)
    assert liveness.age_ms(a, DEAD_MS) is None
    assert liveness.age_ms(b, DEAD_MS + 7.0) == 7.0


def test_death_is_told_once_and_hearing_again_is_a_new_life() -> None:
    liveness = Liveness()
    (a,) = nodes(1)
    heard(liveness, [a], 0.0)
    assert liveness.sweep(DEAD_MS).dead == (a,)
    assert liveness.sweep(DEAD_MS + 1.0).dead == ()
    liveness.heard(a, DEAD_MS + 2.0)
    assert liveness.sweep(DEAD_MS + 3.0) == Sweep(suspect=(), dead=(), frozen=False)


@pytest.mark.parametrize(
    ("total", "silent", "frozen"),
    [
        (2, 2, False),  # fewer than three
        (3, 3, True),
        (8, 3, True),
        (9, 3, False),  # exactly a third is not more than a third
        (10, 4, True),
        (100, 33, False),
        (100, 34, True),
    ],
)
def test_mass_silence_freezes(total: int, silent: int, frozen: bool) -> None:
    liveness = Liveness()
    names = nodes(total)
    heard(liveness, names, 0.0)
    heard(liveness, names[silent:], DEAD_MS)
    sweep = liveness.sweep(DEAD_MS)
    assert sweep.frozen is frozen
    assert len(sweep.dead) == (0 if frozen else silent)
    assert len(sweep.suspect) == (silent if frozen else 0)


def test_the_freeze_ends_when_enough_are_heard() -> None:
    liveness = Liveness()
    names = nodes(9)
    heard(liveness, names, 0.0)
    heard(liveness, names[4:], DEAD_MS)
    assert liveness.sweep(DEAD_MS).frozen
    heard(liveness, names[2:], DEAD_MS + 100.0)
    assert liveness.sweep(DEAD_MS + 100.0).dead == tuple(names[:2])


def test_a_freeze_ends_when_all_are_silent_for_very_long() -> None:
    liveness = Liveness()
    names = nodes(9)
    heard(liveness, names, 0.0)
    heard(liveness, names[6:], 10_000.0)
    assert liveness.sweep(FREEZE_MAX_MS - 1.0) == Sweep(suspect=tuple(names), dead=(), frozen=True)
    gone = liveness.sweep(FREEZE_MAX_MS)
    assert gone == Sweep(suspect=tuple(names[6:]), dead=tuple(names[:6]), frozen=True)
    assert liveness.sweep(FREEZE_MAX_MS + 10_000.0).dead == tuple(names[6:])


def test_a_removed_node_is_neither_silent_nor_counted() -> None:
    liveness = Liveness()
    names = nodes(3)
    heard(liveness, names, 0.0)
    for name in names[1:]:
        liveness.forget(name)
    liveness.forget(NodeId("never"))
    assert liveness.sweep(DEAD_MS) == Sweep(suspect=(), dead=(names[0],), frozen=False)
