"""`axiom bench churn`: nodes come and go, and the memory that they took comes back.

In each round all nodes join, beat for a while, and go: in order, or without a word. A round ends
once telemetry and the gateway have forgotten all of them and their records in Redis have expired.
The first round shows how much memory the parts keep for so many nodes; what they hold after any
later one may not be much more. Agents are a crowd in this process, all else is as users run it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from redis.asyncio import Redis
from rich.table import Table

from axiom_cli.admin import Admin, admin_of
from axiom_cli.bench.telemetry_region import (
    EXTENSION,
    GATEWAY,
    REDIS,
    REGION,
    TELEMETRY,
    TelemetryRegion,
    telemetry_region,
)
from axiom_cli.machine import commit, machine
from axiom_cli.output import print_figures, progress_console, table_console
from axiom_cli.stack.servers import HOST, NATS
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.wire import keys
from axiom_sim.crowd import Crowd

STAY_S = 5.0
SEEN_WITHIN_S = 120.0
GONE_WITHIN_S = 300.0
"""Nodes that fell silent together are forgotten after two minutes, their records after 30 s."""
POLL_S = 0.5
ALLOWED = 1.10
"""How much more than after the first round a part may hold after the last."""
ENGINES = 2
PARTS = (TELEMETRY, GATEWAY, REDIS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnOptions:
    """`silent`: nodes go without a word. `same_names`: the same nodes come back each round."""

    nodes: int
    rounds: int
    silent: bool
    same_names: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes held by each of `PARTS`, while the nodes were there and after they had gone."""

    full: dict[str, int]
    empty: dict[str, int]


async def bench_churn(options: ChurnOptions) -> None:
    """Measure and print. UnavailableError when nodes were not seen, or not forgotten, in time."""
    console = progress_console()
    folder = Path(tempfile.mkdtemp(prefix="axiom-bench-"))
    levels: list[Level] = []
    async with (
        telemetry_region(folder, nodes=0, agents=0, probes=0, source=EXTENSION) as region,
        _seen(region) as seen,
        _crowd(region) as crowd,
    ):
        for number in range(options.rounds):
            levels.append(await _round(options, number, crowd, seen))
            held = {part: round(b / 1e6, 1) for part, b in levels[-1].empty.items()}
            console.print(f"round {number + 1}: {held} MB", style="dim")
            region.check()
    shutil.rmtree(folder)
    figures = figures_of(options, levels)
    if options.as_json:
        print_figures(figures)
    else:
        table_console().print(_table(figures))


async def _round(options: ChurnOptions, number: int, crowd: Crowd, seen: _Seen) -> Level:
    first = 0 if options.same_names else number * options.nodes
    nodes = [NodeId(f"node-{first + n}") for n in range(options.nodes)]
    for node in nodes:
        await crowd.join(node, incarnation=number + 1, engines=ENGINES)
        await asyncio.sleep(0.001)
    await seen.until(options.nodes, within_s=SEEN_WITHIN_S)
    await asyncio.sleep(STAY_S)
    full = await seen.bytes_held()
    for node in nodes:
        if options.silent:
            crowd.vanish(node)
        else:
            await crowd.leave(node)
    await seen.until(0, within_s=GONE_WITHIN_S)
    return Level(full, await seen.bytes_held())


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the parts say that they hold."""

    region: TelemetryRegion
    admin: Admin
    http: aiohttp.ClientSession
    redis: Redis

    async def until(self, nodes: int, *, within_s: float) -> None:
        """Wait until telemetry and the gateway know so many nodes, and Redis has their records."""
        deadline = asyncio.get_running_loop().time() + within_s
        while (counts := await self._counts()) != (nodes, nodes, nodes):
            self.region.check()
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"telemetry, gateway and Redis know {counts} of {nodes} nodes"
                )
            await asyncio.sleep(POLL_S)

    async def bytes_held(self) -> dict[str, int]:
        """By part; of Redis what it says that it uses for data and bookkeeping."""
        memory = await self.redis.info("memory")
        resident = self.region.rss_bytes()
        return {
            TELEMETRY: resident[TELEMETRY],
            GATEWAY: resident[GATEWAY],
            REDIS: int(memory["used_memory"]),
        }

    async def _counts(self) -> tuple[int, int, int]:
        url = f"http://{HOST}:{self.region.ports[TELEMETRY]}/readyz"
        async with self.http.get(url) as answer:
            telemetry = (await answer.json())["nodes"]
        status = await self.admin.status()
        gateway = sum(region.nodes for region in status.regions.values())
        pattern = keys.shadow_record(RegionId(REGION), NodeId("*"))
        records = [key async for key in self.redis.scan_iter(match=pattern, count=1_000)]
        return telemetry, gateway, len(records)


@contextlib.asynccontextmanager
async def _seen(region: TelemetryRegion) -> AsyncIterator[_Seen]:
    redis = Redis.from_url(region.redis_url)
    try:
        async with admin_of(region.gateway) as admin, aiohttp.ClientSession() as http:
            yield _Seen(region, admin, http, redis)
    finally:
        await redis.aclose()


@contextlib.asynccontextmanager
async def _crowd(region: TelemetryRegion) -> AsyncIterator[Crowd]:
    clock = SystemClock()
    url = NATS.url(region.ports[NATS.name])
    connection = NatsConnection(url, name="crowd", clock=clock)
    async with asyncio.TaskGroup() as group:
        await connection.start(group)
        bus = NatsBus(connection)
        crowd = Crowd(bus, clock, RegionId(REGION), lively=True)
        tasks = await crowd.start(group)
        try:
            yield crowd
        finally:
            for task in tasks:
                task.cancel()
            await bus.close()
            await connection.close()


def figures_of(options: ChurnOptions, levels: list[Level]) -> dict[str, Any]:
    """What is printed with --json."""
    first, last = levels[0].empty, levels[-1].empty
    growth = {part: last[part] / first[part] for part in PARTS}
    return {
        "nodes": options.nodes,
        "rounds": options.rounds,
        "go": "silent" if options.silent else "in order",
        "names": "the same" if options.same_names else "new each round",
        "bytes_with_nodes": [level.full for level in levels],
        "bytes_without": [level.empty for level in levels],
        "last_to_first": growth,
        "within_allowed": all(share <= ALLOWED for share in growth.values()),
        "machine": machine(),
        "commit": commit(),
    }


def _table(figures: dict[str, Any]) -> Table:
    table = Table(title=f"{figures['nodes']} nodes come and go {figures['rounds']} times, MB")
    for name in ("part", "with nodes", "after round 1", "after the last", "last to first"):
        table.add_column(name)
    without = figures["bytes_without"]
    for part in PARTS:
        most = max(level[part] for level in figures["bytes_with_nodes"])
        held = (most, without[0][part], without[-1][part])
        share = f"{figures['last_to_first'][part]:.3f}"
        table.add_row(part, *(f"{count / 1e6:.1f}" for count in held), share)
    return table
