"""What is to be run: one policy, or the bounds, on one variant with one seed; and what all of them
say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from axiom_sim.exam.expected import expected_requests
from axiom_sim.exam.means import means
from axiom_sim.exam.outcome import Outcome
from axiom_sim.scenario.resolved import Resolved

BOUNDS = "bounds"
ORACLES = {"clairvoyant": "clairvoyant", "fresh-state": "fresh_state"}
"""Dispatchers that know more than a policy may, with their keys among the bounds."""
_ORACLE_KEYS = {
    "clairvoyant": ("ttft_ms_p99", "goodput", "adapter_loads"),
    "fresh-state": ("ttft_ms_p99", "goodput"),
}
_FLEET_US = 60.0
_DECISION_US = {"axiom": 150.0, "clairvoyant": 600.0, "fresh-state": 150.0, BOUNDS: 200.0}
_OTHERS_US = 25.0
"""What a request costs in the fleet's model, and in a decision, about: for what is begun first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamTask:
    """`run` is a policy, an oracle or `BOUNDS`. `timeline`: keep where adapters were."""

    scenario: Resolved
    seed: int
    run: str
    timeline: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.scenario.scenario} {self.scenario.variant}, seed {self.seed}: {self.run}"

    @property
    def group(self) -> str:
        """Those with the same workload."""
        return f"{self.scenario.scenario}/{self.scenario.variant}/{self.seed}"

    @property
    def cost(self) -> float:
        """About how many seconds it takes."""
        fleet_us = 0.0 if self.run == BOUNDS else _FLEET_US
        one_us = fleet_us + _DECISION_US.get(self.run, _OTHERS_US)
        return expected_requests(self.scenario) * one_us / 1e6


def exam_tasks(
    variants: Sequence[Resolved],
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    bounds: bool = True,
    timeline: str | None = None,
) -> list[ExamTask]:
    """All tasks. `timeline`: the policy whose residency is kept, in the first seed."""
    runs = [*policies, *((BOUNDS, *ORACLES) if bounds else ())]
    return [
        ExamTask(
            scenario=variant, seed=seed, run=run, timeline=run == timeline and seed == seeds[0]
        )
        for variant in variants
        for seed in seeds
        for run in runs
    ]


def results_of(tasks: Sequence[ExamTask], outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """By scenario the `results` that `axiom sim run --json` tells: by variant, means over seeds;
    policies in the order of the tasks."""
    found: dict[str, dict[str, dict[str, list[Outcome]]]] = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        variants = found.setdefault(task.scenario.scenario, {})
        runs = variants.setdefault(task.scenario.variant, {})
        runs.setdefault(task.run, []).append(outcome)
    return {
        scenario: {variant: _result(runs) for variant, runs in variants.items()}
        for scenario, variants in found.items()
    }


def _result(runs: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    first = next(iter(runs.values()))
    result = {
        **means([{"utilisation": outcome.utilisation} for outcome in first]),
        "policies": {
            run: means([outcome.figures for outcome in of_seeds])
            for run, of_seeds in runs.items()
            if run not in (BOUNDS, *ORACLES)
        },
    }
    if BOUNDS in runs:
        result["bounds"] = means([outcome.figures for outcome in runs[BOUNDS]])
        for run, key in ORACLES.items():
            told = [{k: o.figures[k] for k in _ORACLE_KEYS[run]} for o in runs[run]]
            result["bounds"][key] = means(told)
    return result
