"""A region whose engine is an SGLang: agent and gateway on the simulated server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.eventually import eventually
from tests.gateway_region import BASE_MODEL, HOST, NODE, REGION, Gateway, Region, SimEngine, served
from tests.owner import task_owner

from axiom_common.drivers.sglang_engine import SglangEngine as SglangDriver
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.adapter import AdapterState
from axiom_common.model.ids import EngineAdapter
from axiom_common.runtime.http_server import HttpServer
from axiom_common.testing.gpus import FakeGpus
from axiom_common.testing.host import FakeHost
from axiom_node_agent.app import AgentApp
from axiom_node_agent.node_engines import EngineLink
from axiom_node_agent.settings import AgentSettings
from axiom_sim.engine.engine import EngineConfig
from axiom_sim.sglang.engine import SglangEngine
from axiom_sim.sglang.server import SglangServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTS = ("ant", "bee", "cat", "dog", "eel")
HOST_SLOTS = 4


class SimSglang(SimEngine):
    """Its base model has one slot, so adapters have two."""

    sim: SglangEngine

    def start(self) -> None:
        self.sim = SglangEngine(self._config, SystemClock())
        self._loop = self._owner.create_task(self.sim.loop.run(), name="steps")
        self._server = HttpServer(SglangServer(self.sim), host=HOST, port=self._port, drain_s=0)
        self._port = self._server.port
        self._serving = self._owner.create_task(self._server.serve(), name="http")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region() -> AsyncIterator[Region]:
    shape = EngineConfig(
        served_model_name=BASE_MODEL, max_loras=3, max_cpu_loras=HOST_SLOTS, time_scale=20.0
    )
    async with task_owner() as owner:
        region = Region(owner)
        engine = SimSglang("e1", owner, shape)
        region.engines = [engine]
        told = {"name": "e1", "url": engine.url, "kind": "sglang", "base_model": BASE_MODEL}
        settings = AgentSettings(
            region=REGION,
            node=NODE,
            beat_ms=100,
            poll_ms=100,
            names_ms=200,
            engines=(told | {"host_slots": HOST_SLOTS},),
        )
        driver = SglangDriver(engine.url)
        agent = AgentApp(
            settings,
            bus=region.agent_bus,
            registry=region.registry,
            connect=lambda _: EngineLink(engine=driver),
            gpus=FakeGpus(),
            host=FakeHost(),
            clock=region.clock,
            life=uuid.uuid4().hex,
            on_superseded=region._superseded,
        )
        await agent.start(owner)
        await region.declare(*BOTS)
        yield region
        await agent.stop()
        await engine.stop()
        await driver.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        await gateway.knows(*BOTS)
        yield gateway


def sim_of(region: Region) -> SglangEngine:
    sim = region.engines[0].sim
    assert isinstance(sim, SglangEngine)
    return sim


def held(gateway: Gateway, *states: AdapterState) -> set[str]:
    """What the gateway believes that the engine holds."""
    [facts] = gateway.app.state.engines.values()
    return {r.adapter for r in facts.state.residents if r.state in states}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_sees_its_own_names(gateway: Gateway, stream: bool) -> None:
    texts = []
    for model in ("ant", BASE_MODEL):
        answer = await gateway.ask(model, stream=stream)
        assert answer.status == 200, answer.body
        first = answer.events[0] if stream else answer.json
        assert first["model"] == model
        assert b"~" not in answer.body
        texts.append(first["choices"][0]["text"])
    assert texts[0] != texts[1]


async def test_the_slots_are_those_that_adapters_have(gateway: Gateway) -> None:
    [facts] = gateway.app.state.engines.values()
    assert facts.state.kind == "sglang"
    assert facts.state.limits.hbm_slots == 2
    assert facts.state.limits.kv_tokens is not None


async def test_more_adapters_than_the_engine_has_names_for(
    region: Region, gateway: Gateway
) -> None:
    for model in (*BOTS, *reversed(BOTS), *BOTS):
        answer = await gateway.ask(model)
        assert (answer.status, answer.json["model"]) == (200, model)
    sim = sim_of(region)
    assert len(sim.names.all()) == HOST_SLOTS
    assert sim.slots.activations >= len(BOTS)

    def agrees() -> bool:
        in_hbm = {adapter.name for adapter in sim.slots.hbm}
        in_host = {adapter.name for adapter in sim.slots.host} - in_hbm
        return (
            held(gateway, AdapterState.RESIDENT) == in_hbm
            and held(gateway, AdapterState.HOST) == in_host
        )

    await eventually(agrees)


async def test_an_adapter_that_was_unloaded_by_hand_is_loaded_again(
    region: Region, gateway: Gateway
) -> None:
    assert (await gateway.ask("ant")).status == 200
    sim = sim_of(region)
    name = EngineAdapter("ant~1")
    await sim.unload(name)
    sim.names._paths.pop(name)
    assert (await gateway.ask("ant")).status == 200
    assert name in {adapter.name for adapter in sim.slots.hbm}
