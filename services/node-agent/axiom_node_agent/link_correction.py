"""Corrects the declared link model of an engine by what its loads really took.

One factor scales all of the model: the ratio of measured to predicted, averaged geometrically with
weight 0.3 on the newest load, so that one load in a stall is forgotten after a few good ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import LinkModel
from axiom_common.policy.load_times import assumed_size_bytes

NEWEST_WEIGHT = 0.3
FACTOR_MAX = 50.0
"""Measured times further off than this say something about the clock or the declaration."""


def load_bytes(spec: AdapterSpec) -> int:
    """The adapter's size; from its rank where it was declared without one."""
    return spec.size_bytes or assumed_size_bytes(spec.rank)


@dataclass(frozen=True, slots=True)
class LinkCorrection:
    """Measured time = `factor` x time that the declared model predicts."""

    factor: float = 1.0

    def learnt(self, *, predicted_ms: float, took_ms: float) -> LinkCorrection:
        """After a load that the declared model predicted to take `predicted_ms`."""
        if predicted_ms <= 0 or took_ms <= 0:
            return self
        ratio = _bounded(took_ms / predicted_ms)
        return LinkCorrection(_bounded(self.factor * (ratio / self.factor) ** NEWEST_WEIGHT))

    def corrected(self, link: LinkModel) -> LinkModel:
        """The model with the factor worked in."""
        return LinkModel(
            h2d_fixed_ms=link.h2d_fixed_ms * self.factor,
            h2d_gbps=link.h2d_gbps / self.factor,
            store_fixed_ms=link.store_fixed_ms * self.factor,
            store_gbps=link.store_gbps / self.factor,
        )


def _bounded(factor: float) -> float:
    return min(FACTOR_MAX, max(1 / FACTOR_MAX, factor))
