"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from pathlib import Path

from starlette.applications import Starlette

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import SettingsError
from axiom_common.model.ids import RegionId
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import Log, set_up_logging
from axiom_common.runtime.ops import ops_routes
from axiom_common.runtime.settings import exit_on_bad_settings, load_settings
from axiom_scheduler.app import SchedulerApp
from axiom_scheduler.settings import SchedulerSettings

SERVICE = "scheduler"


async def serve(settings: SchedulerSettings, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    """Run the scheduler until `stop`."""
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(
        settings.nats_url, name=f"{SERVICE}-{settings.scheduler}", clock=clock
    )
    bus = NatsBus(connection)
    cache = RedisShadowCache(settings.redis_url, region=RegionId(settings.region))
    app = SchedulerApp(
        settings,
        # A lease must never be taken for one's own by another process of the same name.
        holder=f"{settings.scheduler}-{uuid.uuid4().hex[:8]}",
        bus=bus,
        registry=NatsRegistry(connection),
        cache=cache,
        clock=clock,
    )
    await connection.start(group)
    await app.start(group)
    server = HttpServer(
        Starlette(routes=ops_routes(app.metrics.registry, app.readiness)),
        host=settings.host,
        port=settings.port,
    )
    serving = group.create_task(server.serve(), name="http server")
    log.info("listening", port=server.port)
    await stop.wait()
    server.stop()
    await serving
    await app.stop()
    await bus.close()
    await connection.close()
    await cache.close()


def main() -> None:
    """Entry point of `axiom-scheduler`."""
    parser = argparse.ArgumentParser(
        prog="axiom-scheduler", description="Places adapters on engines and publishes the plans."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    parser.add_argument("--region", help="region to plan for")
    parser.add_argument("--nats-url", help="NATS servers, separated by commas")
    parser.add_argument("--redis-url", help="Redis or Valkey of the shadow cache")
    parser.add_argument("--port", type=int, help="port of /healthz, /readyz and /metrics")
    flags = vars(parser.parse_args())
    try:
        settings = load_settings(SchedulerSettings, config=flags.pop("config"), **flags)
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging(SERVICE, settings.log_level)
    run_process(lambda group, stop: serve(settings, group, stop))


if __name__ == "__main__":
    main()
