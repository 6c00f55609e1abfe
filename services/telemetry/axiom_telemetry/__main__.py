"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import asyncio
import uuid

from starlette.applications import Starlette

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.ids import RegionId
from axiom_common.runtime.command_line import run_service
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import ops_routes
from axiom_telemetry.app import TelemetryApp
from axiom_telemetry.settings import TelemetrySettings

SERVICE = "telemetry"


async def serve(settings: TelemetrySettings, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    """Run the service until `stop`."""
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(
        settings.nats_url,
        name=f"{SERVICE}.{settings.telemetry}",
        clock=clock,
        credentials=NatsCredentials.of(settings),
    )
    bus = NatsBus(connection)
    cache = RedisShadowCache(settings.redis_url, RegionId(settings.region))
    app = TelemetryApp(
        settings,
        # Instances that share a region must differ, whatever name they were given.
        instance=f"{settings.telemetry}-{uuid.uuid4().hex[:8]}",
        bus=bus,
        registry=NatsRegistry(connection, replicas=settings.nats_replicas),
        cache=cache,
        clock=clock,
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
    await cache.close()


def main() -> None:
    """Entry point of `axiom-telemetry`."""
    run_service(
        SERVICE,
        TelemetrySettings,
        serve,
        about="Keeps a region's shadow cache from its nodes' reports.",
        flags={"telemetry": "name of this process, where a region has several"},
    )


if __name__ == "__main__":
    main()
