"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from pathlib import Path

from starlette.applications import Starlette

from axiom_common.drivers.host_facts import HostFacts
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.nvml_gpus import NvmlGpus
from axiom_common.drivers.sglang_engine import SglangEngine
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.tracers import otlp_tracer
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.drivers.vllm_extension import VllmExtension
from axiom_common.errors import SettingsError
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import SGLANG
from axiom_common.runtime.command_line import run_reloading_service
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import ops_routes
from axiom_common.runtime.priority import go_first
from axiom_common.runtime.settings import SettingsSource
from axiom_common.runtime.tracing import NO_TRACER
from axiom_node_agent.app import AgentApp
from axiom_node_agent.node_engines import EngineLink
from axiom_node_agent.settings import AgentSettings, EngineSettings

SERVICE = "node-agent"


def connect(settings: EngineSettings, clock: Clock) -> EngineLink:
    """The link to one engine; SettingsError when its token can't be read."""
    extension = None
    if settings.extension_socket:
        token = ""
        if settings.extension_token_file is not None:
            try:
                token = settings.extension_token_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"extension_token_file: {error}") from error
        path = Path(settings.extension_socket)
        extension = VllmExtension(settings.url, path, clock, token=token)
    driver = SglangEngine if settings.kind == SGLANG else VllmEngine
    return EngineLink(engine=driver(settings.url), extension=extension)


async def serve(
    source: SettingsSource[AgentSettings], group: asyncio.TaskGroup, stop: asyncio.Event
) -> None:
    """Run the agent until `stop`, or until another one takes its node's name: exit code 1 then."""
    settings = source.settings
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(
        settings.nats_url,
        name=f"{SERVICE}.{settings.node}",
        clock=clock,
        credentials=NatsCredentials.of(settings),
    )
    bus = NatsBus(connection)
    superseded = asyncio.Event()

    def end_superseded() -> None:
        superseded.set()
        stop.set()

    tracer = otlp_tracer(
        settings.otlp_endpoint,
        ratio=0.0,
        service=SERVICE,
        instance=settings.node,
        region=settings.region,
        clock=clock,
    )
    app = AgentApp(
        settings,
        bus=bus,
        registry=NatsRegistry(
            connection,
            replicas=settings.nats_replicas,
            domain=settings.nats_domain,
            direct=True,
        ),
        connect=lambda engine: connect(engine, clock),
        source=source,
        gpus=NvmlGpus(clock),
        host=HostFacts(clock, adapter_dirs=settings.adapter_dirs),
        clock=clock,
        life=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        on_superseded=end_superseded,
        tracer=tracer or NO_TRACER,
    )
    server = HttpServer(
        Starlette(routes=ops_routes(app.metrics.registry, app.readiness)),
        host=settings.host,
        port=settings.port,
    )
    serving = group.create_task(server.serve(), name="http server")
    log.info("listening", port=server.port)
    await connection.start(group)
    await app.start(group)
    await stop.wait()
    server.stop()
    await serving
    await app.stop()
    await bus.close()
    await connection.close()
    if tracer is not None:
        await tracer.close()
    if superseded.is_set():
        sys.exit(1)


def main() -> None:
    """Entry point of `axiom-node-agent`."""
    go_first()
    run_reloading_service(
        SERVICE,
        AgentSettings,
        serve,
        about="Tells the state of one GPU host and loads adapters.",
        flags={"node": "name of the node"},
    )


if __name__ == "__main__":
    main()
