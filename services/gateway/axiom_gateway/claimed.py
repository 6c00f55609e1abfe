"""Decisions of a fleet in which engines are claimed: those closed to an adapter count as
quarantined, and take no request of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import Candidate, Query, Refused
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.claims import Claims
from axiom_common.policy.decided import Decided
from axiom_common.policy.fleet import Fleet, Prompt
from axiom_gateway.engine_facts import EngineFacts
from axiom_gateway.others_load import OthersLoad

Judge = Callable[[Query, str, float, Prompt | None], Decided]
Seen = Candidate | Refused


class ClaimedSlots:
    """The claims of a fleet's engines. All that is given here is read only."""

    def __init__(
        self, fleet: Fleet, engines: Mapping[EngineId, EngineFacts], others: OthersLoad
    ) -> None:
        self._fleet = fleet
        self._engines = engines
        self._others = others
        self._claims = Claims()

    def claim(self, query: Query, now_ms: float) -> None:
        """Promise the query's adapter the next idle slot on some engine."""
        rows = [facts.row for facts in self._engines.values() if facts.row is not None]
        self._claims.claim(query, rows, self._in_flight, now_ms)

    def end(self, adapter: EngineAdapter) -> None:
        """The adapter got what it waited for."""
        self._claims.end(adapter)

    def expire(self, now_ms: float) -> None:
        """Time passed."""
        self._claims.expire(now_ms)

    def closed_to(self, adapter: EngineAdapter) -> tuple[EngineId, ...]:
        """Engines whose next idle slot is promised to other adapters."""
        if not self._claims or adapter == BASE:
            return ()
        return self._claims.closed_to(adapter, partial(self._holds, adapter))

    def _in_flight(self, engine: EngineId, adapter: EngineAdapter) -> int:
        own = self._fleet.in_flight_on(engine).get(adapter, 0)
        return own + self._others.of_peers(engine).get(adapter, 0)

    def _holds(self, adapter: EngineAdapter, engine: EngineId) -> bool:
        """Whether the adapter has a slot of the engine, or is on its way into one."""
        facts = self._engines.get(engine)
        resident = facts is not None and any(
            r.adapter == adapter and r.state is not AdapterState.HOST for r in facts.state.residents
        )
        return resident or adapter in self._fleet.in_flight_on(engine)


def decided(
    judge: Judge,
    query: Query,
    profile: str,
    now_ms: float,
    closed: tuple[EngineId, ...],
    prompt: Prompt | None = None,
) -> Decided:
    """What `judge` (decide or choose) says without the closed engines."""
    if not closed:
        return judge(query, profile, now_ms, prompt)
    without = query._replace(excluded=(*query.excluded, *closed))
    decision = judge(without, profile, now_ms, prompt)
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
