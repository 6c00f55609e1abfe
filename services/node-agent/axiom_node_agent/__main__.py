"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import sys
from pathlib import Path

from starlette.applications import Starlette

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.nvml_gpus import NvmlGpus
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.errors import SettingsError
from axiom_common.model.ids import NodeId
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import Log, set_up_logging
from axiom_common.runtime.ops import ops_routes
from axiom_common.runtime.settings import exit_on_bad_settings, load_settings
from axiom_node_agent.app import AgentApp
from axiom_node_agent.settings import AgentSettings

SERVICE = "node-agent"


async def serve(settings: AgentSettings, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    """Run the agent until `stop`, or until another one takes its node's name: exit code 1 then."""
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(
        settings.nats_url,
        name=f"{SERVICE}.{settings.node}",
        clock=clock,
        credentials=NatsCredentials.of(settings),
    )
    bus = NatsBus(connection)
    node = NodeId(settings.node)
    engines = {e.declared(node).engine: VllmEngine(e.url) for e in settings.engines}
    superseded = asyncio.Event()

    def end_superseded() -> None:
        superseded.set()
        stop.set()

    app = AgentApp(
        settings,
        bus=bus,
        registry=NatsRegistry(connection, replicas=settings.nats_replicas),
        engines=engines,
        gpus=NvmlGpus(),
        clock=clock,
        life=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        on_superseded=end_superseded,
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
    for engine in engines.values():
        await engine.close()
    if superseded.is_set():
        sys.exit(1)


def main() -> None:
    """Entry point of `axiom-node-agent`."""
    parser = argparse.ArgumentParser(
        prog="axiom-node-agent", description="Tells the state of one GPU host and loads adapters."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    parser.add_argument("--region", help="region of the node")
    parser.add_argument("--node", help="name of the node")
    parser.add_argument("--nats-url", help="NATS servers, separated by commas")
    parser.add_argument("--port", type=int, help="port of /healthz, /readyz and /metrics")
    flags = vars(parser.parse_args())
    try:
        settings = load_settings(AgentSettings, config=flags.pop("config"), **flags)
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging(SERVICE, settings.log_level)
    run_process(lambda group, stop: serve(settings, group, stop))


if __name__ == "__main__":
    main()
