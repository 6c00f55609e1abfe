"""A clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools

TURNS = 20
"""Turns of the event loop after which what a moment sets off is taken to have happened."""


class FakeClock:
    """Time stands still until `advance`: sleepers wake in the order of their due times."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self._now_ms = now_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> float:
        """Now, in ms."""
        return self._now_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait until the clock was advanced that far; 0 or less yields once."""
        if duration_ms <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + duration_ms, next(self._numbers), woken))
        await woken

    async def advance(self, duration_ms: float) -> None:
        """Let `duration_ms` pass; each sleeper runs at its own moment, before the next wakes."""
        end_ms = self._now_ms + duration_ms
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_ms:
            due_ms, _, woken = heapq.heappop(self._sleepers)
            self._now_ms = due_ms
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._now_ms = end_ms


async def settle() -> None:
    """Let other tasks run until they wait for something that is not there yet."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
