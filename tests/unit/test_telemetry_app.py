"""The telemetry app on fakes: from the bus to the cache, through loss of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.owner import task_owner

from axiom_common.drivers.inbox import PENDING_MAX, Delivery
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeRegistry
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire.schemas import (
    NodeRecord,
    NodeReport,
    ReportKind,
    ResyncRequest,
    decode,
    encode,
)
from axiom_common.wire.subjects import node_report, node_resync
from axiom_telemetry.app import SHARE_TICK_MS, TelemetryApp
from axiom_telemetry.settings import TelemetrySettings
from axiom_telemetry.state import RECORD_TTL_MS, REFRESH_MS

REGION = RegionId("local")
A, B = NodeId("a"), NodeId("b")
BEAT_MS = 250.0
FORGOTTEN = "axiom_telemetry_nodes_forgotten_total"


class Region:
    """One telemetry app, a clock, and nodes that can speak."""

    def __init__(
        self,
        app: TelemetryApp,
        bus: FakeBus,
        agents: FakeBus,
        cache: FakeShadowCache,
        clock: FakeClock,
        registry: FakeRegistry,
    ) -> None:
        self.app, self.bus, self.agents, self.cache, self.clock = app, bus, agents, cache, clock
        self.registry = registry
        self.seq: dict[NodeId, int] = {}

    async def tell(
        self, node: NodeId, *, seq: int | None = None, kind: ReportKind = ReportKind.FULL
    ) -> None:
        """One report of a node; the next number unless `seq` is given."""
        self.seq[node] = seq or self.seq.get(node, 0) + 1
        report = NodeReport(
            kind=kind, region=REGION, node=node, incarnation=1, seq=self.seq[node], engines=()
        )
        await self.agents.publish(node_report(REGION, node), encode(report))

    async def beat(self, *nodes: NodeId, beats: int = 1) -> None:
        """The nodes tell their state, and time passes."""
        for _ in range(beats):
            for node in nodes:
                await self.tell(node)
            await self.clock.advance(BEAT_MS)

    async def stored(self) -> dict[NodeId, int]:
        """Node -> seq in the cache."""
        states: list[NodeState] = [
            decode(record, NodeRecord).state for record in await self.cache.read_all()
        ]
        return {state.node: state.seq for state in states}

    async def current(self, nodes: list[NodeId]) -> None:
        """All are stored as they were told within the last refresh."""
        stored = await self.stored()
        assert all(self.seq[node] - stored[node] <= REFRESH_MS / BEAT_MS for node in nodes)


@asynccontextmanager
async def region(
    *, pending_max: int = PENDING_MAX, shards: int = 1, registry_up: bool = True
) -> AsyncIterator[Region]:
    async with task_owner() as owner:
        clock, hub = FakeClock(), FakeHub()
        bus, agents = FakeBus(owner, hub, pending_max=pending_max), FakeBus(owner, hub)
        cache = FakeShadowCache(REGION, clock, shards=shards)
        registry = FakeRegistry(owner, clock)
        if not registry_up:
            registry.disconnect()
        app = TelemetryApp(
            TelemetrySettings(),
            instance="telemetry",
            bus=bus,
            registry=registry,
            cache=cache,
            clock=clock,
        )
        await app.start(owner)
        await clock.advance(SHARE_TICK_MS)
        yield Region(app, bus, agents, cache, clock, registry)
        await app.stop()


async def test_reports_reach_the_cache() -> None:
    async with region() as here:
        await here.beat(A, B, beats=3)
        assert await here.stored() == {A: 3, B: 3}
        assert here.app.readiness().degraded == ()
        assert here.app.readiness().facts["nodes"] == 2


async def test_a_silent_node_leaves_and_its_record_expires() -> None:
    async with region() as here:
        await here.beat(A, B)
        left = await here.stored()
        beats = int(RECORD_TTL_MS / BEAT_MS)
        await here.beat(B, beats=beats // 2)
        assert here.app.readiness().facts["nodes"] == 1
        assert (await here.stored())[A] == left[A]
        await here.beat(B, beats=beats // 2 + 1)
        assert set(await here.stored()) == {B}


async def test_nothing_that_a_gone_node_said_brings_it_back() -> None:
    async with region() as here:
        await here.beat(A, B, beats=3)
        await here.beat(B, beats=int(RECORD_TTL_MS / BEAT_MS) + 1)
        assert set(await here.stored()) == {B}
        await here.tell(A, seq=3)
        await here.beat(B, beats=10)
        assert set(await here.stored()) == {B}
        assert here.app.readiness().facts["nodes"] == 1
        await here.tell(A, seq=4)
        await here.beat(B, beats=10)
        assert set(await here.stored()) == {A, B}


async def test_a_cache_that_lost_all_is_filled_by_what_is_known() -> None:
    async with region() as here:
        await here.beat(A, B)
        here.cache.away = True
        await here.beat(A, B, beats=10)
        assert here.app.readiness().degraded == ("redis-away",)
        assert here.app.readiness().facts["pending_writes"] == 2
        here.cache.wipe()
        here.cache.away = False
        await here.clock.advance(1_000)
        assert await here.stored() == {A: 11, B: 11}
        assert here.app.readiness().degraded == ()


async def test_one_shard_that_is_away_holds_no_other_up() -> None:
    async with region(shards=2) as here:
        await here.beat(A, B)
        here.cache.away_shards = {here.cache.shard(A)}
        await here.beat(A, B, beats=20)
        assert here.app.readiness().degraded == ("redis-away",)
        here.cache.away_shards = set()
        assert await here.stored() == {A: 1, B: 21}
        await here.clock.advance(300)
        assert await here.stored() == {A: 21, B: 21}
        await here.clock.advance(3_000)
        assert here.app.readiness().degraded == ()


async def test_a_loss_that_nothing_tells_of_is_made_good() -> None:
    async with region() as here:
        await here.beat(A)
        here.cache.wipe()
        await here.clock.advance(REFRESH_MS)
        assert await here.stored() == {A: 1}


async def test_an_empty_region_finds_out_that_the_cache_is_away_and_back() -> None:
    async with region() as here:
        here.cache.away = True
        await here.clock.advance(2_000)
        assert here.app.readiness().degraded == ("redis-away",)
        here.cache.away = False
        await here.clock.advance(1_000)
        assert here.app.readiness().degraded == ()


async def test_while_the_bus_is_away_all_stay_and_are_asked_after() -> None:
    async with region() as here:
        asked: list[tuple[str, str]] = []

        async def resync(subject: str, payload: bytes) -> None:
            asked.append((subject, decode(payload, ResyncRequest).asker))

        await here.agents.subscribe("axiom.v1.node.resync.>", resync)
        await here.beat(A, B)
        here.bus.disconnect()
        await here.beat(A, B, beats=80)
        assert here.app.readiness().degraded == ("nats-away", "liveness-frozen")
        assert here.app.readiness().facts["nodes"] == 2
        assert asked == []
        await here.bus.reconnect()
        await here.clock.advance(BEAT_MS)
        assert sorted(asked) == [
            (node_resync(REGION, A), "telemetry"),
            (node_resync(REGION, B), "telemetry"),
        ]
        await here.beat(A, B, beats=int(REFRESH_MS / BEAT_MS))
        await here.current([A, B])


async def test_after_a_reconnect_a_thousand_nodes_do_not_answer_at_once() -> None:
    nodes = [NodeId(f"n{n}") for n in range(1_000)]
    async with region() as here:
        asked: list[tuple[float, str]] = []

        async def resync(subject: str, payload: bytes) -> None:
            asked.append((here.clock.now_ms(), subject))

        await here.agents.subscribe("axiom.v1.node.resync.>", resync)
        for node in nodes:
            await here.tell(node)
        await here.clock.advance(BEAT_MS)
        here.bus.disconnect()
        await here.bus.reconnect()
        began_ms = here.clock.now_ms()
        await here.clock.advance(1_200)
        assert {subject for _, subject in asked} == {node_resync(REGION, node) for node in nodes}
        tenths = Counter(int((at_ms - began_ms) // 100) for at_ms, _ in asked)
        assert max(tenths.values()) <= 120


async def test_a_gap_holds_the_old_state_until_a_full_one() -> None:
    async with region() as here:
        await here.tell(A, seq=1)
        await here.tell(A, seq=3, kind=ReportKind.DELTA)
        await here.clock.advance(BEAT_MS)
        assert await here.stored() == {A: 1}
        await here.tell(A, seq=4)
        await here.clock.advance(BEAT_MS)
        assert await here.stored() == {A: 4}


async def test_messages_lost_and_messages_that_do_not_parse_are_counted() -> None:
    async with region(pending_max=1) as here:

        def counted(name: str) -> float | None:
            return here.app.metrics.registry.get_sample_value(f"axiom_telemetry_{name}_total")

        hub = here.agents._hub
        for number in range(3):
            hub.deliver(Delivery(node_report(REGION, A), b"%d" % number))
        await here.clock.advance(1_000)
        assert (counted("dropped_messages"), counted("invalid_messages")) == (2, 1)


async def test_two_instances_share_the_nodes_and_each_takes_over_from_the_other() -> None:
    nodes = [NodeId(f"n{n}") for n in range(20)]
    async with region() as here, task_owner() as owner:
        other = TelemetryApp(
            TelemetrySettings(),
            instance="other",
            bus=FakeBus(owner, here.agents._hub),
            registry=here.registry,
            cache=here.cache,
            clock=here.clock,
        )
        await here.beat(*nodes, beats=4)
        await other.start(owner)
        await here.beat(*nodes, beats=20)
        counts = [app.readiness().facts["nodes"] for app in (here.app, other)]
        assert sum(counts) == len(nodes)
        assert min(counts) > 0
        assert here.app.readiness().facts["members"] == ["other", "telemetry"]
        await here.current(nodes)
        here.registry.disconnect()
        await here.beat(*nodes, beats=40)
        assert [app.readiness().facts["nodes"] for app in (here.app, other)] == counts
        await here.current(nodes)
        here.registry.reconnect()
        await here.beat(*nodes, beats=4)
        await other.stop()
        await here.beat(*nodes, beats=4)
        assert here.app.readiness().facts["nodes"] == len(nodes)
        await here.beat(*nodes, beats=8)
        await here.current(nodes)
        assert here.app.metrics.registry.get_sample_value(FORGOTTEN) == 0


async def test_without_a_registry_one_instance_owns_all() -> None:
    async with region(registry_up=False) as here:
        await here.clock.advance(1_000)
        assert here.app.readiness().degraded == ("registry-away",)
        await here.beat(A, B)
        assert set(await here.stored()) == {A, B}


async def test_last_words_free_a_node_at_once() -> None:
    async with region() as here:
        await here.beat(A, B)
        await here.tell(A, kind=ReportKind.LEFT)
        await here.clock.advance(BEAT_MS)
        assert here.app.readiness().facts["nodes"] == 1
        assert (await here.stored())[A] == 2
