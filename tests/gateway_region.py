"""A region in one process: simulated engines and a gateway on real sockets, a real agent, and the
bus and stores in memory, where they can be taken away."""

from __future__ import annotations

import asyncio
import io
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.cache_parts import put_state
from tests.eventually import eventually
from tests.owner import TestOwner, task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId, engine_id
from axiom_common.ports.gpu import Gpus
from axiom_common.ports.tracing import Tracer
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.tracing import NO_TRACER
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.gpus import FakeGpus
from axiom_common.testing.host import FakeHost
from axiom_common.testing.journal import FakeJournal
from axiom_common.testing.registry import FakeRegistry
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import desired, keys, subjects
from axiom_common.wire import headers as names
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import ResyncRequest, encode
from axiom_gateway.app import GatewayApp
from axiom_gateway.settings import GatewaySettings
from axiom_node_agent.app import AgentApp
from axiom_node_agent.node_engines import EngineLink
from axiom_node_agent.settings import AgentSettings
from axiom_sim.engine.engine import EngineConfig, SimulatedEngine
from axiom_sim.engine.server import EngineServer

REGION = RegionId("r")
NODE = NodeId("node")
BASE_MODEL = "base"
HOST = "127.0.0.1"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ADMIN_SECRET = "axk-of-the-admin-of-a-region-in-a-test"


class SimEngine:
    """One simulated engine behind a socket that can be torn away and come back."""

    def __init__(self, name: str, owner: TestOwner, config: EngineConfig) -> None:
        self.id = engine_id(NODE, name)
        self.name = name
        self._owner = owner
        self._config = config
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start with nothing loaded, on the same port as before."""
        self.sim = SimulatedEngine(self._config, SystemClock())
        self._loop = self._owner.create_task(self.sim.loop.run(), name=f"steps of {self.name}")
        self._server = HttpServer(EngineServer(self.sim), host=HOST, port=self._port, drain_s=0)
        self._port = self._server.port
        self._serving = self._owner.create_task(self._server.serve(), name=f"http of {self.name}")

    async def kill(self) -> None:
        """What kill -9 looks like from outside: every connection reset, nobody listening."""
        server = self._server._server
        await eventually(lambda: server.started)
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        for listener in server.servers:
            listener.close()
        server.force_exit = True
        await self.stop()

    async def stop(self) -> None:
        """End; stopping twice does nothing."""
        self._server.stop()
        await self._serving
        self._loop.cancel()

    @property
    def running(self) -> int:
        """Requests in the engine, waiting ones included."""
        return self.sim.loop.in_flight


class Region:
    """What a test holds: the parts, a client, and the faults."""

    def __init__(self, owner: TestOwner) -> None:
        self.owner = owner
        self.clock = SystemClock()
        self.hub = FakeHub()
        self.registry = FakeRegistry(owner, self.clock)
        self.cache = FakeShadowCache(REGION, self.clock)
        self.journal = FakeJournal()
        self.agent_bus = FakeBus(owner, self.hub)
        self.engines: list[SimEngine] = []
        self.agent: AgentApp | None = None

    async def start_agent(
        self,
        *,
        names_ms: float = 200.0,
        gpus: Gpus | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """One GPU an engine, by the order of both."""
        settings = AgentSettings(
            region=REGION,
            node=NODE,
            beat_ms=100,
            poll_ms=100,
            names_ms=names_ms,
            engines=tuple(
                {
                    "name": engine.name,
                    "url": engine.url,
                    "base_model": BASE_MODEL,
                    "hbm_slots": engine._config.max_loras,
                    "host_slots": engine._config.max_cpu_loras,
                    "max_num_seqs": engine._config.max_num_seqs or 64,
                    "gpus": (number,),
                }
                for number, engine in enumerate(self.engines)
            ),
        )
        self.drivers = {engine.id: VllmEngine(engine.url) for engine in self.engines}
        self.agent = AgentApp(
            settings,
            bus=self.agent_bus,
            registry=self.registry,
            connect=lambda engine: EngineLink(engine=self.drivers[engine_id(NODE, engine.name)]),
            gpus=gpus or FakeGpus(),
            host=FakeHost(),
            clock=self.clock,
            life=uuid.uuid4().hex,
            on_superseded=self._superseded,
            tracer=tracer,
        )
        await self.agent.start(self.owner)

    async def stop_agent(self) -> None:
        """Without a last word, as when its host dies."""
        assert self.agent is not None
        self.agent_bus.disconnect()
        await self.agent.stop()
        self.agent = None

    def _superseded(self) -> None:
        raise AssertionError("one agent at a time")

    async def start_gateway(
        self,
        *,
        tracer: Tracer = NO_TRACER,
        admin_secret: str | None = ADMIN_SECRET,
        **settings: Any,
    ) -> Gateway:
        told = GatewaySettings(region=REGION, **({"gateway": "gw"} | settings))
        gateway = Gateway(self, told, tracer, admin_secret)
        await gateway.start()
        return gateway

    async def declare(self, *names: str) -> None:
        bucket = await self.registry.bucket(keys.DESIRED_BUCKET)
        for name in names:
            spec = AdapterSpec(
                name=name, base_model=BASE_MODEL, revision=1, path=f"/{name}", rank=8
            )
            await bucket.put(desired.key_for(AdapterSpec, name), desired.encode(spec))

    async def fill_cache(self) -> None:
        """What the telemetry service would do: put the node's whole state into the cache."""
        seen: list[NodeState] = []

        async def keep(subject: str, payload: bytes) -> None:
            report = decode_node_report(subject, payload)
            if isinstance(report, NodeState) and report.engines[0].served_name:
                seen.append(report)

        bus = FakeBus(self.owner, self.hub)
        await bus.subscribe(subjects.all_node_reports(REGION), keep)
        await bus.publish(subjects.node_resync(REGION, NODE), encode(ResyncRequest(asker="test")))
        await eventually(lambda: seen)
        await put_state(self.cache, seen[0])

    def engine(self, engine: str | EngineId) -> SimEngine:
        return next(e for e in self.engines if e.id == engine)


class Answer:
    """A whole answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json["error"])

    @property
    def engine(self) -> str:
        return self.headers["x-axiom-engine"]

    @property
    def events(self) -> list[Any]:
        lines = [line for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [line[6:] if line == b"data: [DONE]" else json.loads(line[6:]) for line in lines]


def key_header(secret: str) -> dict[str, str]:
    """What a request with this key carries."""
    return {names.AUTHORIZATION: f"Bearer {secret}"}


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status, headers, await response.read())


class Gateway:
    """A gateway on a socket, and a client of it who has the admin's key if it has one."""

    def __init__(
        self,
        region: Region,
        settings: GatewaySettings,
        tracer: Tracer = NO_TRACER,
        admin_secret: str | None = ADMIN_SECRET,
        bus: Any = None,
    ) -> None:
        self.region = region
        self.shown: list[str] = []
        """What it showed of a first key."""
        self._keys = key_header(admin_secret) if admin_secret is not None else {}
        self.bus = bus or FakeBus(region.owner, region.hub)
        self.app = GatewayApp(
            settings,
            bus=self.bus,
            registry=region.registry,
            cache=region.cache,
            journal=region.journal,
            clock=region.clock,
            nonce=settings.gateway,
            admin_secret=admin_secret,
            show=self.shown.append,
            tracer=tracer,
        )
        self._drain_s = settings.drain_ms / 1e3 + 2

    async def start(self) -> None:
        owner = self.region.owner
        self.asgi = await self.app.start(owner)
        self._server = HttpServer(self.asgi, host=HOST, port=0, drain_s=self._drain_s)
        self.url = f"http://{HOST}:{self._server.port}"
        self._serving = owner.create_task(self._server.serve(), name="gateway http")
        self.client = aiohttp.ClientSession(self.url, headers=self._keys)
        self._ops = HttpServer(self.app.ops(), host=HOST, port=0)
        self._ops_url = f"http://{HOST}:{self._ops.port}"
        self._serving_ops = owner.create_task(self._ops.serve(), name="gateway ops")

    async def stop(self) -> None:
        self._server.stop()
        await self.app.drain()
        await self._serving
        await self.app.stop()
        await self.client.close()
        self._ops.stop()
        await self._serving_ops

    async def sees(self, *engines: EngineId | str) -> None:
        """Wait until these engines may be chosen."""
        known = self.app.state.engines

        def seen() -> bool:
            return all(
                e in known and (row := known[EngineId(e)].row) is not None and row.refusal is None
                for e in engines
            )

        await eventually(seen)

    async def knows(self, *names: str) -> None:
        """Wait until these models may be used."""
        catalog = self.app.state.catalog
        await eventually(lambda: all(catalog.resolve(name, None) for name in names))

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(path, data=io.BytesIO(data), headers=headers) as response:
            return await _answer(response)

    async def get(self, path: str, **headers: str) -> Answer:
        async with self.client.get(path, headers=headers) as response:
            return await _answer(response)

    async def ops(self, path: str) -> Answer:
        """Of health and metrics, asked without a key."""
        async with aiohttp.request("GET", self._ops_url + path) as response:
            return await _answer(response)

    async def ask(self, model: str, *, stream: bool = False, tokens: int = 4) -> Answer:
        body = {"model": model, "prompt": "hi", "max_tokens": tokens, "stream": stream}
        return await self.post(COMPLETIONS, body)

    def counted(self, metric: str, **labels: str) -> float:
        registry = self.app.metrics.registry
        return registry.get_sample_value(f"axiom_gateway_{metric}", labels) or 0.0

    @property
    def booked(self) -> dict[tuple[EngineId, EngineAdapter], int]:
        return dict(self.app.state.vector())


@asynccontextmanager
async def region_of(
    engines: int = 2, *, agent: bool = True, **config: Any
) -> AsyncIterator[Region]:
    """A region with that many engines, 20 times faster than real unless `config` says otherwise."""
    shape = EngineConfig(
        **({"served_model_name": BASE_MODEL, "max_loras": 2, "time_scale": 20.0} | config)
    )
    async with task_owner() as owner:
        region = Region(owner)
        region.engines = [SimEngine(f"e{n + 1}", owner, shape) for n in range(engines)]
        if agent:
            await region.start_agent()
        yield region
        if region.agent is not None:
            await region.stop_agent()
        await asyncio.gather(*(engine.stop() for engine in region.engines))
        for driver in getattr(region, "drivers", {}).values():
            await driver.close()


@asynccontextmanager
async def served(region: Region, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway of the region that sees all its engines."""
    gateway = await region.start_gateway(**settings)
    await gateway.sees(*(engine.id for engine in region.engines))
    try:
        yield gateway
    finally:
        await gateway.stop()


def engines_of(answers: Sequence[Answer]) -> set[str]:
    """Who served."""
    return {answer.engine for answer in answers}
