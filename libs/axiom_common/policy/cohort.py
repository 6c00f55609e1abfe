"""What is normal among the engines of one base model, for rules that compare with peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.policy.batching import unloaded_tpot_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Medians over the ready engines of one base model. None: nobody has a sample.

    TPOT is that of an unloaded engine, so that engines under unequal load compare.
    """

    engines: int = 0
    ttft_ms: float | None = None
    unloaded_tpot_ms: float | None = None
    prefill_ms_per_token: float | None = None


def cohort(states: Iterable[EngineState]) -> Cohort:
    """Summarise the engines of one base model; those that are not ready do not count."""
    ready = [state for state in states if state.status is EngineStatus.READY]
    return Cohort(
        engines=len(ready),
        ttft_ms=median(s.ttft_ms for s in ready),
        unloaded_tpot_ms=median(unloaded_tpot_ms(s, s.tpot_ms) for s in ready),
        prefill_ms_per_token=median(s.prefill_ms_per_token for s in ready),
    )


def median(samples: Iterable[float | None]) -> float | None:
    """The upper median of the samples that are known; None when there is none."""
    known = [sample for sample in samples if sample is not None]
    return upper_median(known) if known else None


def upper_median(samples: Sequence[float]) -> float:
    """The median of at least one sample: not a mean of two, so that it was really observed."""
    return sorted(samples)[len(samples) // 2]
