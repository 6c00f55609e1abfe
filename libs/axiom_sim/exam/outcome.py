"""What a task of the exam gives: figures, and what a report draws of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """On how many engines each adapter was resident over a run: `levels[a][t]`, from 0 to `end_s`.
    Of the most wanted adapters, the most wanted first; `left_out` others are not shown."""

    policy: str
    end_s: float
    adapters: tuple[str, ...]
    levels: tuple[tuple[int, ...], ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`figures` are those of a policy, or the bounds, of one seed, with the keys that are printed.
    `ttft_ms_p90` is drawn only. `seconds` is what it took."""

    figures: dict[str, Any]
    utilisation: float
    seconds: float
    ttft_ms_p90: float | None = None
    timeline: Timeline | None = None
