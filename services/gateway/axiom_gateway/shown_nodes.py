"""What this gateway adds to what agents tell of their nodes, for people to see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from axiom_common.model.engine import EngineState, NodeState
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.policy.fleet import Fleet
from axiom_common.ports.clock import Clock
from axiom_common.wire.views import EngineUse
from axiom_gateway.engine_facts import EngineFacts
from axiom_gateway.others_load import OthersLoad
from axiom_gateway.seen import shown_engine


class ShownNodes:
    """Reads what others write; holds nothing."""

    def __init__(
        self,
        clock: Clock,
        fleet: Fleet,
        facts: Mapping[EngineId, EngineFacts],
        others: OthersLoad,
    ) -> None:
        self._clock = clock
        self._fleet = fleet
        self._facts = facts
        self._others = others

    def node(self, node: NodeState) -> NodeState:
        """The node with the requests that gateways have in flight there, beside those that its
        agent tells of."""
        return replace(node, engines=tuple(self._engine(engine) for engine in node.engines))

    def uses(self, node: NodeState) -> dict[EngineId, EngineUse]:
        """What gateways know of its engines."""
        return {engine.engine: self.use(engine.engine) for engine in node.engines}

    def use(self, engine: EngineId) -> EngineUse:
        """What gateways know of one engine; of one that is not known here only that."""
        in_flight = self._in_flight(engine).total()
        facts = self._facts.get(engine)
        if facts is None:
            return EngineUse(in_flight=in_flight)
        return EngineUse(
            order=facts.order,
            in_flight=in_flight,
            idle=facts.idle(in_flight, self._clock.now_ms()),
        )

    def _engine(self, engine: EngineState) -> EngineState:
        facts = self._facts.get(engine.engine)
        since_told_ms = facts.reported_ms - facts.told_ms if facts else 0.0
        return shown_engine(engine, self._in_flight(engine.engine), since_told_ms)

    def _in_flight(self, engine: EngineId) -> Counter[EngineAdapter]:
        counts = Counter(self._fleet.in_flight_on(engine))
        counts.update(self._others.of_peers(engine))
        return counts
