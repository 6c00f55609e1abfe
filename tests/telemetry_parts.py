"""The telemetry process, and a region around it: a crowd of nodes, and a gateway that sees them."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from tests.owner import task_owner
from tests.servers import ChildServer

from axiom_cli.stack.servers import ServerKind
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.wire.schemas import NodeRecord, decode
from axiom_gateway.app import GatewayApp
from axiom_gateway.settings import GatewaySettings
from axiom_sim.crowd import BEAT_MS, Crowd
from axiom_telemetry.state import REFRESH_MS

BEATS_BEHIND_MAX = REFRESH_MS / BEAT_MS + 8
"""How far a record may be behind: a refresh, and what a busy machine adds."""
POLL_S = 0.02

Connect = Callable[[str], NatsConnection]
"""Makes a connection with this name, not started yet."""


def telemetry_server(directory: Path, **settings: str) -> ChildServer:
    """The process as a child that is ready when /healthz answers; `settings` become flags."""

    def command(data_dir: Path, port: int) -> list[str]:
        # YAML takes JSON, and a file holds what flags don't have.
        config = data_dir / "telemetry.yaml"
        config.write_text(json.dumps(settings))
        flags = ["--config", str(config), "--port", str(port)]
        return [sys.executable, "-m", "axiom_telemetry", *flags]

    def serving(connection: socket.socket) -> bool:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return b" 200 " in connection.recv(64)

    kind = ServerKind(name="telemetry", scheme="http", command=command, serving=serving)
    return ChildServer(kind, directory)


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
        async with asyncio.timeout(10):
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
    bus: NatsBus
    registry: NatsRegistry
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
        """What the gateway shows."""
        return {seen.state.node: seen.state for seen in self.gateway.feed.seen_nodes()}

    async def true(self, *, within_s: float = 5.0, view: bool = True) -> None:
        """Wait until the cache, and the gateway's `view`, are what the nodes are."""
        began = time.monotonic()
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


@asynccontextmanager
async def seen_region(
    region: RegionId, connect: Connect, redis_url: str, *, nodes: int, incarnation: int = 1
) -> AsyncIterator[SeenRegion]:
    """Nodes `n0`, ... tell, and a gateway sees them; who writes the cache is the caller's."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        cache = RedisShadowCache(redis_url, region)
        stack.push_async_callback(cache.close)
        owner = await stack.enter_async_context(task_owner())
        told, heard = connect("crowd"), connect("gateway.gw")
        buses = []
        for connection in (told, heard):
            assert await connection.start(owner)
            bus = NatsBus(connection)
            stack.push_async_callback(connection.close)
            stack.push_async_callback(bus.close)
            buses.append(bus)
        registry = NatsRegistry(heard)
        app = GatewayApp(
            GatewaySettings(region=region, gateway="gw"),
            bus=buses[1],
            registry=registry,
            cache=cache,
            clock=clock,
            nonce="gw",
        )
        crowd = Crowd(buses[0], clock, region)
        await crowd.start(owner)
        await app.start(owner)
        stack.push_async_callback(app.stop)
        for number in range(nodes):
            await crowd.join(NodeId(f"n{number}"), incarnation=incarnation, engines=2)
        yield SeenRegion(region, buses[0], registry, crowd, cache, app)
