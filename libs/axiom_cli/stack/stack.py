"""The local stack as one thing: start all processes, wait until they serve, end them in order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import yaml

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.key_files import key_file
from axiom_cli.stack.ports import reserved_ports
from axiom_cli.stack.processes import ProcessDied, ProcessSpec, SupervisedProcess
from axiom_cli.stack.servers import HOST, NATS, VALKEY, ServerKind
from axiom_cli.stack.topology import (
    ADMIN_KEY,
    BASE_MODEL,
    GATEWAY,
    NATS_PROCESS,
    VALKEY_PROCESS,
    StackOptions,
    declared_adapters,
    engine_processes,
    engine_url,
    metrics_ports,
    nats_url,
    port_names,
    redis_url,
    service_process,
    services,
)
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import EngineId
from axiom_common.ports.clock import Clock

START_TIMEOUT_MS = 60_000.0
POLL_MS = 50.0
CONFIG, DATA, LOGS = "config", "data", "logs"
"""Folders of a run directory."""
OWN_VARIABLES = "AXIOM_"


def _ignore(_: object) -> None:
    """Nobody wants to hear of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack that serves. `processes` are by name, in the order of their start; `metrics_urls` by
    the name of the process."""

    options: StackOptions
    gateway: Target
    metrics_urls: Mapping[str, str]
    nats_url: str
    redis_url: str
    engine_urls: Mapping[EngineId, str]
    processes: Mapping[str, SupervisedProcess]


@asynccontextmanager
async def running_stack(
    options: StackOptions,
    *,
    on_death: Callable[[ProcessDied], None] = _ignore,
    on_step: Callable[[str], None] = _ignore,
) -> AsyncIterator[Stack]:
    """Start everything, give the stack once it is ready, end everything.

    `on_death` hears of each process that dies without being told to, `on_step` of the progress of
    the start. Raises PortTakenError, NotFoundError (a binary is missing), and UnavailableError with
    the end of the log when a part can't be brought up. Must be entered from the main thread: on
    Linux children end when the thread that started them does.
    """
    clock = SystemClock()
    wanted = [(name, 0) for name in port_names(options)]
    with reserved_ports([*wanted, (GATEWAY, options.port)]) as ports:
        layers = _layers(options, ports)
        processes = {
            spec.name: SupervisedProcess(
                spec,
                log_path=options.run_dir / LOGS / f"{spec.name}.log",
                environment=_environment(),
                clock=clock,
                on_death=on_death,
            )
            for layer in layers
            for spec in layer
        }
        stack = Stack(
            options=options,
            gateway=Target(
                f"http://{HOST}:{ports[GATEWAY]}", key_file(options.run_dir / ADMIN_KEY)
            ),
            metrics_urls={
                name: f"http://{HOST}:{ports[port]}/metrics"
                for name, port in metrics_ports(options).items()
            },
            nats_url=nats_url(options, ports),
            redis_url=redis_url(options, ports),
            engine_urls={engine: engine_url(ports, engine) for engine in options.engine_ids},
            processes=processes,
        )
        async with asyncio.TaskGroup() as group:
            try:
                await _start(stack, layers, ports, group, clock=clock, on_step=on_step)
                yield stack
            finally:
                for layer in reversed(layers):
                    await asyncio.gather(*(processes[spec.name].stop() for spec in layer))


def _layers(options: StackOptions, ports: Mapping[str, int]) -> list[list[ProcessSpec]]:
    """Processes that start and end together, in order of start: servers, engines, services,
    gateway. Writes what they read at their start."""
    run_dir = options.run_dir
    for folder in (CONFIG, DATA, LOGS):
        (run_dir / folder).mkdir(parents=True, exist_ok=True)
    servers = []
    for name, kind in _servers(ports).items():
        data_dir = run_dir / DATA / name
        data_dir.mkdir(exist_ok=True)
        servers.append(ProcessSpec(name=name, argv=tuple(kind.command(data_dir, ports[name]))))
    own = []
    for service in services(options, ports):
        config = run_dir / CONFIG / f"{service.name}.yaml"
        config.write_text(yaml.safe_dump(service.settings, sort_keys=False))
        own.append(service_process(service, config))
    return [servers, engine_processes(options, ports), own[:-1], own[-1:]]


def _servers(ports: Mapping[str, int]) -> dict[str, ServerKind]:
    kinds = {NATS_PROCESS: NATS, VALKEY_PROCESS: VALKEY}
    return {name: kind for name, kind in kinds.items() if name in ports}


def _environment() -> dict[str, str]:
    """This process's environment without Axiom's own variables: the stack's settings are all in
    files, and a variable meant for one service must not reach every one."""
    inherited = os.environ  # noqa: TID251 - handed on to children, not read
    return {name: value for name, value in inherited.items() if not name.startswith(OWN_VARIABLES)}


async def _start(
    stack: Stack,
    layers: Sequence[Sequence[ProcessSpec]],
    ports: Mapping[str, int],
    group: asyncio.TaskGroup,
    *,
    clock: Clock,
    on_step: Callable[[str], None],
) -> None:
    deadline_ms = clock.now_ms() + START_TIMEOUT_MS

    async def until(lack: Callable[[], Awaitable[str]]) -> None:
        await _until(lack, stack, clock=clock, deadline_ms=deadline_ms)

    def launch(specs: Sequence[ProcessSpec]) -> None:
        for spec in specs:
            group.create_task(stack.processes[spec.name].run(), name=f"supervise {spec.name}")

    on_step("starting servers")
    launch(layers[0])
    for name, kind in _servers(ports).items():
        await until(partial(_server_lacks, kind, ports[name]))
    on_step("starting engines and services")
    for layer in layers[1:]:
        launch(layer)
    async with admin_of(stack.gateway) as admin:
        await until(partial(_gateway_lacks, admin))
        on_step("declaring adapters")
        await until(partial(_declaration_lacks, admin, stack.options))
        on_step("waiting for the fleet's view")
        await until(partial(_fleet_lacks, admin, stack.options))


async def _until(
    lack: Callable[[], Awaitable[str]], stack: Stack, *, clock: Clock, deadline_ms: float
) -> None:
    """Ask until nothing is lacking; UnavailableError when a process died or time is up."""
    while missing := await lack():
        for process in stack.processes.values():
            if process.deaths:
                raise UnavailableError(f"{process.name} ended at its start: {process.log_end()}")
        if clock.now_ms() > deadline_ms:
            raise UnavailableError(
                f"the stack is not ready after {START_TIMEOUT_MS / 1e3:.0f} s: {missing} "
                f"(logs: {stack.options.run_dir / LOGS})"
            )
        await clock.sleep_ms(POLL_MS)


async def _server_lacks(kind: ServerKind, port: int) -> str:
    serves = await asyncio.to_thread(kind.serves, port)
    return "" if serves else f"{kind.name} does not serve"


async def _gateway_lacks(admin: Admin) -> str:
    """Whether the admin API can take declarations."""
    try:
        await admin.status()
    except UnavailableError as error:
        return str(error)
    return ""


async def _declaration_lacks(admin: Admin, options: StackOptions) -> str:
    """Declares all; what stands already stays unchanged."""
    try:
        await admin.put_base_model(BASE_MODEL)
        for spec in declared_adapters(options):
            await admin.put_adapter(spec)
    except UnavailableError as error:
        return str(error)
    return ""


async def _fleet_lacks(admin: Admin, options: StackOptions) -> str:
    """Whether the gateway knows every engine and every agent accepted a plan."""
    try:
        status, nodes, engines = await admin.status(), await admin.nodes(), await admin.engines()
    except UnavailableError as error:
        return str(error)
    if lacks := {name for region in status.regions.values() for name in region.degraded}:
        return f"the gateway lacks something: {', '.join(sorted(lacks))}"
    if away := set(options.engine_ids) - {e.engine for e in engines if e.status == "ready"}:
        return f"no word from {', '.join(sorted(away))}"
    planless = [n.node for n in nodes if n.plan is None or not n.plan.accepted]
    return f"no plan accepted by {', '.join(planless)}" if planless else ""
