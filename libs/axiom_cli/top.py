"""`axiom top`: the nodes of a gateway's view, their engines and adapters, as they change."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.admin_client import ForbiddenError, UnauthenticatedError
from axiom_cli.keystrokes import keystrokes
from axiom_cli.output import print_figures, table_console
from axiom_cli.top_view import Seen, lines, wanted
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import AxiomError
from axiom_common.ports.clock import Clock
from axiom_common.wire.rest import RegionStatus
from axiom_common.wire.views import NodeView

SHOW_EVERY_S = 0.5
STATUS_EVERY_S = 2.0
RETRY_S = 1.0
END_KEY = "q"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """`nodes` empty: all. `model` is a base model or an adapter. `once` and `as_json`: one picture,
    then the end."""

    target: Target
    nodes: tuple[str, ...]
    model: str | None
    once: bool
    as_json: bool


async def top(options: TopOptions) -> None:
    """Show until cancelled, or until q is pressed. One picture alone raises NoAnswerError without a
    gateway, and NotFoundError for a node that it does not know; else both are shown and waited for.
    Without a right key there is nothing to wait for."""
    async with admin_of(options.target) as admin:
        if options.once or options.as_json:
            await _once(admin, options)
            return
        board = _Board(SystemClock(), options)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(board.follow(admin), name="follow nodes"),
                group.create_task(board.ask_status(admin), name="ask for the status"),
            ]
            await _show(board, table_console())
            for task in tasks:
                task.cancel()


async def _show(board: _Board, console: Console) -> None:
    """Until q is pressed; at once anew when the terminal gets another size."""
    ended = False
    wake = asyncio.Event()

    def on_key(key: str) -> None:
        nonlocal ended
        ended = ended or key.lower() == END_KEY
        wake.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, wake.set)
    try:
        with (
            keystrokes(on_key),
            Live(console=console, screen=console.is_terminal, auto_refresh=False) as live,
        ):
            while not ended:
                wake.clear()
                live.update(board.shown(console), refresh=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SHOW_EVERY_S):
                        await wake.wait()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def _once(admin: Admin, options: TopOptions) -> None:
    status = await admin.status()
    if options.nodes:
        nodes: Sequence[NodeView] = [await admin.node(name) for name in options.nodes]
    else:
        nodes = await admin.nodes()
    chosen = wanted(nodes, options.model)
    if options.as_json:
        told = [node.model_dump(mode="json") for node in chosen]
        print_figures(status.model_dump(mode="json") | {"nodes": told})
        return
    console = table_console()
    for line in lines(status.regions, [Seen(n) for n in chosen], width=console.width):
        console.print(line)


class _Board:
    """What is known by now."""

    def __init__(self, clock: Clock, options: TopOptions) -> None:
        self._clock = clock
        self._options = options
        self._nodes: dict[str, tuple[NodeView, float]] = {}
        self._regions: dict[str, RegionStatus] = {}
        self._troubles: dict[str, str] = {}

    async def follow(self, admin: Admin) -> None:
        """Take views as they come; begin again when the gateway went."""
        while True:
            with self._told_trouble("nodes"):
                async with admin.watching(self._options.nodes) as events:
                    # What it does not tell of now, it forgot while it was not heard.
                    self._nodes.clear()
                    self._troubles.pop("nodes", None)
                    async for event in events:
                        if isinstance(event, NodeView):
                            self._nodes[event.node] = (event, self._clock.now_ms())
                        else:
                            self._nodes.pop(event.node, None)
            await asyncio.sleep(RETRY_S)

    async def ask_status(self, admin: Admin) -> None:
        """Take the regions."""
        while True:
            with self._told_trouble("status"):
                self._regions = dict((await admin.status()).regions)
                self._troubles.pop("status", None)
            await asyncio.sleep(STATUS_EVERY_S)

    @contextlib.contextmanager
    def _told_trouble(self, what: str) -> Iterator[None]:
        try:
            yield
        except (UnauthenticatedError, ForbiddenError):
            raise
        except AxiomError as error:
            self._troubles[what] = f"trying again: {error}"

    def shown(self, console: Console) -> Group:
        """The picture for now."""
        now_ms = self._clock.now_ms()
        chosen = wanted((view for view, _ in self._nodes.values()), self._options.model)
        seen = [Seen(view, now_ms - self._nodes[view.node][1]) for view in chosen]
        return Group(
            *lines(
                self._regions,
                seen,
                width=console.width,
                height=console.height,
                trouble=next(iter(self._troubles.values()), ""),
            )
        )
