"""The region whose telemetry is measured: all its parts as users run them, on the cores of this
process, and one process that publishes for the nodes that are not run."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.bench import publisher
from axiom_cli.bench.processes import Running, running
from axiom_cli.key_files import key_file
from axiom_cli.stack.ports import reserved_ports
from axiom_cli.stack.servers import HOST, NATS, VALKEY
from axiom_common.errors import UnavailableError

REGION = "bench"
SIM_MODEL = "bench-sim"
ENGINE = "engine-1"
HBM_SLOTS, HOST_SLOTS, RANK = 4, 12, 16
TIME_SCALE = 1000.0
"""A load takes no time to speak of: it is not what is measured."""
EXTENSION, POLLED = "extension", "polled"
READY_TIMEOUT_S = 90.0
POLL_S = 0.05
AGENT, ENGINES, PUBLISHER = "agent", "engines", "publisher"
GATEWAY, TELEMETRY, REDIS = "gateway", "telemetry", "redis"
GATEWAY_OPS = "gateway-ops"
"""The port of the gateway's health and metrics."""


@dataclass(slots=True)
class TelemetryRegion:
    """What runs. `engine_urls` are those of the nodes that have an agent; `published` the others,
    the first `probes` of which are measured."""

    folder: Path
    ports: Mapping[str, int]
    engine_urls: Mapping[str, str]
    published: Sequence[str]
    probes: int
    parts: dict[str, list[Running]] = field(default_factory=dict)

    @property
    def key_file(self) -> Path:
        """Holds the secret of the gateway's admin key."""
        return self.folder / "admin.key"

    @property
    def gateway(self) -> Target:
        """Of its APIs."""
        return Target(f"http://{HOST}:{self.ports[GATEWAY]}", key_file(self.key_file))

    def metrics_url(self, part: str) -> str:
        """Where the gateway or telemetry tells its metrics."""
        return f"http://{HOST}:{self.ports[GATEWAY_OPS if part == GATEWAY else part]}/metrics"

    @property
    def redis_url(self) -> str:
        """Of the shadow cache."""
        return VALKEY.url(self.ports[REDIS])

    def check(self) -> None:
        """UnavailableError when something ended."""
        for processes in self.parts.values():
            for process in processes:
                process.check()

    def cpu_s(self) -> dict[str, float]:
        """CPU spent so far, by part."""
        return {part: sum(p.cpu_s() for p in of) for part, of in self.parts.items()}

    def rss_bytes(self) -> dict[str, int]:
        """Memory resident now, by part."""
        return {part: sum(p.rss_bytes() for p in of) for part, of in self.parts.items()}

    def sent(self) -> publisher.Sent:
        """What the publisher says that it sent; UnavailableError before its first word."""
        try:
            content = (self.folder / publisher.SENT).read_bytes()
        except FileNotFoundError as error:
            raise UnavailableError("the publisher says nothing") from error
        return msgspec.json.decode(content, type=publisher.Sent)


@contextlib.asynccontextmanager
async def telemetry_region(
    folder: Path, *, nodes: int, agents: int, probes: int, source: str
) -> AsyncIterator[TelemetryRegion]:
    """Start it, give it once the gateway sees every node, end it."""
    run = [f"node-{n + 1}" for n in range(agents)]
    published = [f"published-{n + 1}" for n in range(nodes - agents)]
    names = [NATS.name, REDIS, TELEMETRY, GATEWAY, GATEWAY_OPS]
    wanted = [*names, *(f"{part}-{node}" for part in (AGENT, ENGINES) for node in run)]
    async with contextlib.AsyncExitStack() as stack:
        ports = stack.enter_context(reserved_ports([(name, 0) for name in wanted]))
        urls = {node: f"http://{HOST}:{ports[f'{ENGINES}-{node}']}" for node in run}
        region = TelemetryRegion(folder, ports, urls, published, probes)
        starter = _Starter(region, stack)
        for name, kind in ((NATS.name, NATS), (REDIS, VALKEY)):
            data = folder / name
            data.mkdir()
            process = await starter.start(name, name, kind.command(data, ports[name]))
            while not await asyncio.to_thread(kind.serves, ports[name]):
                process.check()
                await asyncio.sleep(POLL_S)
        common = {
            "region": REGION,
            "nats_url": NATS.url(ports[NATS.name]),
            "redis_url": region.redis_url,
            "host": HOST,
        }
        key_file(region.key_file)
        own = {"ops_port": ports[GATEWAY_OPS], "admin_key_file": str(region.key_file)}
        await starter.service(TELEMETRY, TELEMETRY, common | {"port": ports[TELEMETRY]})
        await starter.service(GATEWAY, GATEWAY, common | own | {"port": ports[GATEWAY]})
        async with admin_of(region.gateway) as admin:
            await _until_declared(region, admin)
            for node in run:
                await starter.node(node, common, source)
            await starter.publisher(common["nats_url"])
            await _until_seen(region, admin, nodes)
        yield region


@dataclass(frozen=True, slots=True)
class _Starter:
    region: TelemetryRegion
    stack: contextlib.AsyncExitStack

    async def start(self, part: str, name: str, argv: Sequence[str]) -> Running:
        log_path = self.region.folder / f"{name}.log"
        process = await self.stack.enter_async_context(running(argv, log_path=log_path))
        self.region.parts.setdefault(part, []).append(process)
        return process

    async def service(self, part: str, name: str, settings: dict[str, Any]) -> None:
        module = "axiom_node_agent" if part == AGENT else f"axiom_{part}"
        config = self.region.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(settings))
        await self.start(part, name, (sys.executable, "-m", module, "--config", str(config)))

    async def node(self, node: str, common: dict[str, Any], source: str) -> None:
        """An engine and its agent."""
        ports, socket = self.region.ports, self.region.folder / f"{node}.sock"
        slots = ("--max-loras", str(HBM_SLOTS), "--max-cpu-loras", str(HOST_SLOTS))
        tells = ("--agent-socket", str(socket)) if source == EXTENSION else ("--tell-loaded",)
        name = f"{ENGINES}-{node}"
        argv = (
            *(sys.executable, "-m", "axiom_sim.engine", "--port", str(ports[name])),
            *("--served-model-name", SIM_MODEL, "--max-lora-rank", str(RANK)),
            *("--time-scale", str(TIME_SCALE), *slots, *tells),
        )
        await self.start(ENGINES, name, argv)
        engine = {
            "name": ENGINE,
            "url": self.region.engine_urls[node],
            "base_model": SIM_MODEL,
            "hbm_slots": HBM_SLOTS,
            "host_slots": HOST_SLOTS,
            "max_lora_rank": RANK,
        }
        if source == EXTENSION:
            engine["extension_socket"] = str(socket)
        name = f"{AGENT}-{node}"
        settings = common | {"node": node, "port": ports[name], "engines": [engine]}
        await self.service(AGENT, name, settings)

    async def publisher(self, nats_url: str) -> None:
        """All nodes that have no agent."""
        region = self.region
        if not region.published:
            return
        settings = publisher.Settings(
            region=REGION,
            nats_url=nats_url,
            folder=str(region.folder),
            nodes=list(region.published),
            probes=region.probes,
        )
        config = region.folder / "publisher.json"
        config.write_bytes(msgspec.json.encode(settings))
        await self.start(
            PUBLISHER, PUBLISHER, (sys.executable, "-m", publisher.__name__, str(config))
        )


async def _until_declared(region: TelemetryRegion, admin: Admin) -> None:
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            region.check()
            with contextlib.suppress(UnavailableError):
                await admin.put_base_model(SIM_MODEL)
                return
            await asyncio.sleep(POLL_S)


async def _until_seen(region: TelemetryRegion, admin: Admin, nodes: int) -> None:
    """All nodes, and every engine that runs as ready."""
    deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
    while True:
        region.check()
        seen = sum(r.nodes for r in (await admin.status()).regions.values())
        if seen == nodes:
            views = [await admin.node(node) for node in region.engine_urls]
            if all(engine.status == "ready" for view in views for engine in view.engines):
                return
        if asyncio.get_running_loop().time() > deadline:
            raise UnavailableError(f"the gateway sees {seen} of {nodes} nodes, or no engine ready")
        await asyncio.sleep(POLL_S * 4)
