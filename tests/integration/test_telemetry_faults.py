"""The telemetry process between a real NATS and a real Valkey, each of the three killed.

All tests share the three: whatever a test does to them, the next begins by finding all well again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from tests.eventually import eventually, succeeds
from tests.owner import task_owner
from tests.servers import ChildServer, running
from tests.service_process import service_process
from tests.telemetry_parts import Telemetry

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsBucket, NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.wire.keys import incarnation_bucket
from axiom_common.wire.schemas import NodeRecord, NodeReport, ReportKind, decode, encode
from axiom_common.wire.subjects import node_report, node_resync

pytestmark = pytest.mark.faults

REGION = RegionId("faults")
BEAT_S = 0.1
NODES = 5
FORGOTTEN = "axiom_telemetry_nodes_forgotten_total"
INVALID = "axiom_telemetry_invalid_messages_total"


@dataclass
class Fleet:
    """Agents of some nodes that tell their whole state on a beat, as far as the bus lets them."""

    bus: NatsBus
    incarnations: NatsBucket
    cache: RedisShadowCache
    telemetry: Telemetry
    states: dict[NodeId, NodeState] = field(default_factory=dict)

    async def beat(self) -> None:
        while True:
            for node in self.states:
                await self.tell(node)
            await asyncio.sleep(BEAT_S)

    async def start(self, node: NodeId) -> None:
        """Start a node's agent, anew where it runs."""
        self.states[node] = _node(node, incarnation=await self.incarnations.put(node, b""))

    async def tell(self, node: NodeId, *, running: int | None = None) -> None:
        """One more full report, with a change where `running` is given."""
        state = self.states[node]
        engines = state.engines
        if running is not None:
            engines = tuple(replace(e, running=running) for e in engines)
        state = replace(state, seq=state.seq + 1, engines=engines)
        self.states[node] = state
        with contextlib.suppress(UnavailableError):
            await self.bus.publish(node_report(REGION, node), encode(_full(state)))

    async def stored(self) -> dict[NodeId, NodeState]:
        """What gateways would read; nothing while the cache is away."""
        try:
            records = [decode(r, NodeRecord) for r in await self.cache.read_all()]
        except UnavailableError:
            return {}
        return {record.state.node: record.state for record in records}

    async def current(self, *, within_s: float = 5.0) -> None:
        """Wait until all nodes are stored as they are told from now on."""
        begun = dict(self.states)
        async with asyncio.timeout(within_s):
            while True:
                stored = await self.stored()
                if all(
                    node in stored
                    and stored[node].incarnation == state.incarnation
                    and stored[node].seq > state.seq
                    for node, state in begun.items()
                ):
                    return
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def telemetry(
    module_nats: ChildServer, module_valkey: ChildServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Telemetry]:
    settings = {
        "region": REGION,
        "nats_url": module_nats.url,
        "redis_url": module_valkey.url,
    }
    process = service_process("telemetry", tmp_path_factory.mktemp("telemetry"), settings)
    with running(process) as server:
        yield Telemetry(server)


@pytest.fixture
async def fleet(
    module_nats: ChildServer, module_valkey: ChildServer, telemetry: Telemetry
) -> AsyncIterator[Fleet]:
    for server in (module_nats, module_valkey, telemetry.server):
        server.resume()
        server.start()
    async with task_owner() as owner:
        connection = NatsConnection(module_nats.url, name="agents", clock=SystemClock())
        assert await connection.start(owner)
        bus, cache = NatsBus(connection), RedisShadowCache(module_valkey.url, REGION)
        bucket = await NatsRegistry(connection).bucket(incarnation_bucket(REGION))
        fleet = Fleet(bus, bucket, cache, telemetry)
        for n in range(NODES):
            await fleet.start(NodeId(f"n{n}"))
        owner.create_task(fleet.beat(), name="beat")
        await fleet.current()
        yield fleet
        await bus.close()
        await connection.close()
        await cache.close()


async def test_the_cache_follows_the_nodes(fleet: Fleet) -> None:
    node = NodeId("n0")
    await fleet.tell(node, running=7)
    async with asyncio.timeout(2):
        while (await fleet.stored())[node].engines[0].running != 7:
            await asyncio.sleep(0.01)
    await fleet.telemetry.degraded([])
    ready = await fleet.telemetry.readyz()
    assert (ready["ready"], ready["nodes"]) == (True, NODES)


async def test_a_killed_valkey_is_full_again_soon_after_its_return(
    fleet: Fleet, module_valkey: ChildServer
) -> None:
    module_valkey.kill()
    await fleet.telemetry.degraded(["redis-away"])
    assert await fleet.stored() == {}
    module_valkey.start()
    await fleet.current()
    await fleet.telemetry.degraded([])


async def test_a_killed_valkey_gets_back_what_is_known_without_new_reports(
    fleet: Fleet, module_valkey: ChildServer, module_nats: ChildServer
) -> None:
    module_nats.kill()
    await fleet.telemetry.degraded(["nats-away", "registry-away", "liveness-frozen"])
    known = await fleet.stored()
    module_valkey.kill()
    module_valkey.start()
    async with asyncio.timeout(5):
        while await fleet.stored() != known:
            await asyncio.sleep(0.02)


async def test_a_killed_nats_is_heard_again_and_nobody_is_forgotten(
    fleet: Fleet, module_nats: ChildServer
) -> None:
    forgotten = await fleet.telemetry.metric(FORGOTTEN)
    module_nats.kill()
    await fleet.telemetry.degraded(["nats-away", "registry-away", "liveness-frozen"])
    module_nats.start()
    await fleet.current()
    assert await fleet.telemetry.metric(FORGOTTEN) == forgotten


async def test_an_agent_that_restarts_after_nats_lost_its_disk_is_heard(
    fleet: Fleet, module_nats: ChildServer
) -> None:
    module_nats.kill()
    module_nats.wipe()
    module_nats.start()
    async with asyncio.timeout(5):
        await succeeds(lambda: fleet.start(NodeId("n0")), despite=UnavailableError)
        await fleet.current()


async def test_a_killed_telemetry_goes_on_where_it_was(fleet: Fleet) -> None:
    fleet.telemetry.server.kill()
    before = await fleet.stored()
    assert before.keys() >= fleet.states.keys()
    fleet.telemetry.server.start()
    await fleet.current()


async def test_a_paused_valkey_costs_nothing_but_time(
    fleet: Fleet, module_valkey: ChildServer
) -> None:
    module_valkey.pause()
    await fleet.telemetry.degraded(["redis-away"])
    assert (await fleet.telemetry.readyz())["pending_writes"] <= NODES
    module_valkey.resume()
    await fleet.current()


async def test_bad_reports_are_counted_and_dropped(fleet: Fleet) -> None:
    subject = node_report(REGION, NodeId("bad"))
    before = await fleet.telemetry.metric(INVALID)
    stranger = _node(NodeId("stranger"))
    bad = [
        b"",
        b"\xff" * 64,
        b"{}",
        encode(NodeRecord(state=stranger)),
        encode(_full(stranger)),
        encode(_full(replace(stranger, region=RegionId("elsewhere")))),
        b"\x81" * 20_000,
    ]
    for payload in bad:
        await fleet.bus.publish(subject, payload)
    async with asyncio.timeout(5):
        while await fleet.telemetry.metric(INVALID) < before + len(bad):
            await asyncio.sleep(0.02)
    assert await fleet.telemetry.metric(INVALID) == before + len(bad)
    await fleet.current()
    log = fleet.telemetry.server.log_path.read_text()
    assert [json.loads(line)["event"] for line in log.splitlines()].count("bad report") == 1


async def test_a_gap_leads_to_a_request_for_the_full_state(fleet: Fleet) -> None:
    node, asked = NodeId("quiet"), []

    async def resync(subject: str, payload: bytes) -> None:
        asked.append(subject)

    await fleet.bus.subscribe(node_resync(REGION, node), resync)
    state = _node(node)
    await fleet.bus.publish(node_report(REGION, node), encode(_full(state)))
    for seq in (3, 4, 5, 6):
        change = NodeReport(
            kind=ReportKind.DELTA,
            region=REGION,
            node=node,
            incarnation=1,
            seq=seq,
            engines=state.engines,
        )
        await fleet.bus.publish(node_report(REGION, node), encode(change))
    await eventually(lambda: asked)
    assert asked == [node_resync(REGION, node)]


async def test_sigterm_ends_it_in_order(
    module_nats: ChildServer, module_valkey: ChildServer
) -> None:
    flags = ["--nats-url", module_nats.url, "--redis-url", module_valkey.url, "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "axiom_telemetry", *flags, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(30):
        listening = json.loads(await process.stderr.readline())
        port = listening["port"]
        url = f"http://127.0.0.1:{port}/healthz"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            assert answer.status == 200
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(15):
        _, errors = await process.communicate()
    levels = {json.loads(line)["level"] for line in errors.splitlines()}
    assert process.returncode == 0
    assert levels <= {"info"}
    assert listening["event"] == "listening"


async def test_it_starts_before_its_servers(
    fleet: Fleet, module_nats: ChildServer, module_valkey: ChildServer
) -> None:
    for server in (fleet.telemetry.server, module_nats, module_valkey):
        server.kill()
    fleet.telemetry.server.start()
    await fleet.telemetry.degraded(["nats-away", "redis-away", "registry-away", "liveness-frozen"])
    module_nats.start()
    module_valkey.start()
    await fleet.current()


def _node(node: NodeId, *, incarnation: int = 1) -> NodeState:
    engine = EngineState(
        engine=EngineId(f"{node}.e"),
        url="http://engine",
        base_model="base",
        served_name="base",
        status=EngineStatus.READY,
    )
    return NodeState(region=REGION, node=node, incarnation=incarnation, seq=1, engines=(engine,))


def _full(state: NodeState) -> NodeReport:
    return NodeReport(
        kind=ReportKind.FULL,
        region=state.region,
        node=state.node,
        incarnation=state.incarnation,
        seq=state.seq,
        engines=state.engines,
    )
