"""From what the client saw and the engines counted to the figures of one policy. Pure.

A request ends in one of three ways. `done`: its stream ended as it should. `interrupted`: it had
its first token and then its engine was killed by the demo. `failed`: anything else, also a stream
that broke without a kill to blame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

KILL_BLAME_MS = 3_000.0
"""A stream of the killed engine that breaks this long after the kill was broken by it."""


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One request as the client saw it; times are ms of the run.

    `ttft_ms` None: no token came. `error` is empty when the stream ended as it should.
    """

    sent_ms: float
    ended_ms: float
    ttft_ms: float | None
    tokens: int
    engine: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKill:
    """The kill of one engine during a run."""

    engine: str
    at_ms: float
    back_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """What engines counted of their own work."""

    adapter_loads: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0

    def plus(self, other: EngineCounters) -> EngineCounters:
        """The sum, field by field."""
        return _combined(self, other, 1)

    def minus(self, other: EngineCounters) -> EngineCounters:
        """The difference, field by field."""
        return _combined(self, other, -1)


class FleetCounters:
    """The engines' counters over their lives: what a killed engine had counted is kept."""

    def __init__(self) -> None:
        self._past = EngineCounters()
        self._now: dict[str, EngineCounters] = {}

    def seen(self, engine: str, counters: EngineCounters) -> None:
        """An engine told its counters since its start."""
        self._now[engine] = counters

    def ended(self, engine: str) -> None:
        """An engine's life ended; its next one counts from zero."""
        self._past = self._past.plus(self._now.pop(engine, EngineCounters()))

    def total(self) -> EngineCounters:
        """All that was counted."""
        total = self._past
        for counters in self._now.values():
            total = total.plus(counters)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy, named as the command prints them."""

    requests: int
    failed: int
    interrupted: int
    adapter_loads: int
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    tokens_per_s: float
    prefix_hit_tokens_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy's run, as the report draws it: times are ms of the measured window.

    `loads` are (time, adapter loads of the fleet since the window's start).
    """

    policy: str
    figures: PolicyFigures
    observations: tuple[Observation, ...]
    loads: tuple[tuple[float, int], ...]
    kill: EngineKill | None


def outcome(seen: Observation, kill: EngineKill | None) -> Outcome:
    """How a request ended, given what the demo itself broke."""
    if not seen.error:
        return Outcome.DONE
    by_the_kill = (
        kill is not None
        and seen.engine == kill.engine
        and seen.ttft_ms is not None
        and seen.sent_ms < kill.at_ms
        and kill.at_ms <= seen.ended_ms <= kill.at_ms + KILL_BLAME_MS
    )
    return Outcome.INTERRUPTED if by_the_kill else Outcome.FAILED


def policy_figures(
    observations: Sequence[Observation], counted: EngineCounters, kill: EngineKill | None
) -> PolicyFigures:
    """Figures over the measured part of a run; `counted` is the engines' work in it.

    Tokens per second are those that clients received, over the time from the first request sent to
    the last one ended.
    """
    outcomes = [outcome(seen, kill) for seen in observations]
    ttfts = [seen.ttft_ms for seen in observations if seen.ttft_ms is not None]
    span_ms = (
        max(seen.ended_ms for seen in observations) - min(seen.sent_ms for seen in observations)
        if observations
        else 0.0
    )
    tokens = sum(seen.tokens for seen in observations)
    asked = counted.prefix_query_tokens
    return PolicyFigures(
        requests=len(observations),
        failed=outcomes.count(Outcome.FAILED),
        interrupted=outcomes.count(Outcome.INTERRUPTED),
        adapter_loads=counted.adapter_loads,
        ttft_ms_p50=percentile(ttfts, 0.50),
        ttft_ms_p99=percentile(ttfts, 0.99),
        tokens_per_s=round(tokens / span_ms * 1e3, 1) if span_ms > 0 else 0.0,
        prefix_hit_tokens_share=round(counted.prefix_hit_tokens / asked, 4) if asked else 0.0,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile, to 0.1; None of nothing."""
    if not values:
        return None
    ranked = sorted(values)
    return round(ranked[max(0, math.ceil(share * len(ranked)) - 1)], 1)


def _combined(a: EngineCounters, b: EngineCounters, sign: int) -> EngineCounters:
    return EngineCounters(
        **{f.name: getattr(a, f.name) + sign * getattr(b, f.name) for f in fields(a)}
    )
