"""The agent as a process, beside simulated engines and a real NATS server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent_process import (
    BASE_MODEL,
    ENGINE,
    Node,
    agent_server,
    get_json,
    running_agent,
    write_settings,
)
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.servers import ChildServer, running

from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import EngineStatus
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import EngineAdapter, RegionId
from axiom_common.model.plan import EnginePlan

ADAPTERS = tuple(f"ad{number}" for number in range(6))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ChildServer]:
    with running(simulated_engine(tmp_path / "engine")) as server:
        yield server


@pytest.fixture
async def node(
    tmp_path: Path, region: RegionId, nats_url: str, engine: ChildServer
) -> AsyncIterator[Node]:
    adapters = adapter_folders(tmp_path / "adapters", ADAPTERS)
    async with running_agent(tmp_path / "agent", region, nats_url, engine.url, adapters) as node:
        await node.ready()
        yield node


def stats(engine: ChildServer) -> dict[str, Any]:
    return dict(get_json(f"{engine.url}/sim/stats"))


async def test_loads_on_request_and_tells_what_the_engine_holds(
    node: Node, engine: ChildServer
) -> None:
    assert (node.state.base_model, node.state.served_name) == (BASE_MODEL, BASE_MODEL)
    for name in ADAPTERS[:3]:
        assert await node.ensured(name) is EnsureOutcome.RESIDENT
        await node.served(f"{name}~1")
    assert stats(engine)["loads_from_store"] == 3
    assert await node.ensured("ad0") is EnsureOutcome.ON_REQUEST
    await node.served("ad0~1")
    held = stats(engine)
    await node.told(lambda: node.residents(AdapterState.RESIDENT) == held["hbm"])
    assert held["hbm"] == ["ad2~1", "ad0~1"]
    assert node.residents(AdapterState.HOST, AdapterState.RESIDENT) == held["host"]
    await node.told(lambda: node.state.ttft_ms)
    assert get_json(f"{node.agent.url}/readyz")["degraded"] == []


async def test_an_engine_that_dies_comes_back_empty_and_an_agent_that_dies_does_not(
    node: Node, engine: ChildServer
) -> None:
    await node.ensure("ad5")
    await node.told(lambda: node.residents(AdapterState.RESIDENT) == ["ad5~1"])
    engine.kill()
    await node.told(lambda: node.state.status is EngineStatus.UNREACHABLE, within_s=1.0)
    engine.start()
    await node.ready()
    assert node.state.residents == ()
    assert node.state.registered == ()
    for name in ADAPTERS[:2]:
        assert await node.ensured(name) is EnsureOutcome.RESIDENT
    last = node.reports[-1].incarnation
    node.agent.kill()
    node.reports.clear()
    node.agent.start()
    await node.told(lambda: True)
    first = node.reports[0]
    assert (first.kind, first.seq) == ("full", 1)
    assert first.incarnation > last
    assert first.engines[0].status is EngineStatus.READY
    assert [r.adapter for r in first.engines[0].residents] == stats(engine)["hbm"]


async def test_a_plan_is_carried_out_and_its_unload_waits_for_the_request(node: Node) -> None:
    await node.plan(1, EnginePlan(engine=ENGINE, load=(node.spec("ad0"), node.spec("ad1"))))
    await node.told(lambda: len(node.residents(AdapterState.RESIDENT)) == 2)
    request = asyncio.ensure_future(node.complete("ad0~1", tokens=700))
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


async def test_nats_may_come_late_go_away_and_lose_all_it_had(
    tmp_path: Path, region: RegionId, own_nats: ChildServer, engine: ChildServer
) -> None:
    own_nats.kill()
    agent = tmp_path / "agent"
    async with running_agent(agent, region, own_nats.url, engine.url, tmp_path) as node:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get_json(f"{node.agent.url}/readyz")
        own_nats.start()
        await node.ready()
        before = node.reports[-1]
        own_nats.kill()
        node.reports.clear()
        engine.kill()
        own_nats.start()
        await node.told(lambda: node.state.status is EngineStatus.UNREACHABLE)
        await node.told(lambda: node.reports[-1].kind == "full")
        assert node.reports[0].incarnation == before.incarnation
        assert node.reports[0].seq > before.seq
        own_nats.kill()
        own_nats.wipe()
        own_nats.start()
        await node.told(lambda: node.reports[-1].incarnation > before.incarnation)
        renewed = next(r for r in node.reports if r.incarnation > before.incarnation)
        assert (renewed.kind, renewed.seq) == ("full", 1)
        assert get_json(f"{node.agent.url}/readyz")["ready"]


async def test_two_under_one_name_are_one_too_many_and_sigterm_ends_the_other(
    tmp_path: Path, region: RegionId, nats_url: str, node: Node
) -> None:
    write_settings(tmp_path / "other", region, nats_url, node.engine_url)
    with running(agent_server(tmp_path / "other")) as other:
        superseded = node.agent._process
        assert superseded is not None
        assert await asyncio.to_thread(superseded.wait, 5) == 1
        lines = [json.loads(line) for line in node.agent.log_path.read_text().splitlines()]
        assert lines[0]["event"] == "listening"
        errors = [line for line in lines if line["level"] == "error"]
        assert [line["event"] for line in errors] == ["superseded: another agent runs as this node"]
        assert errors[0]["by"].split(":")[1] == str(other.pid)
        node.reports.clear()
        await node.ready()
        process = other._process
        assert process is not None
        process.terminate()
        assert await asyncio.to_thread(process.wait, 5) == 0
        assert "Traceback" not in other.log_path.read_text()


def test_wrong_settings_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("node: n1\nengines: 3\n")
    run = subprocess.run(
        [sys.executable, "-m", "axiom_node_agent", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    [line] = run.stderr.splitlines()
    assert line.startswith("settings: engines: ")
