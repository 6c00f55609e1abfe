"""Reads that may block, repeated in a thread of their own; the event loop takes the last result.

A system call into a driver or a file system may hang for good. Then this one thread hangs with it,
never a second one beside it: the last result ages, and who takes it can tell. The thread is a
daemon, so that it holds up no process that ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from axiom_common.ports.clock import Clock

Result = TypeVar("Result")
CHECK_MS = 1_000.0
"""How often it is looked whether the thread still lives."""


class BackgroundReads(Generic[Result]):
    """Calls `read` each `every_ms`. After the last one, unless it hangs, the thread calls `close`.

    `latest` is what `read` returned last and when it did, None before the first time.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Result],
        close: Callable[[], None],
        clock: Clock,
        *,
        every_ms: float,
    ) -> None:
        self.latest: tuple[Result, float] | None = None
        self._name = name
        self._read = read
        self._close = close
        self._clock = clock
        self._every_ms = every_ms
        self._thread: threading.Thread | None = None

    async def run(self, on_change: Callable[[], None]) -> None:
        """Keep the thread going until cancelled; one that died of an error is started anew.
        `on_change` is called in this loop when another object was read than before."""
        stop = threading.Event()
        loop = asyncio.get_running_loop()

        def changed() -> None:
            if not stop.is_set():
                loop.call_soon_threadsafe(on_change)

        try:
            while True:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._work, args=(stop, changed), name=self._name, daemon=True
                    )
                    self._thread.start()
                await self._clock.sleep_ms(CHECK_MS)
        finally:
            stop.set()

    def _work(self, stop: threading.Event, changed: Callable[[], None]) -> None:
        rest_ms, before = 0.0, None
        while not stop.wait(rest_ms / 1e3):
            started_ms = self._clock.now_ms()
            result = self._read()
            now_ms = self._clock.now_ms()
            self.latest = (result, now_ms)
            if result is not before:
                before = result
                changed()
            rest_ms = max(0.0, self._every_ms - (now_ms - started_ms))
        self._close()
