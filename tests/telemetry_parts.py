"""The telemetry process, and a region around it: a crowd of nodes, and a gateway that sees them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from tests.owner import task_owner
from tests.servers import ChildServer, running
from tests.service_process import service_process
from tests.watched_nodes import all_seen

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.bus import Handler
from axiom_common.runtime.api_secret import new_secret
from axiom_common.testing.journal import FakeJournal
from axiom_common.wire.reports import BEAT_MS
from axiom_common.wire.schemas import NodeRecord, decode
from axiom_gateway.app import GatewayApp
from axiom_gateway.settings import GatewaySettings
from axiom_sim.crowd import Crowd, CrowdBus
from axiom_telemetry.state import REFRESH_MS

BEATS_BEHIND_MAX = REFRESH_MS / BEAT_MS + 8
"""How far a record may be behind: a refresh, and what a busy machine adds."""
POLL_S = 0.02
RECOVERY_S = 5.0
"""Within this the view is the truth again after any fault."""
ELECTION_S = 10.0
"""The same where a cluster has to elect."""


class Telemetry:
    """The process, and what it says of itself."""

    def __init__(self, server: ChildServer) -> None:
        self.server = server

    async def readyz(self) -> dict[str, Any]:
        """The body of /readyz."""
        body: dict[str, Any] = json.loads(await self._get("/readyz"))
        return body

    async def degraded(self, expected: list[str]) -> None:
        """Wait until it says that just this is degraded; liveness thaws 5 s after a loss."""
        async with asyncio.timeout(30):
            while (await self.readyz())["degraded"] != expected:
                await asyncio.sleep(POLL_S)

    async def metric(self, sample: str) -> float:
        """The value of a sample of /metrics, 0 when it is not there."""
        lines = (await self._get("/metrics")).splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith(sample + " ")]
        return float(values[0]) if values else 0.0

    async def _get(self, path: str) -> str:
        url = f"{self.server.url}{path}"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            assert answer.status == 200
            return await answer.text()


@dataclass(frozen=True)
class SeenRegion:
    """A crowd that tells, and what comes of it: the shadow cache and a gateway's view."""

    region: RegionId
    bus: CrowdBus
    crowd: Crowd
    cache: RedisShadowCache
    gateway: GatewayApp

    async def stored(self) -> dict[NodeId, NodeState]:
        """What gateways would read; nothing while the cache is away."""
        try:
            records = [decode(r, NodeRecord) for r in await self.cache.read_all()]
        except UnavailableError:
            return {}
        return {record.state.node: record.state for record in records}

    def viewed(self) -> dict[NodeId, NodeState]:
        """What the gateway shows, but for how old it is by now."""
        return {seen.state.node: _ageless(seen.state) for seen in all_seen(self.gateway.feed)}

    async def true(self, *, within_s: float = RECOVERY_S, view: bool = True) -> None:
        """Wait until the cache, and the gateway's `view`, are what the nodes are.

        Where more is to be run than there are cores, it may take so many times longer.
        """
        began = time.monotonic()
        within_s *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        while True:
            wrong = self.wrong_in(await self.stored())
            if view:
                wrong += self.wrong_in(self.viewed())
            took = time.monotonic() - began
            if not wrong:
                return
            assert took < within_s, f"not true within {within_s} s: {wrong[:5]} of {len(wrong)}"
            await asyncio.sleep(POLL_S)

    def wrong_in(self, found: dict[NodeId, NodeState]) -> list[str]:
        """The nodes that are not what they are, each with what is wrong."""
        return [
            f"{node}: {wrong}"
            for node, truth in self.crowd.states.items()
            if (wrong := self._difference(truth, found.get(node)))
        ]

    def _difference(self, truth: NodeState, found: NodeState | None) -> str:
        if found is None:
            return "missing"
        if (found.incarnation, found.engines) != (truth.incarnation, truth.engines):
            return "other"
        if replace(found, seq=0, base=0) != replace(truth, seq=0, base=0):
            return "other than engines"
        behind = truth.seq - found.seq
        return f"{behind} behind" if behind > BEATS_BEHIND_MAX else ""


@contextmanager
def two_telemetries(
    settings: Mapping[str, Any], folders: pytest.TempPathFactory
) -> Iterator[list[Telemetry]]:
    """Two telemetry processes that share a region's nodes."""
    servers = [
        service_process("telemetry", folders.mktemp(name), {**settings, "telemetry": name})
        for name in ("one", "two")
    ]
    with running(servers[0]), running(servers[1]):
        yield [Telemetry(server) for server in servers]


def _ageless(node: NodeState) -> NodeState:
    """A node whose residents are as old as when they were told."""
    return replace(
        node,
        engines=tuple(
            replace(engine, residents=tuple(replace(r, age_ms=0.0) for r in engine.residents))
            for engine in node.engines
        ),
    )


@asynccontextmanager
async def seen_region(
    region: RegionId,
    *,
    told: Sequence[NatsConnection],
    heard: NatsConnection,
    redis_url: str,
    nodes: Sequence[NodeId],
    incarnation: int = 1,
) -> AsyncIterator[SeenRegion]:
    """The nodes tell over `told`, one for each or one for all, and a gateway sees them over
    `heard`; who writes the cache is the caller's."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        cache = RedisShadowCache(redis_url, region)
        stack.push_async_callback(cache.close)
        owner = await stack.enter_async_context(task_owner())
        buses = []
        for connection in (*told, heard):
            assert await connection.start(owner)
            buses.append(NatsBus(connection))
            stack.push_async_callback(connection.close)
            stack.push_async_callback(buses[-1].close)
        *spoken, listened = buses
        agents: CrowdBus = spoken[0] if len(spoken) == 1 else NodeBuses(nodes, spoken)
        app = GatewayApp(
            GatewaySettings(region=region, gateway="gw"),
            bus=listened,
            registry=NatsRegistry(heard),
            cache=cache,
            journal=FakeJournal(),
            clock=clock,
            nonce="gw",
            admin_secret=new_secret(),
        )
        crowd = Crowd(agents, clock, region)
        await crowd.start(owner)
        await app.start(owner)
        stack.push_async_callback(app.stop)
        for node in nodes:
            await crowd.join(node, incarnation=incarnation, engines=2)
        yield SeenRegion(region, agents, crowd, cache, app)


class NodeBuses:
    """The buses of some nodes as one: what is about a node goes over its own."""

    def __init__(self, nodes: Sequence[NodeId], buses: Sequence[CrowdBus]) -> None:
        self._buses = dict(zip(nodes, buses, strict=True))

    @property
    def connected(self) -> bool:
        """Whether all are."""
        return all(bus.connected for bus in self._buses.values())

    async def publish(self, subject: str, payload: bytes) -> None:
        """Over the bus of the subject's node."""
        await self._buses[NodeId(subject.rpartition(".")[2])].publish(subject, payload)

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """For each node on its own bus."""
        about, _, _ = subject.rpartition(".")
        for node, bus in self._buses.items():
            await bus.subscribe(f"{about}.{node}", handler)


async def both_share(telemetries: Sequence[Telemetry], nodes: int) -> None:
    """Wait until each instance knows of the others and has its share of the nodes alone."""
    async with asyncio.timeout(60):
        while True:
            ready = [await telemetry.readyz() for telemetry in telemetries]
            if (
                all(len(body["members"]) == len(telemetries) for body in ready)
                and sum(body["nodes"] for body in ready) == nodes
            ):
                return
            await asyncio.sleep(POLL_S)


async def change_all(seen: SeenRegion, waiting: int) -> None:
    """A change of every node, told at once."""
    for node in list(seen.crowd.states):
        await seen.crowd.change(node, waiting=waiting)
