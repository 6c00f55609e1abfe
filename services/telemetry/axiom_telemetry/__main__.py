"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from starlette.applications import Starlette

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import SettingsError
from axiom_common.model.ids import RegionId
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import Log, set_up_logging
from axiom_common.runtime.ops import ops_routes
from axiom_common.runtime.settings import exit_on_bad_settings, load_settings
from axiom_telemetry.app import TelemetryApp
from axiom_telemetry.settings import TelemetrySettings

SERVICE = "telemetry"


async def serve(
    settings: TelemetrySettings,
    cache: RedisShadowCache,
    group: asyncio.TaskGroup,
    stop: asyncio.Event,
) -> None:
    """Run the service until `stop`."""
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(settings.nats_url, name=settings.instance, clock=clock)
    bus = NatsBus(connection)
    app = TelemetryApp(settings, bus=bus, cache=cache, clock=clock)
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
    await cache.close()


def main() -> None:
    """Entry point of `axiom-telemetry`."""
    parser = argparse.ArgumentParser(
        prog="axiom-telemetry", description="Keeps a region's shadow cache from its nodes' reports."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    parser.add_argument("--region", help="region whose nodes are heard")
    parser.add_argument("--instance", help="name of this process, where a region has several")
    parser.add_argument("--nats-url", help="NATS servers, separated by commas")
    parser.add_argument("--redis-url", help="redis://host:port or redis+cluster://host:port,...")
    parser.add_argument("--port", type=int, help="port of /healthz, /readyz and /metrics")
    flags = vars(parser.parse_args())
    try:
        settings = load_settings(TelemetrySettings, config=flags.pop("config"), **flags)
        cache = RedisShadowCache(settings.redis_url, RegionId(settings.region))
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging(SERVICE, settings.log_level)
    run_process(lambda group, stop: serve(settings, cache, group, stop))


if __name__ == "__main__":
    main()
