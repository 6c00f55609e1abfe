"""Axis scales: from values to pixels, and the round numbers that label an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps [low, high] to [start_px, end_px], by value or by its logarithm. `ticks` lie inside."""

    low: float
    high: float
    start_px: float
    end_px: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside the scale land on its nearer end."""
        clamped = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(clamped / self.low) / math.log(self.high / self.low)
        else:
            share = (clamped - self.low) / (self.high - self.low)
        return self.start_px + share * (self.end_px - self.start_px)


def linear_scale(high: float, *, start_px: float, end_px: float, ticks: int = 5) -> Scale:
    """From 0 to a round number at or above `high`, in about `ticks` steps of 1, 2 or 5 x 10^n."""
    high = high if high > 0 else 1.0
    rough = high / ticks
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(s * magnitude for s in _STEPS if s * magnitude >= rough * (1 - 1e-9))
    count = math.ceil(high / step - 1e-9)
    return Scale(
        low=0.0,
        high=count * step,
        start_px=start_px,
        end_px=end_px,
        ticks=tuple(i * step for i in range(count + 1)),
    )


def time_scale(high: float, *, start_px: float, end_px: float, ticks: int = 8) -> Scale:
    """From 0 to exactly `high`: an axis of time ends where the run ends."""
    rounded = linear_scale(high, start_px=start_px, end_px=end_px, ticks=ticks)
    inside = tuple(tick for tick in rounded.ticks if tick <= high)
    return Scale(low=0.0, high=high, start_px=start_px, end_px=end_px, ticks=inside)


def log_scale(low: float, high: float, *, start_px: float, end_px: float) -> Scale:
    """From the 1, 2 or 5 x 10^n at or below `low` to the one at or above `high`; 0 < low."""
    first = _round_down(low)
    last = _round_up(max(high, low))
    if last <= first:
        last = _round_up(first * 1.5)
    ticks = []
    exponent = math.floor(math.log10(first) + 1e-9)
    while 10.0**exponent <= last * (1 + 1e-9):
        for step in _STEPS[:3]:
            tick = step * 10.0**exponent
            if first * (1 - 1e-9) <= tick <= last * (1 + 1e-9):
                ticks.append(tick)
        exponent += 1
    return Scale(
        low=first, high=last, start_px=start_px, end_px=end_px, ticks=tuple(ticks), log=True
    )


def _round_down(value: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(s * magnitude for s in _STEPS if s * magnitude <= value * (1 + 1e-9))


def _round_up(value: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return min(s * magnitude for s in _STEPS if s * magnitude >= value * (1 - 1e-9))
