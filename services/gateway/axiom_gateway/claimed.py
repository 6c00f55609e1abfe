"""Decisions of a fleet in which engines are claimed: those closed to an adapter count as
quarantined, and take no request of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from axiom_common.model.decision import Candidate, Query, Refused
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided

Judge = Callable[[Query, str, float], Decided]
Seen = Candidate | Refused


def decided(
    judge: Judge, query: Query, profile: str, now_ms: float, closed: tuple[EngineId, ...]
) -> Decided:
    """What `judge` (decide or choose) says without the closed engines."""
    if not closed:
        return judge(query, profile, now_ms)
    decision = judge(replace(query, excluded=(*query.excluded, *closed)), profile, now_ms)
    if decision.engine is not None:
        return decision
    return decision.with_refused(Reason.QUARANTINED, len(closed))


def with_closed(seen: tuple[Seen, ...], closed: tuple[EngineId, ...]) -> tuple[Seen, ...]:
    """What was seen of each engine, candidates that are closed refused."""
    return tuple(
        Refused(engine=one.engine, reason=Reason.QUARANTINED)
        if isinstance(one, Candidate) and one.engine in closed
        else one
        for one in seen
    )
