"""`axiom doctor`: is what Axiom needs here, and what to do where it is not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import aiohttp
from pydantic_settings import SettingsConfigDict
from rich.table import Table
from rich.text import Text

from axiom_cli.admin import Target, admin_of
from axiom_cli.admin_client import NoAnswerError
from axiom_cli.checks import Check, Verdict
from axiom_cli.nats_check import nats_check
from axiom_cli.output import print_figures, table_console
from axiom_cli.stack.servers import HOST, nats_binary, valkey_binary
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.drivers.nvml_reader import NvmlReader
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.errors import AxiomError, NotFoundError, SettingsError, UnavailableError
from axiom_common.model.ids import RegionId
from axiom_common.runtime.settings import ServiceSettings, load_settings, without_users

PROBE_TIMEOUT_S = 3.0
PYTHON_MIN = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look at. Where a server's URL is given it must answer; else its binary must be here,
    for `axiom up` to start one, unless there is a gateway. `credentials` are for NATS."""

    port: int
    gateway: Target
    nats_url: str | None = None
    credentials: NatsCredentials = field(default_factory=NatsCredentials)
    redis_url: str | None = None
    engine_urls: tuple[str, ...] = ()


class _Servers(ServiceSettings):
    # A service's file has more than what all services have.
    model_config = SettingsConfigDict(extra="ignore")


def settings_of_servers(config: Path | None, **flags: str | None) -> ServiceSettings:
    """Where NATS and Redis are, and who one is to NATS, from where services have it: flags, the
    environment, the file `config`. SettingsError; `model_fields_set` has what any of them names."""
    return load_settings(_Servers, config=config, **flags)


async def doctor(wanted: Wanted, *, as_json: bool) -> bool:
    """Run all checks and print them; False when something needed is broken."""
    checks = await examine(wanted)
    healthy = all(check.verdict is not Verdict.BROKEN for check in checks)
    if as_json:
        print_figures({"healthy": healthy, "checks": [asdict(check) for check in checks]})
    else:
        table_console().print(doctor_table(checks))
    return healthy


async def examine(wanted: Wanted) -> list[Check]:
    """All checks, in the order in which a person would mend things. No secret is in them."""
    gateway_check, found_urls = await _gateway(wanted.gateway)
    engine_urls = wanted.engine_urls or found_urls
    alone = gateway_check.verdict is Verdict.MISSING
    checks = [
        _python(),
        await _nats(wanted, needed=alone),
        await _redis(wanted.redis_url, needed=alone),
        _nvml(),
        _port(wanted.port, own=gateway_check.verdict is Verdict.OK),
        gateway_check,
        *await asyncio.gather(*(_engine(url) for url in engine_urls)),
    ]
    return [replace(check, detail=without_users(check.detail)) for check in checks]


def doctor_table(checks: Sequence[Check]) -> Table:
    """One row a check, with what to do beneath the detail."""
    styles = {
        Verdict.OK: "green",
        Verdict.MISSING: "yellow",
        Verdict.UNCHECKED: "yellow",
        Verdict.BROKEN: "bold red",
    }
    table = Table(box=None, header_style="bold")
    for head in ("check", "verdict", "detail"):
        table.add_column(head, overflow="fold")
    for check in checks:
        detail = check.detail + (f"\n-> {check.advice}" if check.advice else "")
        verdict = Text(check.verdict, style=styles[check.verdict])
        table.add_row(Text(check.name), verdict, Text(detail))
    return table


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < PYTHON_MIN:
        return Check(
            name="python",
            verdict=Verdict.BROKEN,
            detail=found,
            advice="install Python 3.11 or later",
        )
    return Check(name="python", verdict=Verdict.OK, detail=found)


async def _nats(wanted: Wanted, *, needed: bool) -> Check:
    if wanted.nats_url is None:
        return _binary("nats", nats_binary, flag="--nats-url", needed=needed)
    return await nats_check(wanted.nats_url, wanted.credentials, timeout_s=PROBE_TIMEOUT_S)


async def _redis(url: str | None, *, needed: bool) -> Check:
    if url is None:
        return _binary("redis", valkey_binary, flag="--redis-url", needed=needed)
    try:
        cache = RedisShadowCache(url, RegionId("doctor"), call_timeout_s=PROBE_TIMEOUT_S)
        try:
            await cache.ping()
        finally:
            await cache.close()
    except (SettingsError, UnavailableError) as error:
        return _unreachable("redis", url, error, "start valkey-server there, or mend the URL")
    return Check(name="redis", verdict=Verdict.OK, detail=f"{url} answers")


def _binary(name: str, find: Callable[[], Path], *, flag: str, needed: bool) -> Check:
    """The binary that `axiom up` would start, and its version. Not `needed`: a gateway has a server
    already, wherever it is, and tells below what it lacks."""
    if not needed:
        return Check(
            name=name,
            verdict=Verdict.UNCHECKED,
            detail="not asked: only the gateway below is",
            advice=f"name it with {flag} or --config to ask it too",
        )
    try:
        path = find()
        told = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        ).stdout
    except (NotFoundError, OSError, subprocess.SubprocessError) as error:
        return Check(
            name=name,
            verdict=Verdict.BROKEN,
            detail=str(error),
            advice=f"install axiom[embedded], or name a running server with {flag}",
        )
    return Check(name=name, verdict=Verdict.OK, detail=f"{path}: {told.strip()[:80]}")


def _nvml() -> Check:
    gpus = NvmlReader().look(0.0)
    if not gpus:
        return Check(
            name="nvml",
            verdict=Verdict.MISSING,
            detail="no NVML library or no GPU here",
            advice="nothing to do on a host without GPUs; on a GPU host install the driver, "
            "else temperatures and throttling stay unknown",
        )
    names = sorted({gpu.name or "unknown" for gpu in gpus})
    return Check(name="nvml", verdict=Verdict.OK, detail=f"{len(gpus)} GPUs: {', '.join(names)}")


def _port(port: int, *, own: bool) -> Check:
    name = f"port {port}"
    if own:
        return Check(name=name, verdict=Verdict.OK, detail="in use by the gateway below")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return Check(
                name=name,
                verdict=Verdict.BROKEN,
                detail=str(error.strerror or error),
                advice="end the process that listens there, or choose another with --port",
            )
    return Check(name=name, verdict=Verdict.OK, detail="free")


async def _gateway(target: Target) -> tuple[Check, tuple[str, ...]]:
    """The gateway's check, and the URLs of the engines that it knows."""
    try:
        async with admin_of(target) as admin:
            status = await admin.status()
            engines = await admin.engines()
    except NoAnswerError as error:
        check = Check(
            name="gateway",
            verdict=Verdict.MISSING,
            detail=str(error).partition(": start")[0],
            advice="start one with `axiom up`, or name one with --url or --context",
        )
        return check, ()
    except AxiomError as error:
        # A gateway that answers and refuses says itself what to do.
        return Check(name="gateway", verdict=Verdict.BROKEN, detail=str(error)), ()
    if lacks := {name for region in status.regions.values() for name in region.degraded}:
        advice = "see `axiom status` for what it lacks, and the gateway's log"
        detail = ", ".join(sorted(lacks))
        check = Check(name="gateway", verdict=Verdict.BROKEN, detail=detail, advice=advice)
    else:
        detail = f"{target.url} is ready, knows {len(engines)} engines"
        check = Check(name="gateway", verdict=Verdict.OK, detail=detail)
    return check, tuple(engine.url for engine in engines)


async def _engine(url: str) -> Check:
    name = f"engine {url}"
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    advice = "start the engine, or mend its URL in the node agent's settings"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url.rstrip("/") + "/health") as response,
        ):
            if response.status == 200:
                return Check(name=name, verdict=Verdict.OK, detail="healthy")
            detail = f"/health answers {response.status}"
            return Check(name=name, verdict=Verdict.BROKEN, detail=detail, advice=advice)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        return _unreachable(name, url, error, advice)


def _unreachable(name: str, url: str, error: Exception, advice: str) -> Check:
    cause = str(error) or type(error).__name__
    return Check(
        name=name, verdict=Verdict.BROKEN, detail=f"{url} gives no answer: {cause}", advice=advice
    )
