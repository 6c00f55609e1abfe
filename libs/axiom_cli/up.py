"""`axiom up`: the local stack, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from axiom_cli.contexts import Context, ContextsFile
from axiom_cli.local_context import register, withdraw
from axiom_cli.output import progress_console, table_console
from axiom_cli.stack.processes import ProcessDied
from axiom_cli.stack.stack import LOGS, Stack, running_stack
from axiom_cli.stack.topology import ADMIN_KEY, BASE_MODEL, StackOptions, declared_adapters
from axiom_common.errors import AxiomError, SettingsError
from axiom_common.runtime.settings import NatsUrl, RedisUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """`run_dir` None: a temporary one, removed after a clean end."""

    run_dir: Path | None
    port: int
    nats_url: str | None
    redis_url: str | None
    contexts: ContextsFile


async def up(options: UpOptions) -> None:
    """Start the stack, print where it is, run until cancelled."""
    _check_url("--nats-url", options.nats_url, TypeAdapter(NatsUrl), like="nats://host:port")
    _check_url(
        "--redis-url",
        options.redis_url,
        TypeAdapter(RedisUrl),
        like="redis://host:port or redis+cluster://host:port,host:port",
    )
    console = progress_console()
    run_dir = options.run_dir or Path(tempfile.mkdtemp(prefix="axiom-up-"))
    stack_options = StackOptions(
        run_dir=run_dir.absolute(),
        port=options.port,
        nats_url=options.nats_url,
        redis_url=options.redis_url,
    )

    def on_death(died: ProcessDied) -> None:
        console.print(str(died), style="yellow")

    try:
        async with running_stack(
            stack_options, on_death=on_death, on_step=lambda step: console.print(step, style="dim")
        ) as stack:
            context = Context(
                url=stack.gateway.url,
                key_file=stack_options.run_dir / ADMIN_KEY,
                up_pid=os.getpid(),
            )
            async with registered(options.contexts, context) as name:
                _print_welcome(stack, name, table_console())
                await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        console.print("ended", style="dim")
        if options.run_dir is None:
            shutil.rmtree(run_dir)
        raise


def _check_url(flag: str, url: str | None, form: TypeAdapter[str], *, like: str) -> None:
    """SettingsError for a URL that no service would take; None was not given."""
    if url is None:
        return
    try:
        form.validate_python(url)
    except ValidationError as error:
        raise SettingsError(f"{flag}: expected a URL like {like}") from error


def _left_behind(stack: Stack) -> list[str]:
    """What outlives the stack in a NATS server that is not its own."""
    if stack.options.nats_url is None:
        return []
    return [
        f"These models stay declared in {stack.nats_url} afterwards;",
        "`axiom adapters delete NAME` withdraws an adapter while a gateway runs.",
        "",
    ]


@asynccontextmanager
async def registered(file: ContextsFile, context: Context) -> AsyncIterator[str | None]:
    """A context while the block runs; its name, None where the file can't be changed."""
    try:
        name = await asyncio.to_thread(register, file, context)
    except AxiomError as error:
        progress_console().print(f"no context is made: {error}", style="yellow")
        yield None
        return
    try:
        yield name
    finally:
        # Nothing is awaited here: this must be done also when the command is told to end.
        with contextlib.suppress(AxiomError):
            withdraw(file, name, context)


def _print_welcome(stack: Stack, context: str | None, console: Console) -> None:
    """URLs, and a line to try."""
    key_file = stack.options.run_dir / ADMIN_KEY
    asked = f"--url {stack.gateway.url} --key-file {key_file}"
    if context is not None:
        asked = f"--context {context}"
    first = declared_adapters(stack.options)[0].name
    body = (
        f'{{"model": "{first}", "stream": true, "max_tokens": 32, '
        '"messages": [{"role": "user", "content": "Hello"}]}'
    )
    lines = [
        f"gateway  {stack.gateway.url}  (OpenAI API under /v1, admin API under /admin/v1)",
        f"key      {key_file}  (of an admin)",
        f"nats     {stack.nats_url}",
        f"redis    {stack.redis_url}",
        *(f"engine   {url}  {engine}" for engine, url in stack.engine_urls.items()),
        f"models   {BASE_MODEL}, {first} .. {declared_adapters(stack.options)[-1].name}",
        f"logs     {stack.options.run_dir / LOGS}",
        "",
        f"curl -N {stack.gateway.url}/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{body}'",
        f"{Path(sys.executable).with_name('axiom')} status {asked}",
        "",
        *_left_behind(stack),
        "Ctrl-C ends it.",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
