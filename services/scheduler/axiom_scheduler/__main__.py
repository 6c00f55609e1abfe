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
from axiom_scheduler.app import SchedulerApp
from axiom_scheduler.settings import SchedulerSettings

SERVICE = "scheduler"


async def serve(settings: SchedulerSettings, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    """Run the scheduler until `stop`."""
    clock = SystemClock()
    log = Log(f"axiom.{SERVICE}", clock)
    connection = NatsConnection(
        settings.nats_url,
        name=f"{SERVICE}.{settings.scheduler}",
        clock=clock,
        credentials=NatsCredentials.of(settings),
    )
    bus = NatsBus(connection)
    cache = RedisShadowCache(settings.redis_url, RegionId(settings.region))
    app = SchedulerApp(
        settings,
        # A lease must never be taken for one's own by another process of the same name.
        holder=f"{settings.scheduler}-{uuid.uuid4().hex[:8]}",
        bus=bus,
        registry=NatsRegistry(connection, replicas=settings.nats_replicas),
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
    run_service(
        SERVICE,
        SchedulerSettings,
        serve,
        about="Places adapters on engines and publishes the plans.",
        flags={"scheduler": "name of this scheduler, unique in its region"},
    )


if __name__ == "__main__":
    main()
