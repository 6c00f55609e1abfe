"""How many requests a run will have, before its workload is made: to begin with the longest."""

from __future__ import annotations

from axiom_sim.scenario.resolved import CUT_REQUESTS, Phase, Resolved
from axiom_sim.scenario.traffic import Diurnal

_OF_A_TRACE = 12_031
"""Requests of the Mooncake hour, and what is guessed of a trace that does not say."""


def expected_requests(scenario: Resolved) -> float:
    """About; the cut that a run gets is in it."""
    asked = sum(_of_phase(phase, len(scenario.regions)) for phase in scenario.phases)
    return asked if scenario.whole else min(asked, CUT_REQUESTS)


def _of_phase(phase: Phase, regions: int) -> float:
    arrivals = phase.arrivals
    if arrivals.requests is not None:
        return arrivals.requests
    if phase.end_ms is None:
        return _OF_A_TRACE
    seconds = (phase.end_ms - phase.start_ms) / 1e3
    if arrivals.poisson is not None:
        return arrivals.poisson * seconds
    if arrivals.diurnal is not None:
        return _mean_rate(arrivals.diurnal, regions) * seconds
    steps = arrivals.steps or ()
    ends = [at_s for at_s, _ in steps[1:]] + [seconds]
    return sum(
        rate * max(0.0, min(end, seconds) - at_s)
        for (at_s, rate), end in zip(steps, ends, strict=True)
    )


def _mean_rate(diurnal: Diurnal, regions: int) -> float:
    mean: float | dict[str, float] = diurnal.mean
    return sum(mean.values()) if isinstance(mean, dict) else mean * regions
