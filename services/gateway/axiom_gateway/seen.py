"""Nodes as this gateway sees them, for people and for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from axiom_common.model.engine import EngineState, NodeState
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId
from axiom_common.wire.views import EngineUse, NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node in the gateway's view. `heard_age_ms` None: known from the shadow cache only. `uses`:
    what gateways know of its engines."""

    state: NodeState
    liveness: str
    heard_age_ms: float | None
    uses: Mapping[EngineId, EngineUse] = field(default_factory=dict)

    def use(self, engine: EngineState) -> EngineUse:
        """What gateways know of one of its engines."""
        return self.uses.get(engine.engine, EngineUse())


class SeenNodes(Protocol):
    """Who knows the nodes."""

    def node_names(self) -> Iterable[NodeId]:
        """All that are known, in no particular order."""
        ...

    def seen_node(self, node: NodeId) -> SeenNode | None:
        """One of them; None when it is not known (any more)."""
        ...


def shown_engine(
    engine: EngineState, in_flight: Mapping[EngineAdapter, int], since_told_ms: float
) -> EngineState:
    """An engine for people to see: with the requests of gateways beside those that its agent tells
    of, and as old as its node's last word. Beats bring figures; all else was told `since_told_ms`
    before."""
    since_ms = max(0.0, since_told_ms)
    residents = (
        replace(
            resident,
            in_flight=in_flight.get(resident.adapter, 0) + (resident.in_flight or 0),
            age_ms=resident.age_ms + since_ms,
            remaining_ms=max(0.0, resident.remaining_ms - since_ms),
        )
        for resident in engine.residents
    )
    failures = (
        replace(failure, retry_in_ms=failure.retry_in_ms - since_ms)
        for failure in engine.failures
        if failure.retry_in_ms > since_ms
    )
    return replace(engine, residents=tuple(residents), failures=tuple(failures))


def node_json(seen: SeenNode) -> bytes:
    """A NodeView."""
    return _shape(seen).model_dump_json().encode()


def node_view(nodes: SeenNodes, name: NodeId) -> NodeView | None:
    """A node as people see it; None when it is not known (any more)."""
    seen = nodes.seen_node(name)
    return _shape(seen) if seen is not None else None


def _shape(seen: SeenNode) -> NodeView:
    return NodeView.of(
        seen.state, liveness=seen.liveness, staleness_ms=seen.heard_age_ms, uses=seen.uses
    )
