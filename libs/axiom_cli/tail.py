"""`axiom telemetry tail NODE`: what changes of a node in a gateway's view, as it changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from datetime import datetime

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.node_text import changes
from axiom_cli.output import progress_console
from axiom_common.errors import NotFoundError, UnavailableError
from axiom_common.wire.views import NodeGone, NodeView

RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """`seconds` and `count` end it; None: it goes on. `count` is of lines, or of views as JSON."""

    target: Target
    node: str
    seconds: float | None
    count: int | None
    as_json: bool


async def tail(options: TailOptions) -> None:
    """Print until the end. NotFoundError when the gateway knows no such node, NoAnswerError when
    there is no gateway; one that goes away later is waited for."""
    async with admin_of(options.target) as admin:
        await admin.node(options.node)
        with contextlib.suppress(TimeoutError, BrokenPipeError):
            async with asyncio.timeout(options.seconds):
                await _follow(admin, options)


async def _follow(admin: Admin, options: TailOptions) -> None:
    told = 0
    last: NodeView | None = None
    while True:
        try:
            async with admin.watching([options.node]) as events:
                async for event in events:
                    for line in _lines(last, event, as_json=options.as_json):
                        _print(line)
                        told += 1
                        if told == options.count:
                            return
                    last = event if isinstance(event, NodeView) else None
            cause = "the gateway ended the stream"
        # A gateway that has just started may not have heard of the node yet.
        except (UnavailableError, NotFoundError) as error:
            cause = str(error)
        progress_console().print(f"{cause}; trying again", markup=False)
        await asyncio.sleep(RETRY_S)


def _print(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has enough. What is left in the buffer must not fail at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _lines(last: NodeView | None, event: NodeView | NodeGone, *, as_json: bool) -> list[str]:
    if as_json:
        return [event.model_dump_json()]
    now = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
    told = changes(last, event) if isinstance(event, NodeView) else ["forgotten by the gateway"]
    return [f"{now} {line}" for line in told]
