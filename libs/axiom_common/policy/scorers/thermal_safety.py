"""Thermal safety: 1 at full clocks, less while heat or power holds the clocks down.

    event               bit   slow-down
    hw-slowdown           8     2.0      the clocks are cut by half or more
    sw-thermal           32     1.25
    hw-thermal           64     2.0
    power-brake         128     2.0

Other bits (idle, application clocks, power cap, sync boost) are normal life and do not count. Short
false alarms are common, so an event counts only after it stood for `ENTER_MS`, and goes on counting
until it was gone for `LEAVE_MS`.

    clear --stands ENTER_MS--> throttled --gone LEAVE_MS--> clear
"""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.engine import GpuState

SLOWDOWN_BY_BIT = {8: 2.0, 32: 1.25, 64: 2.0, 128: 2.0}
ENTER_MS = 2_000.0
LEAVE_MS = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalMemory:
    """`reading` is the last slow-down read, `since_ms` when it became throttled or clear;
    `counted` the slow-down in force."""

    reading: float = 1.0
    since_ms: float = float("-inf")
    counted: float = 1.0

    def after(self, gpus: tuple[GpuState, ...], now_ms: float) -> ThermalMemory:
        """The memory after a reading. GPUs that do not say change nothing."""
        masks = [gpu.throttle for gpu in gpus if gpu.throttle is not None]
        if not masks:
            return self
        reading = max(_slowdown(mask) for mask in masks)
        turned = (reading > 1.0) != (self.reading > 1.0)
        since_ms = now_ms if turned else self.since_ms
        stood_ms = now_ms - since_ms
        if reading > 1.0:
            counted = reading if stood_ms >= ENTER_MS or self.counted > 1.0 else 1.0
        else:
            counted = 1.0 if stood_ms >= LEAVE_MS else self.counted
        return ThermalMemory(reading=reading, since_ms=since_ms, counted=counted)


def thermal_safety(memory: ThermalMemory) -> float:
    """The score in (0, 1]: the share of the full clocks that is left."""
    return 1.0 / memory.counted


def _slowdown(mask: int) -> float:
    return max((factor for bit, factor in SLOWDOWN_BY_BIT.items() if mask & bit), default=1.0)
