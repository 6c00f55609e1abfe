"""The process: settings and real drivers, then the app until a signal."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import stat
from pathlib import Path

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nats_journal import NatsJournal
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.tracers import otlp_tracer
from axiom_common.errors import SettingsError
from axiom_common.model.ids import RegionId
from axiom_common.policy.profile import BUILT_IN
from axiom_common.ports.clock import Clock
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import Log, set_up_logging
from axiom_common.runtime.native import which_runs
from axiom_common.runtime.settings import exit_on_bad_settings, load_settings, read_secret
from axiom_common.runtime.tracing import NO_TRACER
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import MESSAGE_BYTES_MAX
from axiom_gateway.app import CUT_GRACE_MS, GatewayApp
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.settings import GatewaySettings

SERVICE = "gateway"


async def serve(
    settings: GatewaySettings,
    admin_secret: str | None,
    cache: RedisShadowCache,
    texts: PromptTexts,
    group: asyncio.TaskGroup,
    stop: asyncio.Event,
    kind: type[GatewayApp],
) -> None:
    """Run a gateway of that kind until `stop`, then drain it."""
    clock = SystemClock()
    connection = NatsConnection(
        settings.nats_url,
        name=f"{SERVICE}.{settings.gateway}",
        clock=clock,
        credentials=NatsCredentials.of(settings),
    )
    bus = NatsBus(connection)
    tracer = otlp_tracer(
        settings.otlp_endpoint,
        ratio=settings.trace_ratio,
        service=SERVICE,
        instance=settings.gateway,
        region=settings.region,
        clock=clock,
    )
    app = kind(
        settings,
        bus=bus,
        registry=NatsRegistry(connection, replicas=settings.nats_replicas),
        cache=cache,
        journal=_journal(connection, settings, clock),
        clock=clock,
        nonce=secrets.token_hex(6),
        admin_secret=admin_secret,
        tracer=tracer or NO_TRACER,
        texts=texts,
    )
    await connection.start(group)
    asgi = await app.start(group)
    drain_s = (settings.drain_ms + CUT_GRACE_MS) / 1e3 + 1.0
    server = HttpServer(asgi, host=settings.host, port=settings.port, drain_s=drain_s)
    ops = HttpServer(app.ops(), host=settings.host, port=settings.ops_port)
    serving = group.create_task(server.serve(), name="http server")
    ops_serving = group.create_task(ops.serve(), name="ops server")
    log = Log(f"axiom.{SERVICE}", clock)
    log.info("listening", port=server.port, ops_port=ops.port, kernel=which_runs())
    await stop.wait()
    server.stop()
    await app.drain()
    await serving
    await app.stop()
    ops.stop()
    await ops_serving
    await bus.close()
    await connection.close()
    await cache.close()
    if tracer is not None:
        await tracer.close()


def _journal(connection: NatsConnection, settings: GatewaySettings, clock: Clock) -> NatsJournal:
    region = RegionId(settings.region)
    return NatsJournal(
        connection,
        clock,
        keys.decision_stream(region),
        subject=subjects.all_decisions(region),
        bytes_max=settings.decisions_bytes_max,
        age_ms=settings.decisions_age_ms,
        message_bytes_max=MESSAGE_BYTES_MAX,
        replicas=settings.nats_replicas,
    )


def _warn_of_readers(key_file: Path | None) -> None:
    if key_file is not None and key_file.stat().st_mode & stat.S_IROTH:
        log = Log(f"axiom.{SERVICE}", SystemClock())
        log.warning("everybody can read the admin's key", file=str(key_file))


def main(kind: type[GatewayApp] = GatewayApp) -> None:
    """Entry point of `axiom-gateway`, and of a kind that is only measured (`axiom bench`)."""
    parser = argparse.ArgumentParser(
        prog="axiom-gateway", description="Serves the OpenAI API of a region's LoRA fleet."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    parser.add_argument("--region", help="region that this gateway serves")
    parser.add_argument("--gateway", help="name of this gateway, unique in its region")
    parser.add_argument("--nats-url", help="NATS servers, separated by commas")
    parser.add_argument("--redis-url", help="shadow cache")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port of its APIs; 0 takes a free one")
    parser.add_argument("--ops-port", type=int, help="port of health and metrics; 0: a free one")
    parser.add_argument("--admin-key-file", type=Path, help="a secret taken for an admin's")
    parser.add_argument("--otlp-endpoint", help="collector of traces; none: nothing is traced")
    parser.add_argument("--trace-ratio", type=float, help="part of the requests that are traced")
    parser.add_argument("--default-profile", help=f"one of: {', '.join(BUILT_IN)}")
    flags = vars(parser.parse_args())
    try:
        settings = load_settings(GatewaySettings, config=flags.pop("config"), **flags)
        admin_secret = read_secret(settings.admin_key_file)
        cache = RedisShadowCache(settings.redis_url, RegionId(settings.region))
        texts = PromptTexts(settings.prompts)
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging(SERVICE, settings.log_level)
    _warn_of_readers(settings.admin_key_file)
    run_process(lambda group, stop: serve(settings, admin_secret, cache, texts, group, stop, kind))


if __name__ == "__main__":
    main()
