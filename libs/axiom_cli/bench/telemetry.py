"""`axiom bench telemetry`: from a change in an engine to a gateway's view, and what that costs.

Real agents beside simulated engines tell of real changes; one process publishes for all other
nodes, so that NATS, telemetry, Redis and the gateway have the traffic of the whole region. Changes
are loads of adapters, timed from just before the engine is asked until the gateway's watch says
that the adapter is in a slot. All processes share the first two cores of this one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from axiom_cli.bench import publisher
from axiom_cli.bench.published_nodes import SHAPE
from axiom_cli.bench.telemetry_load import Loads, Requests
from axiom_cli.bench.telemetry_region import (
    AGENT,
    TelemetryRegion,
    telemetry_region,
)
from axiom_cli.bench.telemetry_truth import (
    check_nothing_dropped,
    check_source,
    check_truth,
)
from axiom_cli.bench.view_client import ViewClient
from axiom_cli.machine import commit, machine
from axiom_cli.output import print_figures, progress_console, table_console
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import InvalidInputError, UnavailableError
from axiom_common.wire.reports import BEAT_MS

CORES = 2
PROBES = 10
SETTLE_S = 3.0
PACE_MIN = 0.95
CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryBenchOptions:
    """`agents` of the `nodes` are run, the others published. `source` is how agents know what is
    resident: the engine's extension, or polled metrics."""

    nodes: int
    agents: int
    seconds: float
    source: str
    as_json: bool


@dataclass(slots=True)
class _Measured:
    change_ms: list[float]
    publish_ms: list[float]
    cpu_s: dict[str, float]
    seconds: float
    sent: dict[str, float]
    requests: int


async def bench_telemetry(options: TelemetryBenchOptions) -> None:
    """Measure and print. UnavailableError when something did not run or was not seen in time,
    DroppedError and DiffersError when what was measured was not whole."""
    if options.agents > options.nodes:
        raise InvalidInputError("there are fewer nodes than agents", path="agents")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    console = progress_console()
    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="axiom-bench-telemetry-"))
    published = options.nodes - options.agents
    console.print(f"starting: {options.agents} agents, {published} published nodes", style="dim")
    try:
        async with telemetry_region(
            folder,
            nodes=options.nodes,
            agents=options.agents,
            probes=min(PROBES, published),
            source=options.source,
        ) as region:
            measured = await _measure(options, region, console)
    except BaseException:
        console.print(f"logs: {folder}", markup=False)
        raise
    shutil.rmtree(folder)
    figures = _figures(options, measured) | {"load_average_before": round(load, 2)}
    if options.as_json:
        print_figures(figures)
    else:
        table_console().print(_table(figures))


async def _measure(
    options: TelemetryBenchOptions, region: TelemetryRegion, console: Console
) -> _Measured:
    clock = SystemClock()
    client = ViewClient(clock)
    probes = region.published[: region.probes]
    watched = [*region.engine_urls, *probes]
    loads = Loads(region, client, clock)
    async with (
        asyncio.TaskGroup() as group,
        aiohttp.ClientSession(headers=region.gateway.headers) as session,
    ):
        following = group.create_task(client.run(region.gateway, watched), name="watch")
        for node in region.engine_urls:
            await loads.one(session, node)
        await check_source(region, options.source, session)
        await asyncio.sleep(min(SETTLE_S, options.seconds / 2))
        loads.taken_ms.clear()
        requests = Requests()
        asking = group.create_task(requests.run(session, region.gateway.url), name="ask")
        console.print(f"measuring {options.seconds:g} s", style="dim")
        # Looking through /proc takes a while, in which the watch must be read all the same.
        cpu = await asyncio.to_thread(_cpu_s, region)
        began, sent = clock.now_ms(), _sent(region)
        length_ms = options.seconds * 1e3
        jobs = [loads.many(session, node, began + length_ms) for node in region.engine_urls]
        await asyncio.gather(*jobs, clock.sleep_ms(length_ms))
        ended, after = clock.now_ms(), _sent(region)
        total = await asyncio.to_thread(_cpu_s, region)
        asking.cancel()
        told = [load for load in _told_loads(region) if began <= load.at_ms < ended]
        region.check()
        console.print("comparing views with the truth", style="dim")
        await check_truth(region, loads.loaded, session)
        await check_nothing_dropped(region, session)
        following.cancel()
    _check_pace(options, sent, after)
    publish_ms = [
        client.first_ms[load.node, load.adapter] - load.at_ms
        for load in told
        if (load.node, load.adapter) in client.first_ms
    ]
    if len(publish_ms) < len(told):
        raise UnavailableError(f"{len(told) - len(publish_ms)} of {len(told)} loads never seen")
    return _Measured(
        change_ms=loads.taken_ms,
        publish_ms=publish_ms,
        cpu_s={part: spent - cpu[part] for part, spent in total.items()},
        seconds=(ended - began) / 1e3,
        sent={key: value - sent[key] for key, value in after.items()},
        requests=requests.answered,
    )


def _cpu_s(region: TelemetryRegion) -> dict[str, float]:
    return region.cpu_s() | {CLIENT: time.process_time()}


def _sent(region: TelemetryRegion) -> dict[str, float]:
    sent = region.sent() if region.published else publisher.Sent()
    return {name: float(value) for name, value in msgspec.structs.asdict(sent).items()}


def _check_pace(
    options: TelemetryBenchOptions, before: dict[str, float], after: dict[str, float]
) -> None:
    """UnavailableError when the publisher sent less than the nodes would."""
    seconds = (after["at_ms"] - before["at_ms"]) / 1e3
    wanted = (options.nodes - options.agents) * seconds * 1e3 / BEAT_MS
    sent = after["beats"] + after["fulls"] - before["beats"] - before["fulls"]
    if sent < wanted * PACE_MIN:
        raise UnavailableError(
            f"this machine can't publish for so many nodes now: {sent:.0f} of {wanted:.0f} beats"
        )


def _told_loads(region: TelemetryRegion) -> list[publisher.Load]:
    path = region.folder / publisher.LOADS
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [msgspec.json.decode(line, type=publisher.Load) for line in lines]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that so many lie at or below (nearest rank); None of none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else None


def _latency(values: Sequence[float]) -> dict[str, Any]:
    found = {f"p{share * 100:.0f}": percentile(values, share) for share in (0.5, 0.99)}
    rounded = {name: None if v is None else round(v, 3) for name, v in found.items()}
    return rounded | {"samples": len(values)}


def _figures(options: TelemetryBenchOptions, measured: _Measured) -> dict[str, Any]:
    cores = {part: spent / measured.seconds for part, spent in measured.cpu_s.items()}
    cores_all = sum(cores.values())
    cores[AGENT] /= max(1, options.agents)
    sent, sent_s = measured.sent, measured.sent["at_ms"] / 1e3 or 1.0
    return {
        "nodes": options.nodes,
        "agents": options.agents,
        "source": options.source,
        "change_to_view_ms": _latency(measured.change_ms),
        "publish_to_view_ms": _latency(measured.publish_ms),
        "cpu_cores": {part: round(share, 4) for part, share in cores.items()},
        "cpu_cores_all": round(cores_all, 4),
        "cores_given": CORES,
        "messages_per_s": round(sent["messages"] / sent_s, 1),
        "bytes_per_s": round(sent["bytes"] / sent_s),
        "changes_per_s": round(
            sent["loads"] / sent_s + len(measured.change_ms) / measured.seconds, 1
        ),
        "requests_per_s": round(measured.requests / measured.seconds, 1),
        "resyncs": round(sent["resyncs"]),
        "published_node": SHAPE | publisher.RATES,
        "machine": machine(),
        "commit": commit(),
        "seconds": options.seconds,
        "repeats": 1,
    }


def _table(figures: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False)
    for name in ("nodes", "agents", "source", "messages_per_s", "changes_per_s", "resyncs"):
        table.add_row(name.replace("_", " "), str(figures[name]))
    for name in ("change_to_view_ms", "publish_to_view_ms"):
        told = ", ".join(f"{key} {value}" for key, value in figures[name].items())
        table.add_row(name.replace("_", " "), told)
    for part, cores in sorted(figures["cpu_cores"].items()):
        table.add_row(f"CPU of {part}", f"{cores:.3f} cores")
    table.add_row("CPU of all", f"{figures['cpu_cores_all']:.3f} of {figures['cores_given']} cores")
    return table
