"""Thermal safety over whole histories of readings, against what the agent's own counts say."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from axiom_common.model.engine import GpuState
from axiom_common.policy.scorers.thermal_safety import (
    LEAVE_MS,
    SLOWDOWN_BY_BIT,
    SUSTAINED_MS,
    UNKNOWN_MS,
    ThermalMemory,
)

LOOK_MS = 125.0
MASKS = st.sampled_from([0, 1, 4, 8, 32, 64, 128, 8 | 64, 32 | 1, None])
HISTORIES = st.lists(
    st.tuples(MASKS, st.sampled_from([1, 2, 3, 4, 70, 90, 250])), min_size=1, max_size=7
)
"""(mask, for how many looks it stands)."""


def readings(history: list[tuple[int | None, int]]) -> list[tuple[float, GpuState]]:
    """What an agent reads that looks each `LOOK_MS`."""
    since: dict[int, float] = {}
    told = []
    now_ms = 0.0
    for mask, looks in history:
        for _ in range(looks):
            standing = [1 << n for n in range(8) if (mask or 0) & 1 << n]
            since = {bit: since.get(bit, now_ms) for bit in standing}
            stood = tuple((bit, now_ms - at_ms) for bit, at_ms in since.items())
            told.append((now_ms, GpuState(index=0, throttle=mask, throttled_ms=stood)))
            now_ms += LOOK_MS
    return told


@settings(deadline=None, max_examples=60)
@given(HISTORIES)
def test_a_reason_is_in_force_from_when_it_was_sustained_until_it_was_gone_for_long(
    history: list[tuple[int | None, int]],
) -> None:
    memory = ThermalMemory()
    sustained_ms: dict[int, float] = {}
    stood_ms: dict[int, float] = {}
    for now_ms, gpu in readings(history):
        memory = memory.after((gpu,), told_ms=now_ms, heard_ms=now_ms)
        for bit, ms in gpu.throttled_ms:
            stood_ms[bit] = now_ms
            if ms >= SUSTAINED_MS:
                sustained_ms[bit] = now_ms
        slowdown = memory.slowdown(now_ms)
        surely = [b for b, ms in gpu.throttled_ms if b in SLOWDOWN_BY_BIT and ms >= SUSTAINED_MS]
        perhaps = [b for b in sustained_ms if b in SLOWDOWN_BY_BIT]
        if gpu.throttle is not None:
            perhaps = [b for b in perhaps if now_ms - stood_ms[b] < LEAVE_MS]
        assert slowdown >= max((SLOWDOWN_BY_BIT[b] for b in surely), default=1.0)
        assert slowdown <= max((SLOWDOWN_BY_BIT[b] for b in perhaps), default=1.0)
        assert memory.slowdown(now_ms + UNKNOWN_MS) == 1.0


@settings(deadline=None, max_examples=60)
@given(HISTORIES)
def test_what_is_told_again_changes_nothing(history: list[tuple[int | None, int]]) -> None:
    memory = ThermalMemory()
    for now_ms, gpu in readings(history):
        memory = memory.after((gpu,), told_ms=now_ms, heard_ms=now_ms)
        again = memory.after((gpu,), told_ms=now_ms, heard_ms=now_ms)
        assert again.slowdown(now_ms) == memory.slowdown(now_ms)


@settings(deadline=None, max_examples=60)
@example([(33, 1), (1, 1), (1, 1), (32, 1)])
@given(HISTORIES)
def test_a_reason_that_never_stood_a_beat_moves_nothing(
    history: list[tuple[int | None, int]],
) -> None:
    short = [(mask, 1 + looks % 2) for mask, looks in history]
    memory = ThermalMemory()
    for now_ms, gpu in readings(short):
        if any(b in SLOWDOWN_BY_BIT and ms >= SUSTAINED_MS for b, ms in gpu.throttled_ms):
            # From here on one has stood; a reading that is left out would be a hole in the story.
            break
        memory = memory.after((gpu,), told_ms=now_ms, heard_ms=now_ms + LOOK_MS)
        assert memory.slowdown(now_ms) == 1.0
