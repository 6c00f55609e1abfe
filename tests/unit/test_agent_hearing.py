"""When an agent's silence about requests can be relied on."""

from __future__ import annotations

import pytest

from axiom_node_agent.hearing import LATE_MS, TICK_MS, Hearing


def ticked(hearing: Hearing, from_ms: float, until_ms: float) -> float:
    """Time passes as it should; the time of the last tick."""
    now_ms = from_ms
    while now_ms + TICK_MS <= until_ms:
        now_ms += TICK_MS
        hearing.tick(now_ms)
    return now_ms


def test_it_counts_from_the_start() -> None:
    hearing = Hearing(lambda: True, 100.0)
    now_ms = ticked(hearing, 100.0, 5_100.0)
    assert hearing.unbroken_ms(now_ms) == 5_000.0


def test_a_bus_that_is_away_breaks_it_and_its_return_begins_anew() -> None:
    connected = [True]
    hearing = Hearing(lambda: connected[0], 0.0)
    now_ms = ticked(hearing, 0.0, 3_000.0)
    connected[0] = False
    assert hearing.unbroken_ms(now_ms) == 0.0
    now_ms = ticked(hearing, now_ms, 6_000.0)
    connected[0] = True
    assert hearing.unbroken_ms(now_ms) == 0.0


def test_a_bus_that_was_away_between_two_looks_begins_anew_too() -> None:
    hearing = Hearing(lambda: True, 0.0)
    now_ms = ticked(hearing, 0.0, 3_000.0)
    hearing.interrupted(now_ms + 10.0)
    assert hearing.unbroken_ms(now_ms + 30.0) == pytest.approx(20.0)


@pytest.mark.parametrize("ticks_first", [True, False])
def test_a_process_that_was_paused_heard_nothing_whoever_looks_first(ticks_first: bool) -> None:
    hearing = Hearing(lambda: True, 0.0)
    now_ms = ticked(hearing, 0.0, 3_000.0) + 5_000.0
    if ticks_first:
        hearing.tick(now_ms)
    assert hearing.unbroken_ms(now_ms) == 0.0
    hearing.tick(now_ms)
    assert hearing.unbroken_ms(now_ms + 100.0) == 100.0


def test_a_tick_that_is_a_little_late_is_no_pause() -> None:
    hearing = Hearing(lambda: True, 0.0)
    hearing.tick(LATE_MS - 1.0)
    assert hearing.unbroken_ms(LATE_MS) == LATE_MS
