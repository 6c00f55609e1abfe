"""`axiom up`: the local stack, until it is told to end."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from axiom_cli.output import progress_console, table_console
from axiom_cli.stack.processes import ProcessDied
from axiom_cli.stack.stack import LOGS, Stack, running_stack
from axiom_cli.stack.topology import BASE_MODEL, StackOptions, declared_adapters
from axiom_common.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """`run_dir` None: a temporary one, removed after a clean end."""

    run_dir: Path | None
    port: int
    nats_url: str | None
    redis_url: str | None


NATS_SCHEMES = frozenset({"nats", "tls", "ws", "wss"})
REDIS_SCHEMES = frozenset({"redis", "rediss", "unix"})


async def up(options: UpOptions) -> None:
    """Start the stack, print where it is, run until cancelled."""
    for url in (options.nats_url or "").split(","):
        _check_scheme("--nats-url", url, NATS_SCHEMES)
    _check_scheme("--redis-url", options.redis_url or "", REDIS_SCHEMES)
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
            _print_welcome(stack, table_console())
            await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        console.print("ended", style="dim")
        if options.run_dir is None:
            shutil.rmtree(run_dir)
        raise


def _check_scheme(flag: str, url: str, schemes: frozenset[str]) -> None:
    """SettingsError for a URL that no client of that server takes; an empty one was not given."""
    if url and urlsplit(url.strip()).scheme not in schemes:
        wanted = ", ".join(sorted(schemes))
        raise SettingsError(f"{flag}: expected a URL of scheme {wanted}, got {url!r}")


def _print_welcome(stack: Stack, console: Console) -> None:
    """URLs, and a line to try."""
    first = declared_adapters(stack.options)[0].name
    body = (
        f'{{"model": "{first}", "stream": true, "max_tokens": 32, '
        '"messages": [{"role": "user", "content": "Hello"}]}'
    )
    lines = [
        f"gateway  {stack.gateway_url}  (OpenAI API under /v1, admin API under /admin/v1)",
        f"nats     {stack.nats_url}",
        f"redis    {stack.redis_url}",
        *(f"engine   {url}  {engine}" for engine, url in stack.engine_urls.items()),
        f"models   {BASE_MODEL}, {first} .. {declared_adapters(stack.options)[-1].name}",
        f"logs     {stack.options.run_dir / LOGS}",
        "",
        f"curl -N {stack.gateway_url}/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{body}'",
        f"axiom status --url {stack.gateway_url}",
        "",
        "Ctrl-C ends it.",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
