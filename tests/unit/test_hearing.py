"""The clock on which silence is measured."""

from __future__ import annotations

import pytest

from axiom_common.state.hearing import LATE_MS, RECOVERY_MS, TICK_MS, Hearing

START_MS = 7_000.0


def ticked(hearing: Hearing, from_ms: float, until_ms: float, *, connected: bool = True) -> float:
    """Tick each `TICK_MS`; the time then."""
    now_ms = from_ms
    while now_ms < until_ms:
        now_ms += TICK_MS
        hearing.tick(now_ms, connected=connected)
    return now_ms


def test_while_all_is_well_it_is_the_time() -> None:
    hearing = Hearing(START_MS)
    now_ms = ticked(hearing, START_MS, 17_000.0)
    assert not hearing.deaf
    assert hearing.listened_ms(now_ms + 100.0) == now_ms + 100.0


def test_it_stands_still_while_the_bus_is_away_and_until_all_had_time_to_speak() -> None:
    hearing = Hearing(START_MS)
    lost_ms = ticked(hearing, START_MS, 10_000.0)
    back_ms = ticked(hearing, lost_ms, 50_000.0, connected=False)
    assert hearing.deaf
    assert hearing.listened_ms(back_ms) == lost_ms
    recovering_ms = ticked(hearing, back_ms, back_ms + RECOVERY_MS - TICK_MS)
    assert hearing.deaf
    assert hearing.listened_ms(recovering_ms) == lost_ms
    recovered_ms = ticked(hearing, recovering_ms, recovering_ms + TICK_MS)
    assert not hearing.deaf
    assert hearing.listened_ms(recovered_ms) == lost_ms + TICK_MS


def test_a_bus_that_comes_and_goes_stops_it_only_meanwhile() -> None:
    hearing, now_ms = Hearing(0.0), 0.0
    for _ in range(10):
        now_ms = ticked(hearing, now_ms, now_ms + 2_000.0, connected=False)
        now_ms = ticked(hearing, now_ms, now_ms + 4_000.0)
    assert hearing.listened_ms(now_ms) == 10 * (4_000.0 - RECOVERY_MS + TICK_MS)


@pytest.mark.parametrize(("late_ms", "paused"), [(LATE_MS - 1.0, False), (LATE_MS, True)])
def test_a_tick_that_comes_late_tells_of_a_pause(late_ms: float, paused: bool) -> None:
    hearing = Hearing(START_MS)
    hearing.tick(START_MS + late_ms, connected=True)
    assert hearing.deaf is paused
    assert hearing.listened_ms(START_MS + late_ms) == (START_MS if paused else START_MS + late_ms)


def test_what_comes_before_the_late_tick_is_hardly_ahead() -> None:
    hearing, woken_ms = Hearing(START_MS), START_MS + 600_000.0
    assert hearing.listened_ms(woken_ms) == START_MS + LATE_MS
    hearing.tick(woken_ms, connected=True)
    assert hearing.listened_ms(woken_ms) == START_MS


def test_it_counts_for_how_long_nothing_was_missed() -> None:
    hearing = Hearing(START_MS)
    now_ms = ticked(hearing, START_MS, START_MS + 5_000.0)
    assert hearing.unbroken_ms(now_ms, connected=True) == 5_000.0


def test_a_bus_that_is_away_breaks_it_and_its_return_begins_anew() -> None:
    hearing = Hearing(START_MS)
    now_ms = ticked(hearing, START_MS, 10_000.0)
    assert hearing.unbroken_ms(now_ms, connected=False) == 0.0
    now_ms = ticked(hearing, now_ms, 13_000.0, connected=False)
    assert hearing.unbroken_ms(now_ms, connected=True) == 0.0
    assert hearing.unbroken_ms(now_ms + 30.0, connected=True) == 30.0


def test_a_bus_that_was_away_between_two_ticks_begins_anew_too() -> None:
    hearing = Hearing(START_MS)
    now_ms = ticked(hearing, START_MS, 10_000.0)
    hearing.interrupted(now_ms + 10.0)
    assert hearing.unbroken_ms(now_ms + 30.0, connected=True) == pytest.approx(20.0)


@pytest.mark.parametrize("ticks_first", [True, False])
def test_a_process_that_was_paused_heard_nothing_whoever_looks_first(ticks_first: bool) -> None:
    hearing = Hearing(START_MS)
    now_ms = ticked(hearing, START_MS, 10_000.0) + 5_000.0
    if ticks_first:
        hearing.tick(now_ms, connected=True)
    assert hearing.unbroken_ms(now_ms, connected=True) == 0.0
    hearing.tick(now_ms, connected=True)
    assert hearing.unbroken_ms(now_ms + 100.0, connected=True) == 100.0


def test_a_tick_that_is_a_little_late_breaks_nothing() -> None:
    hearing = Hearing(START_MS)
    hearing.tick(START_MS + LATE_MS - 1.0, connected=True)
    assert hearing.unbroken_ms(START_MS + LATE_MS, connected=True) == LATE_MS
