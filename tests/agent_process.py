"""A node agent as a process beside one engine, with all that it tells on a real bus."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.eventually import eventually
from tests.owner import task_owner
from tests.servers import ChildServer

from axiom_cli.stack.servers import ServerKind
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.adapter import AdapterSpec, AdapterState
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.state.region_view import NodeBeat, RegionView
from axiom_common.wire import keys, subjects
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import (
    EnsureReply,
    EnsureRequest,
    InFlightCount,
    InFlightReport,
    NodeReport,
    PlanRecord,
    ReportKind,
    decode,
    encode,
)

NODE, GATEWAY = NodeId("n1"), GatewayId("g1")
ENGINE = EngineId("n1.e1")
BASE_MODEL = "tiny"
DEADLINE_MS = 10_000.0
CLOCK = SystemClock()


def agent_server(folder: Path) -> ChildServer:
    """An agent whose settings `write_settings` wrote into `folder`; not started yet."""

    def command(data_dir: Path, port: int) -> list[str]:
        config = str(data_dir / "node.yaml")
        own = [sys.executable, "-m", "axiom_node_agent"]
        return [*own, "--config", config, "--port", str(port)]

    def serves(connection: socket.socket) -> bool:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200")

    kind = ServerKind(name="node-agent", scheme="http", command=command, serving=serves)
    return ChildServer(kind, folder)


def write_settings(
    folder: Path, region: RegionId, nats_url: str, *engines: str | Mapping[str, object]
) -> None:
    """Engines with 2 slots in HBM and 4 copies in host RAM: by their address, called e1, e2 and so
    on, or by the fields that they have beside those."""
    folder.mkdir(parents=True, exist_ok=True)
    limits = {"hbm_slots": 2, "host_slots": 4, "max_lora_rank": 8}
    settings = {
        "region": region,
        "nats_url": nats_url,
        "node": NODE,
        "poll_ms": 50,
        "names_ms": 500,
        "engines": [
            {"name": f"e{number}", **limits, **({"url": e} if isinstance(e, str) else e)}
            for number, e in enumerate(engines, 1)
        ],
    }
    # As a whole: the agent may read it at any moment.
    half = folder / "node.yaml.half"
    half.write_text(yaml.safe_dump(settings))
    half.replace(folder / "node.yaml")


@dataclass
class Node:
    """One agent with one engine, and all that the agent told. `adapters` holds their folders."""

    region: RegionId
    agent: ChildServer
    engine_url: str
    adapters: Path
    bus: NatsBus
    registry: NatsRegistry
    http: aiohttp.ClientSession
    view: RegionView
    reports: list[NodeReport] = field(default_factory=list)
    vectors: int = 0

    @property
    def state(self) -> EngineState:
        """The engine as one knows it who heard all that was told."""
        node = self.view.node(NODE)
        assert node is not None
        [state] = node.engines
        return state

    def residents(self, *states: AdapterState) -> list[str]:
        """Adapters in these states as last told, in that order."""
        return [r.adapter for r in self.state.residents if r.state in states]

    def spec(self, name: str) -> AdapterSpec:
        """A declared adapter in its folder."""
        return AdapterSpec(
            name=name, base_model=BASE_MODEL, revision=1, path=str(self.adapters / name), rank=8
        )

    async def hear(self, subject: str, payload: bytes) -> None:
        """Fold a report, and keep it if it is more than a beat."""
        report = decode_node_report(subject, payload)
        self.view.apply(report, CLOCK.now_ms())
        if not isinstance(report, NodeBeat):
            self.reports.append(decode(payload, NodeReport))

    async def told(self, condition: Callable[[], object], *, within_s: float = 10.0) -> None:
        """Wait until what was told last fits."""
        await eventually(lambda: self.reports and condition(), within_s=within_s)

    async def ready(self) -> None:
        """Wait until the agent tells that its engine serves."""
        await self.told(lambda: self.state.status is EngineStatus.READY)

    async def ensure(self, name: str) -> EnsureResult:
        """Ask as a gateway does, which asks again for a slot that will be idle in a moment."""
        request = EnsureRequest(
            engine=ENGINE,
            adapter=self.spec(name),
            deadline_ms=DEADLINE_MS,
            gateway=GatewayId("asker"),
        )
        subject = subjects.node_ensure(self.region, NODE)
        answer = await self.bus.request(subject, encode(request), timeout_ms=DEADLINE_MS + 1e3)
        return decode(answer, EnsureReply).result

    async def ensured(self, name: str) -> EnsureOutcome:
        """How the adapter got usable; a refusal that passes is not taken for an answer."""
        results: list[EnsureResult] = []

        async def ask() -> None:
            while not results or results[-1].reason is Reason.NO_IDLE_SLOT:
                results.append(await self.ensure(name))

        async with asyncio.timeout(DEADLINE_MS / 1e3):
            await ask()
        return results[-1].outcome

    async def count(self, adapter: str, requests: int) -> None:
        """A gateway tells its requests in flight with one adapter."""
        self.vectors += 1
        count = InFlightCount(engine=ENGINE, adapter=EngineAdapter(adapter), count=requests)
        report = InFlightReport(
            kind=ReportKind.DELTA,
            region=self.region,
            gateway=GATEWAY,
            incarnation=1,
            seq=self.vectors,
            counts=(count,),
        )
        await self.bus.publish(subjects.node_inflight(self.region, NODE, GATEWAY), encode(report))

    async def complete(self, model: str, *, tokens: int = 4) -> None:
        """One request to the engine that no gateway tells of."""
        body = {"model": model, "prompt": "a few words", "max_tokens": tokens, "ignore_eos": True}
        async with self.http.post(f"{self.engine_url}/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    async def served(self, adapter: str) -> None:
        """One request to the engine, told as a gateway tells it."""
        await self.count(adapter, 1)
        await self.complete(adapter)
        await self.count(adapter, 0)

    async def plan(self, revision: int, wanted: EnginePlan) -> None:
        """Write the node's plan."""
        plan = Plan(
            region=self.region,
            node=NODE,
            revision=revision,
            fence=1,
            reason="test",
            engines=(wanted,),
        )
        bucket = await self.registry.bucket(keys.PLAN_BUCKET)
        await bucket.put(keys.plan_key(self.region, NODE), encode(PlanRecord(plan=plan)))


@asynccontextmanager
async def running_agent(
    folder: Path,
    region: RegionId,
    nats_url: str,
    engine: str | Mapping[str, object],
    adapters: Path,
) -> AsyncIterator[Node]:
    """A node whose agent runs beside one engine, told as to `write_settings`."""
    agent = agent_server(folder)
    write_settings(folder, region, nats_url, engine)
    engine_url = engine if isinstance(engine, str) else str(engine["url"])
    async with task_owner() as owner, aiohttp.ClientSession() as http:
        connection = NatsConnection(nats_url, name="test", clock=CLOCK)
        await connection.start(owner)
        bus = NatsBus(connection)
        registry = NatsRegistry(connection)
        view = RegionView(region)
        node = Node(region, agent, engine_url, adapters, bus, registry, http, view)
        await bus.subscribe(subjects.all_node_reports(region), node.hear)
        agent.start()
        try:
            yield node
        finally:
            agent.stop()
        await bus.close()
        await connection.close()


def get_json(url: str) -> Any:
    """The body of a GET."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)
