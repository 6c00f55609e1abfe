"""The agent as a process beside a real vLLM that does not tell what it holds.

Last of the stage: the engine does not survive it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent_process import ENGINE, Node, get_json, running_agent
from tests.contract.vllm_client import RESIDENCY
from tests.engine.real_engine import RealEngine
from tests.eventually import eventually

from axiom_common.model.adapter import AdapterState, ResidencySource
from axiom_common.model.engine import EngineStatus
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import EngineAdapter, RegionId
from axiom_common.model.plan import EnginePlan

pytestmark = pytest.mark.engine

RESIDENT, HOST = AdapterState.RESIDENT, AdapterState.HOST


@pytest.fixture
async def node(
    tmp_path: Path, region: RegionId, nats_url: str, engine: RealEngine
) -> AsyncIterator[Node]:
    get_json(f"{engine.url}{RESIDENCY}?hide")
    async with running_agent(tmp_path, region, nats_url, engine.url, engine.model) as node:
        await node.ready()
        yield node


def held(engine: RealEngine) -> list[tuple[str, AdapterState]]:
    """The engine's own word: adapters with a name, least recently used first, and their tier."""
    told = get_json(f"{engine.url}{RESIDENCY}?judge")
    [worker] = told["workers"]
    names = {number: name for name, number in told["names"].items()}
    return [
        (names[number], RESIDENT if number in worker["gpu_slots"] else HOST)
        for number in worker["cpu_cached"]
        if number in names
    ]


async def agrees(node: Node, engine: RealEngine) -> None:
    """What the agent tells soon is what the engine holds."""
    truth = held(engine)
    await node.told(
        lambda: (
            [(r.adapter, r.state) for r in node.state.residents if r.state in (RESIDENT, HOST)]
            == truth
        )
    )
    assert {r.source for r in node.state.residents} == {ResidencySource.INFERRED}


async def test_an_agent_beside_it_from_the_first_load_to_the_engines_death(
    node: Node, engine: RealEngine
) -> None:
    for name in ("ad0", "ad1", "ad2", "ad3"):
        assert await node.ensured(name) is EnsureOutcome.RESIDENT
        await node.served(f"{name}~1")
    await agrees(node, engine)
    assert [tier for _, tier in held(engine)] == [HOST, HOST, RESIDENT, RESIDENT]

    assert await node.ensured("ad0") is EnsureOutcome.ON_REQUEST
    await node.served("ad0~1")
    await agrees(node, engine)
    assert held(engine)[-2:] == [("ad3~1", RESIDENT), ("ad0~1", RESIDENT)]

    await node.plan(1, EnginePlan(engine=ENGINE, unload=(EngineAdapter("ad1~1"),)))
    await node.told(lambda: "ad1~1" not in node.state.registered)
    assert "ad1~1" not in {model["id"] for model in get_json(f"{engine.url}/v1/models")["data"]}
    await agrees(node, engine)

    engine.process.kill()
    await eventually(lambda: node.state.status is EngineStatus.UNREACHABLE, within_s=1.0)
