"""The agent as a process, beside simulated engines and a real NATS server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_cli.stack.servers import ChildServer, ServerKind
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.adapter import AdapterSpec, AdapterState, ResidencySource
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.placement import EnginePlan, EnsureOutcome, Plan
from axiom_common.wire import keys, subjects
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
BASE = "tiny"
ADAPTERS = tuple(f"ad{number}" for number in range(6))


def _agent(folder: Path) -> ChildServer:
    def command(data_dir: Path, port: int) -> list[str]:
        config = str(data_dir / "node.yaml")
        return [
            *(sys.executable, "-m", "axiom_node_agent"),
            *("--config", config, "--port", str(port)),
        ]

    def serves(connection: socket.socket) -> bool:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200")

    return ChildServer(
        ServerKind(name="node-agent", scheme="http", command=command, serving=serves), folder
    )


@dataclass
class Node:
    """One agent with one engine, and all that the agent told."""

    region: RegionId
    agent: ChildServer
    engine: ChildServer
    adapters: Path
    bus: NatsBus
    registry: NatsRegistry
    reports: list[NodeReport] = field(default_factory=list)

    @property
    def state(self) -> EngineState:
        """The engine as last told."""
        [state] = self.reports[-1].engines
        return state

    def residents(self, *states: AdapterState) -> list[str]:
        return [r.adapter for r in self.state.residents if r.state in states]

    def spec(self, name: str) -> AdapterSpec:
        return AdapterSpec(
            name=name, base_model=BASE, revision=1, path=str(self.adapters / name), rank=8
        )

    async def hear(self, _: str, payload: bytes) -> None:
        self.reports.append(decode(payload, NodeReport))

    async def told(self, condition: Callable[[], object], *, within_s: float = 10.0) -> None:
        await eventually(lambda: self.reports and condition(), within_s=within_s)

    async def ready(self) -> None:
        await self.told(lambda: self.state.status is EngineStatus.READY)

    async def ensure(self, name: str) -> EnsureOutcome:
        request = EnsureRequest(
            engine=ENGINE,
            adapter=self.spec(name),
            deadline_ms=10_000.0,
            gateway=GatewayId("asker"),
        )
        subject = subjects.node_ensure(self.region, NODE)
        answer = await self.bus.request(subject, encode(request), timeout_ms=11_000.0)
        return decode(answer, EnsureReply).result.outcome

    async def count(self, adapter: str, requests: int, *, seq: int) -> None:
        """A gateway tells its requests in flight with one adapter."""
        count = InFlightCount(engine=ENGINE, adapter=EngineAdapter(adapter), count=requests)
        report = InFlightReport(
            kind=ReportKind.DELTA,
            region=self.region,
            gateway=GATEWAY,
            incarnation=1,
            seq=seq,
            counts=(count,),
        )
        await self.bus.publish(subjects.gateway_inflight(self.region, GATEWAY), encode(report))

    async def plan(self, revision: int, wanted: EnginePlan) -> None:
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

    def engine_stats(self) -> dict[str, Any]:
        return dict(_get_json(f"{self.engine.url}/sim/stats"))


def _get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


@asynccontextmanager
async def running_node(
    folder: Path, region: RegionId, nats_url: str, *engine_flags: str
) -> AsyncIterator[Node]:
    engine = simulated_engine(folder / "engine", *engine_flags)
    agent = _agent(folder / "agent")
    engine.start()
    try:
        _write_config(folder / "agent", region, nats_url, engine.url)
        agent.start()
        async with task_owner() as owner:
            connection = NatsConnection(nats_url, name="test", clock=SystemClock())
            await connection.start(owner)
            bus = NatsBus(connection)
            adapters = adapter_folders(folder / "adapters", ADAPTERS)
            node = Node(region, agent, engine, adapters, bus, NatsRegistry(connection))
            await bus.subscribe(subjects.all_node_reports(region), node.hear)
            yield node
            await bus.close()
            await connection.close()
    finally:
        agent.stop()
        engine.stop()


def _write_config(folder: Path, region: RegionId, nats_url: str, engine_url: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    engine = {"name": "e1", "url": engine_url, "hbm_slots": 2, "host_slots": 4, "max_lora_rank": 8}
    config = {
        "region": region,
        "nats_url": nats_url,
        "node": NODE,
        "poll_ms": 50,
        "names_ms": 500,
        "engines": [engine],
    }
    (folder / "node.yaml").write_text(yaml.safe_dump(config))


async def test_loads_on_request_and_tells_what_the_engine_holds(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url) as node, aiohttp.ClientSession() as http:
        await node.ready()
        assert (node.state.base_model, node.state.served_name) == (BASE, BASE)
        for number, name in enumerate(ADAPTERS[:3]):
            await _ensured(node, name, EnsureOutcome.RESIDENT)
            await node.count(f"{name}~1", 1, seq=2 * number)
            await _complete(http, node, f"{name}~1")
            await node.count(f"{name}~1", 0, seq=2 * number + 1)
            await node.told(lambda: not any(r.in_flight for r in node.state.residents))
        assert node.engine_stats()["loads_from_store"] == 3
        await _ensured(node, "ad0", EnsureOutcome.ON_REQUEST)
        await _complete(http, node, "ad0~1")
        stats = node.engine_stats()
        await node.told(lambda: node.residents(AdapterState.RESIDENT) == stats["hbm"])
        assert node.residents(AdapterState.RESIDENT) == ["ad2~1", "ad0~1"]
        assert node.residents(AdapterState.HOST, AdapterState.RESIDENT) == stats["host"]
        await node.told(lambda: node.state.ttft_ms)
        assert _get_json(f"{node.agent.url}/readyz")["degraded"] == []


async def _ensured(node: Node, name: str, outcome: EnsureOutcome) -> None:
    """A slot is idle again a moment after its request ended."""
    outcomes: list[EnsureOutcome] = []
    while outcomes[-1:] != [outcome]:
        outcomes.append(await node.ensure(name))
        assert outcomes[-1] in (outcome, EnsureOutcome.REFUSED)
        assert len(outcomes) < 50
        await asyncio.sleep(0.02)


async def _complete(http: aiohttp.ClientSession, node: Node, model: str, tokens: int = 4) -> None:
    body = {"model": model, "prompt": "a few words", "max_tokens": tokens, "ignore_eos": True}
    async with http.post(f"{node.engine.url}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


async def test_an_engine_that_tells_is_believed(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url, "--tell-residency") as node:
        await node.ready()
        for name in ADAPTERS[:2]:
            await node.ensure(name)
        stats = node.engine_stats()
        await node.told(lambda: node.residents(AdapterState.RESIDENT) == stats["hbm"])
        sources = {resident.source for resident in node.state.residents}
        assert sources == {ResidencySource.EXTENSION}


async def test_an_engine_that_dies_is_told_and_comes_back_empty(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url) as node:
        await node.ready()
        await node.ensure("ad0")
        await node.told(lambda: node.residents(AdapterState.RESIDENT) == ["ad0~1"])
        node.engine.kill()
        await node.told(lambda: node.state.status is EngineStatus.UNREACHABLE, within_s=1.0)
        node.engine.start()
        await node.ready()
        assert node.state.residents == ()
        assert node.state.registered == ()
        assert await node.ensure("ad1") is EnsureOutcome.RESIDENT


async def test_a_restarted_agent_keeps_idle_residents_and_gets_a_higher_incarnation(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url) as node:
        await node.ready()
        await node.ensure("ad0")
        await node.ensure("ad1")
        await node.told(lambda: len(node.residents(AdapterState.RESIDENT)) == 2)
        first = node.reports[-1].incarnation
        node.agent.kill()
        node.reports.clear()
        node.agent.start()
        await node.ready()
        assert node.residents(AdapterState.RESIDENT) == ["ad0~1", "ad1~1"]
        assert node.engine_stats()["hbm"] == ["ad0~1", "ad1~1"]
        assert {report.incarnation > first for report in node.reports} == {True}
        assert node.reports[0].seq <= 2


async def test_a_plan_is_carried_out_and_its_unload_waits_for_the_request(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url) as node, aiohttp.ClientSession() as http:
        await node.ready()
        await node.plan(1, EnginePlan(engine=ENGINE, load=(node.spec("ad0"), node.spec("ad1"))))
        await node.told(lambda: len(node.residents(AdapterState.RESIDENT)) == 2)
        request = asyncio.ensure_future(_complete(http, node, "ad0~1", tokens=900))
        await node.told(lambda: any(r.in_flight for r in node.state.residents))
        await node.plan(2, EnginePlan(engine=ENGINE, unload=(EngineAdapter("ad0~1"),)))
        await node.told(lambda: node.residents(AdapterState.DRAINING) == ["ad0~1"])
        while not request.done():
            assert "ad0~1" in node.state.registered
            await asyncio.sleep(0.01)
        await request
        await node.told(lambda: node.state.registered == ("ad1~1",))
        assert node.residents(AdapterState.UNLOADING) == ["ad0~1"], "its copy lasts"
        assert node.reports[-1].plan is not None
        assert node.reports[-1].plan.revision == 2


async def test_nats_may_come_late_and_go_away(
    tmp_path: Path, region: RegionId, own_nats: ChildServer
) -> None:
    own_nats.kill()
    async with running_node(tmp_path, region, own_nats.url) as node:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            _get_json(f"{node.agent.url}/readyz")
        own_nats.start()
        await node.ready()
        incarnation, seq = node.reports[-1].incarnation, node.reports[-1].seq
        own_nats.kill()
        node.reports.clear()
        node.engine.kill()
        own_nats.start()
        await node.told(lambda: node.state.status is EngineStatus.UNREACHABLE)
        assert node.reports[0].kind == "full"
        assert node.reports[0].incarnation == incarnation
        assert node.reports[0].seq > seq


async def test_sigterm_ends_it_without_complaint(
    tmp_path: Path, region: RegionId, nats_url: str
) -> None:
    async with running_node(tmp_path, region, nats_url) as node:
        await node.ready()
        process = node.agent._process
        assert process is not None
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0
        log = node.agent.log_path.read_text()
        assert "Traceback" not in log
        assert json.loads(log.splitlines()[0])["event"] == "listening"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("engines: []\n", "settings: node: "),
        ("node: n1\nengines: 3\n", "settings: engines: "),
        (None, "settings: "),
    ],
)
def test_wrong_settings_are_one_line_and_exit_code_2(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    config = tmp_path / "node.yaml"
    if text is not None:
        config.write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "axiom_node_agent", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    [line] = run.stderr.splitlines()
    assert line.startswith(complaint)
