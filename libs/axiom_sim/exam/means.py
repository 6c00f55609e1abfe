"""From the figures of each seed to means over seeds, with the half-width of their 95 % interval.

Figures are rounded to `DIGITS` significant digits, so that the last bits of a sum, which depend on
its order, are not told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

DIGITS = 6
CI_SUFFIX = "_ci95"
# Student's t for a two-sided 95 %, by degrees of freedom from 1 on; more count as the last.
# fmt: off
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on


def means(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of several seeds as one object of the same keys, at any depth, in the first one's
    order. With more than one seed `KEY_ci95` stands beside each; None where a figure is unknown."""
    told: dict[str, Any] = {}
    for key, first in samples[0].items():
        values = [sample[key] for sample in samples]
        if isinstance(first, Mapping):
            told[key] = means(values)
            continue
        known = [value for value in values if value is not None]
        told[key] = _mean(known)
        if len(samples) > 1:
            told[f"{key}{CI_SUFFIX}"] = half_width(known)
    return told


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of their mean; None for fewer than two."""
    if len(values) < 2:
        return None
    t = _T_95[min(len(values) - 1, len(_T_95)) - 1]
    return rounded(t * stdev(values) / math.sqrt(len(values)))


def rounded(value: float) -> float:
    """To `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    if len(values) == 1:
        # A count stays one.
        return values[0] if isinstance(values[0], int) else rounded(values[0])
    return rounded(fmean(values))
