"""An owner of tasks for tests: what still runs at the end is cancelled, what failed fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class TestOwner:
    """Creates tasks in a group and remembers them."""

    __test__ = False

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[Any]] = []

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start `coro`."""
        task = self._group.create_task(coro, name=name)
        self._tasks.append(task)
        return task

    def cancel_all(self) -> None:
        """Cancel what still runs."""
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def task_owner() -> AsyncIterator[TestOwner]:
    """An owner whose tasks end with the block."""
    async with asyncio.TaskGroup() as group:
        owner = TestOwner(group)
        yield owner
        owner.cancel_all()
