"""A region for the gateway that is measured: NATS, Redis, telemetry, and agents that tell.

All of it is as users run it but the agents: one task here tells for all nodes, as often and in the
same messages as their agents would, with figures that change. Every adapter is resident on one
engine, so that requests need no load.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from axiom_cli.admin import Target, admin_of
from axiom_cli.bench.peers import MODEL, Router
from axiom_cli.bench.prefix_facts import tell_facts, write_model
from axiom_cli.bench.processes import running
from axiom_cli.key_files import key_file
from axiom_cli.stack.ports import reserved_ports
from axiom_cli.stack.servers import HOST, NATS, VALKEY
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec, AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, NodeState
from axiom_common.model.ids import NodeId, RegionId, engine_id
from axiom_common.ports.bus import Bus
from axiom_common.state.region_view import EngineBeat, NodeBeat
from axiom_common.wire import subjects
from axiom_common.wire.reports import BEAT_MS, FULL_EVERY_MS, encode_node_report

REGION = RegionId("bench")
ADAPTER = "bench-{:07}"
"""The number is as wide as the mark that the load generator replaces."""
ENGINES_A_NODE = 8
FULL_EVERY_BEATS = round(FULL_EVERY_MS / BEAT_MS)
RANK = 16
READY_TIMEOUT_S = 60.0
POLL_S = 0.05


def adapter_specs(count: int) -> list[AdapterSpec]:
    """The adapters that are declared, by number."""
    names = [ADAPTER.format(number) for number in range(count)]
    return [
        AdapterSpec(name=name, base_model=MODEL, revision=1, path=f"/adapters/{name}", rank=RANK)
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class Gateways:
    """How gateways of a region are started. `common` are the settings that all of them share."""

    folder: Path
    common: Mapping[str, object]

    def router(self, name: str, module: str, *, port: int, **settings: object) -> Router:
        """One of that name: a module that is run as `axiom_gateway` is."""
        told = {**self.common, "gateway": name, "port": port, "ops_port": 0, **settings}
        told["admin_key_file"] = str(self._key_file)
        return Router(argv=_service(name, module, self.folder, told), port=port)

    def target(self, router: Router) -> Target:
        """How the admin API of one is asked."""
        return Target(f"http://{HOST}:{router.port}", key_file(self._key_file))

    @property
    def _key_file(self) -> Path:
        return self.folder / "admin.key"


@contextlib.asynccontextmanager
async def region(
    folder: Path, engine_ports: range, adapters: Sequence[AdapterSpec], *, core: int
) -> AsyncIterator[Gateways]:
    """Start everything but gateways; gives how they are started."""
    async with contextlib.AsyncExitStack() as stack:
        names = ("nats", "valkey", "telemetry")
        ports = stack.enter_context(reserved_ports([(name, 0) for name in names]))
        for kind in (NATS, VALKEY):
            data = folder / kind.name
            data.mkdir()
            command = kind.command(data, ports[kind.name])
            log_path = folder / f"{kind.name}.log"
            process = await stack.enter_async_context(
                running(command, log_path=log_path, core=core)
            )
            while not await asyncio.to_thread(kind.serves, ports[kind.name]):
                process.check()
                await asyncio.sleep(POLL_S)
        common = {
            "region": REGION,
            "nats_url": NATS.url(ports["nats"]),
            "redis_url": VALKEY.url(ports["valkey"]),
            "host": HOST,
        }
        told = common | {"port": ports["telemetry"]}
        telemetry = _service("telemetry", "axiom_telemetry", folder, told)
        log_path = folder / "telemetry.log"
        await stack.enter_async_context(running(telemetry, log_path=log_path, core=core))
        nodes = _nodes(engine_ports, adapters)
        model = folder / "model"
        model.mkdir()
        revision = write_model(model)
        await stack.enter_async_context(_told(nodes, common["nats_url"], revision))
        prompts = [{"base_model": MODEL, "tokenizer": str(model)}]
        yield Gateways(folder, common | {"prompts": prompts})


async def declare(target: Target, adapters: Sequence[AdapterSpec], engines: int) -> None:
    """Declare the models at a gateway that begins to serve, and wait until it sees all engines."""
    async with asyncio.timeout(READY_TIMEOUT_S), admin_of(target) as admin:
        while True:
            try:
                await admin.put_base_model(MODEL)
                for spec in adapters:
                    await admin.put_adapter(spec)
                seen = await admin.engines()
            except UnavailableError:
                seen = ()
            if sum(engine.status == "ready" for engine in seen) == engines:
                return
            await asyncio.sleep(POLL_S)


def _service(
    name: str, module: str, folder: Path, settings: Mapping[str, object]
) -> tuple[str, ...]:
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(dict(settings)))
    return (sys.executable, "-m", module, "--config", str(config))


def _nodes(engine_ports: range, adapters: Sequence[AdapterSpec]) -> list[NodeState]:
    nodes = []
    for first in range(0, len(engine_ports), ENGINES_A_NODE):
        node = NodeId(f"node-{first // ENGINES_A_NODE + 1}")
        numbers = range(first, min(first + ENGINES_A_NODE, len(engine_ports)))
        engines = tuple(
            _engine(node, engine_ports[number], adapters[number :: len(engine_ports)])
            for number in numbers
        )
        nodes.append(NodeState(region=REGION, node=node, incarnation=1, seq=0, engines=engines))
    return nodes


def _engine(node: NodeId, port: int, adapters: Sequence[AdapterSpec]) -> EngineState:
    held = tuple(spec.engine_name for spec in adapters)
    return EngineState(
        engine=engine_id(node, f"engine-{port}"),
        url=f"http://{HOST}:{port}",
        base_model=MODEL,
        served_name=MODEL,
        status=EngineStatus.READY,
        limits=EngineLimits(hbm_slots=max(4, len(held)), host_slots=16, max_lora_rank=64),
        sample=1,
        kv_usage=0.2,
        ttft_ms=50.0,
        tpot_ms=8.0,
        # They answer at once, whatever the prompt: as a real prefill, eight prompts of 128 kB would
        # be held back for a while, and the wait measured.
        prefill_ms_per_token=0.0005,
        residents=tuple(
            Residency(
                adapter=name,
                state=AdapterState.RESIDENT,
                source=ResidencySource.EXTENSION,
                in_flight=0,
            )
            for name in held
        ),
        registered=held,
    )


@contextlib.asynccontextmanager
async def _told(nodes: Sequence[NodeState], nats_url: str, revision: str) -> AsyncIterator[None]:
    """Tell of the nodes on every beat, and what prompts they hold, while the body runs."""
    clock = SystemClock()
    connection = NatsConnection(nats_url, name="bench", clock=clock)
    bus = NatsBus(connection)
    async with asyncio.TaskGroup() as group:
        await connection.start(group)
        tasks = [
            group.create_task(_tell(nodes, bus), name="tell of all nodes"),
            group.create_task(tell_facts(nodes, bus, revision), name="tell facts"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await bus.close()
            await connection.close()


async def _tell(nodes: Sequence[NodeState], bus: Bus) -> None:
    """Every node once a beat, spread over it: whole at first and now and then, else its figures."""
    bases = [0] * len(nodes)
    for seq in itertools.count(1):
        for number, node in enumerate(nodes):
            if seq == 1 or (seq + number) % FULL_EVERY_BEATS == 0:
                bases[number] = seq
            is_whole = bases[number] == seq
            report = _whole(node, seq) if is_whole else _beat(node, seq, bases[number])
            # A bus that is away for a moment is told by the next beat.
            with contextlib.suppress(UnavailableError):
                await bus.publish(
                    subjects.node_report(REGION, node.node), encode_node_report(report)
                )
            await asyncio.sleep(BEAT_MS / 1e3 / len(nodes))


def _whole(node: NodeState, seq: int) -> NodeState:
    return replace(node, seq=seq, engines=tuple(_busy(engine, seq) for engine in node.engines))


def _beat(node: NodeState, seq: int, base: int) -> NodeBeat:
    return NodeBeat(
        region=node.region,
        node=node.node,
        incarnation=node.incarnation,
        seq=seq,
        base=base,
        engines=tuple(EngineBeat(e.engine, _busy(e, seq).figures) for e in node.engines),
    )


def _busy(engine: EngineState, seq: int) -> EngineState:
    """The engine with figures that differ a little from beat to beat."""
    return replace(
        engine, sample=seq, running=seq % 4, kv_usage=0.2 + seq % 10 / 100, tpot_ms=8 + seq % 3 / 10
    )
