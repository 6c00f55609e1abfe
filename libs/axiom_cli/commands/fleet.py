"""Commands that tell what a gateway sees: `status`, `top`, `why`, and their like."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from axiom_cli.admin import Target
from axiom_cli.admin_client import ListAsked
from axiom_cli.commands.options import (
    GATEWAY_PORT,
    AsJson,
    Filters,
    NatsUrl,
    PortNumber,
    RedisUrl,
    Sort,
)
from axiom_cli.commands.running import asks_gateway, until_interrupted
from axiom_cli.doctor import Wanted, doctor, settings_of_servers
from axiom_cli.explain import explain, question
from axiom_cli.plan_and_config import config, plan
from axiom_cli.status import status
from axiom_cli.tail import TailOptions, tail
from axiom_cli.top import TopOptions, top
from axiom_cli.why import why
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.wire import headers
from axiom_common.wire.decisions import EXPLAINED_MAX, PROMPT_CHARS_MAX, PROMPT_TOKENS_MAX

telemetry_app = typer.Typer(help="Follow what nodes tell.", no_args_is_help=True)


@asks_gateway
async def status_command(target: Target, as_json: AsJson = False) -> None:
    """What a gateway sees of its fleet."""
    await status(target, as_json=as_json)


@until_interrupted
@asks_gateway
async def top_command(
    target: Target,
    node: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Only engines with this base model or adapter.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print it once and end, as it does off a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Nodes, engines, slots with adapters, and how old each fact is, as they change; q ends it."""
    await top(
        TopOptions(
            target=target,
            nodes=tuple(node or ()),
            model=model,
            once=once or not sys.stdout.isatty(),
            as_json=as_json,
        )
    )


@asks_gateway
async def plan_command(
    target: Target,
    node: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    filters: Filters = None,
    sort: Sort = None,
    as_json: AsJson = False,
) -> None:
    """Where the scheduler wants adapters to live, and whether nodes' agents accepted that."""
    asked = ListAsked(filters=tuple(filters or ()), sort=sort)
    await plan(target, node, asked, as_json=as_json)


@asks_gateway
async def config_command(target: Target, as_json: AsJson = False) -> None:
    """The settings that a gateway runs with; secrets are not shown."""
    await config(target, as_json=as_json)


@asks_gateway
async def why_command(
    target: Target,
    decision_id: Annotated[str, typer.Argument(help=f"{headers.DECISION} of an answer.")],
    as_json: AsJson = False,
) -> None:
    """Why a request went to its engine, and what became of it. Ask the gateway that served it."""
    await why(target, decision_id, as_json=as_json)


@asks_gateway
async def explain_command(
    target: Target,
    model: Annotated[str, typer.Argument(help="A base model or an adapter.")],
    prompt_tokens: Annotated[
        int, typer.Option(min=0, max=PROMPT_TOKENS_MAX, help="Length of the prompt.")
    ] = 0,
    prompt: Annotated[
        typer.FileText | None,
        typer.Option(
            encoding="utf-8",
            errors="replace",
            help="Text of a completion's prompt, so that what engines hold of it counts. "
            "-: standard input.",
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="How to decide; else as the gateway does.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=EXPLAINED_MAX, help="Engines to show.")
    ] = EXPLAINED_MAX,
    after: Annotated[str, typer.Option(help="Only engines behind this id.")] = "",
    as_json: AsJson = False,
) -> None:
    """Where a request for a model would go now, and why not to the other engines."""
    asked = question(
        model,
        prompt_tokens=prompt_tokens,
        prompt=None if prompt is None else prompt.read(PROMPT_CHARS_MAX + 1),
        profile=profile,
        limit=limit,
        after=after,
    )
    await explain(target, asked, as_json=as_json)


@asks_gateway
async def doctor_command(
    target: Target,
    port: PortNumber = GATEWAY_PORT,
    nats_url: NatsUrl = None,
    redis_url: RedisUrl = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            dir_okay=False,
            help="Settings of a service: its NATS and Redis, its key and TLS files for NATS. "
            "AXIOM_... go before them, as for services.",
        ),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="An engine to look at; else those of the gateway.")
    ] = None,
    as_json: AsJson = False,
) -> bool:
    """Look at ports, binaries, NVML, NATS, Redis and engines, and say what to do."""
    servers = settings_of_servers(config_file, nats_url=nats_url, redis_url=redis_url)
    given = servers.model_fields_set
    wanted = Wanted(
        port=port,
        gateway=target,
        nats_url=servers.nats_url if "nats_url" in given else None,
        redis_url=servers.redis_url if "redis_url" in given else None,
        credentials=NatsCredentials.of(servers),
        engine_urls=tuple(engine or ()),
    )
    return await doctor(wanted, as_json=as_json)


@telemetry_app.command("tail")
@until_interrupted
@asks_gateway
async def tail_command(
    target: Target,
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.1, help="End after so many seconds.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", min=1, help="End after so many lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each view as a line of JSON.")] = False,
) -> None:
    """What changes of a node in a gateway's view, as it changes."""
    await tail(TailOptions(target=target, node=node, seconds=seconds, count=count, as_json=as_json))


def add_fleet_commands(app: typer.Typer) -> None:
    """Add them all."""
    app.command("status")(status_command)
    app.command("top")(top_command)
    app.command("plan")(plan_command)
    app.command("config")(config_command)
    app.command("why")(why_command)
    app.command("explain")(explain_command)
    app.command("doctor")(doctor_command)
    app.add_typer(telemetry_app, name="telemetry")
