"""The life of a process: start its tasks, run until a signal, drain, end.

Every task has an owner (a TaskGroup) and a name. A task that fails ends the process with an error:
a service that half works is worse than one that is restarted.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import uvloop

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import exit_on_bad_settings


class Owner(Protocol):
    """What owns tasks: a TaskGroup."""

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start `coro`; it is cancelled when the owner ends."""
        ...


YOUNG_OBJECTS = 50_000
"""Objects between two searches for garbage in circles. There is little of it, and what is kept for
long (decisions, nodes, rows) is searched each time: by default that cost a tenth of the gateway's
time, and made requests wait for it."""

Main = Callable[[asyncio.TaskGroup, asyncio.Event], Awaitable[None]]
"""Starts tasks in the group; returns when the event (stop) is set and all is drained."""


async def run_until_stopped(main: Main) -> None:
    """Run `main` with a stop event that SIGTERM and SIGINT set; then cancel what is left."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        await main(group, stop)
        for task in [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            task.cancel()


def run_process(main: Main) -> None:
    """Run a service on uvloop; exit code 1 with the cause when one of its tasks failed.

    What only starting can show to be wrong in the settings (a port that is taken) ends like other
    wrong settings: one line, exit code 2.
    """
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        uvloop.run(run_until_stopped(main))
    except* SettingsError as wrong:
        exit_on_bad_settings(_first(wrong))
    except* Exception as failures:
        for failure in failures.exceptions:
            sys.stderr.write(f"fatal: {type(failure).__name__}: {failure}\n")
        raise


def _first(group: BaseExceptionGroup[SettingsError]) -> SettingsError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
