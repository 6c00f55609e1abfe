"""A gateway's feed of facts with one engine in view, on any bus, and what its agent tells."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable

from tests.engine_parts import engine_state
from tests.fact_parts import Message
from tests.owner import TestOwner

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import EngineId, GatewayId, NodeId, RegionId, engine_id, node_of
from axiom_common.model.prefix import WITHDRAWN
from axiom_common.policy.profile import BUILT_IN
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.state.prefix_index import ROW
from axiom_common.wire.schemas import FactKind, FactReport
from axiom_gateway.facts_feed import FactsFeed
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.prefixes import Prefixes, in_background
from axiom_gateway.state import GatewayState

REGION, NODE = RegionId("r"), NodeId("n")
ENGINE = engine_id(NODE, "e")
BASE_MODEL, REVISION = "base", "9c11"
TTL_MS = 10_000.0
Run = Callable[[Callable[[], bool | None]], Awaitable[bool | None]]


class FactsGateway:
    """The feed, and what it feeds."""

    def __init__(
        self,
        owner: TestOwner,
        bus: Bus,
        clock: Clock,
        *,
        region: RegionId = REGION,
        engine: EngineId = ENGINE,
        revision: str = REVISION,
        run: Run = in_background,
        entries_max: int = 256 * 1024,
    ) -> None:
        self.owner = owner
        self.region = region
        self.engine = engine
        self.metrics = GatewayMetrics()
        self.state = GatewayState(clock, BUILT_IN)
        self.prefixes = Prefixes(
            clock,
            self.state,
            {BASE_MODEL: revision, "refused": None}.get,
            lambda: 0.5,
            entries_max=entries_max,
            predicted_ttl_ms=TTL_MS,
            run=run,
        )
        self.state.before_remove = self.prefixes.removed
        self.feed = FactsFeed(
            self.prefixes,
            bus,
            clock,
            self.metrics,
            Log("test", clock),
            region=region,
            gateway=GatewayId("gw"),
        )

    async def start(self) -> None:
        self.see(self.engine)
        await self.feed.start()
        self.owner.create_task(self.feed.run(), name="facts")

    def see(self, *engines: EngineId, base_model: str = BASE_MODEL) -> None:
        """The node is told whole, with these engines and no others."""
        states = tuple(engine_state(engine, base_model=base_model) for engine in engines)
        node = node_of(self.engine)
        told = NodeState(region=self.region, node=node, incarnation=1, seq=1, engines=states)
        self.state.node_changed(told, heard=True)

    def holders(self, link: int, base_model: str = BASE_MODEL) -> set[int]:
        """Numbers of the engines that hold a link in any tier."""
        _, in_any = self.prefixes.index_of(base_model).lookup(WITHDRAWN.pack(link))
        return {number for number, _, _ in ROW.iter_unpack(in_any)}

    def holds(self, *links: int) -> list[int]:
        """Which of these links the engine holds."""
        number = self.state.number(self.engine)
        return [link for link in links if number in self.holders(link)]

    def credit(self, links: array[int]) -> int:
        """Tokens of a prompt with these links that the engine holds in HBM."""
        number = self.state.number(self.engine)
        in_hbm, _ = self.prefixes.index_of(BASE_MODEL).lookup(links)
        return next((t for n, _, t in ROW.iter_unpack(in_hbm) if n == number), 0)

    def counted(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"axiom_gateway_{metric}", labels) or 0.0


def report_of(
    message: Message,
    *,
    region: RegionId = REGION,
    engine: EngineId = ENGINE,
    revision: str = REVISION,
) -> FactReport:
    """A message as an agent sends it."""
    return FactReport(
        kind=FactKind(message.kind),
        region=region,
        node=NODE,
        incarnation=message.incarnation,
        engine=engine,
        revision=revision,
        seq=message.seq,
        part=message.part,
        parts=message.parts,
        cleared=message.changes.cleared,
        hbm=message.changes.hbm,
        any_tier=message.changes.any_tier,
    )
