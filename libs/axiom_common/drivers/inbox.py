"""What waits for one subscriber: bounded in messages and bytes, the oldest gives way.

State is told again and again, so the newest message is worth most: a slow subscriber loses the past
and not the present. An error that Axiom raises on purpose ends the handling of one message only;
any other error ends the task, and with it the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from axiom_common.errors import AxiomError
from axiom_common.ports.bus import Responder
from axiom_common.runtime.lifecycle import Owner

PENDING_MAX = 4096
PENDING_BYTES_MAX = 64 << 20
TURN_MIN = 32
"""Messages that are handled in one go: a burst of them must not keep requests waiting."""
TURN_SHARE = 8
"""Of many that wait one in so many is handled in one go: else who reads the socket, and takes a
buffer full of them in each turn of his, would fill the inbox faster than it empties."""
FAILED = b""
"""What who asked gets from a responder that failed: no message of Axiom is empty."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message. `reply` sends an answer to who asked; None for a plain message."""

    subject: str
    payload: bytes
    reply: Callable[[bytes], Awaitable[None]] | None = None


class Inbox:
    """A bounded queue with one reader, `run` or `run_concurrent`, that ends with `close`."""

    def __init__(
        self,
        on_error: Callable[[str, AxiomError], None],
        *,
        pending_max: int = PENDING_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        self.dropped = 0
        self._on_error = on_error
        self._pending_max = pending_max
        self._pending_bytes_max = pending_bytes_max
        self._pending: deque[Delivery] = deque()
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, delivery: Delivery) -> None:
        """Add a message; the oldest leave while there are too many."""
        self._pending.append(delivery)
        self._pending_bytes += len(delivery.payload)
        while len(self._pending) > self._pending_max or (
            self._pending_bytes > self._pending_bytes_max and len(self._pending) > 1
        ):
            self._pending_bytes -= len(self._pending.popleft().payload)
            self.dropped += 1
        self._wake.set()

    def close(self) -> None:
        """Let the reader end; what waits is forgotten."""
        self._closed = True
        self._pending.clear()
        self._wake.set()

    async def run(self, handle: Callable[[Delivery], Awaitable[None]]) -> None:
        """Handle messages one after another, in order of arrival."""
        left = TURN_MIN
        while (delivery := await self._next()) is not None:
            await self._guarded(handle, delivery)
            left -= 1
            if left <= 0:
                await asyncio.sleep(0)
                left = max(TURN_MIN, len(self._pending) // TURN_SHARE)

    async def run_concurrent(
        self, handle: Callable[[Delivery], Awaitable[None]], *, owner: Owner, concurrency: int
    ) -> None:
        """Handle at most `concurrency` messages at a time, each in a task of `owner`."""
        free = asyncio.Semaphore(concurrency)

        async def one(delivery: Delivery) -> None:
            try:
                await self._guarded(handle, delivery)
            finally:
                free.release()

        while True:
            await free.acquire()
            delivery = await self._next()
            if delivery is None:
                return
            owner.create_task(one(delivery), name=f"respond {delivery.subject}")

    async def _next(self) -> Delivery | None:
        while not self._pending:
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        delivery = self._pending.popleft()
        self._pending_bytes -= len(delivery.payload)
        return delivery

    async def _guarded(
        self, handle: Callable[[Delivery], Awaitable[None]], delivery: Delivery
    ) -> None:
        try:
            await handle(delivery)
        except AxiomError as error:
            self._on_error(delivery.subject, error)


async def answer(delivery: Delivery, responder: Responder) -> None:
    """Send who asked the responder's answer, or that it failed."""
    try:
        reply = await responder(delivery.subject, delivery.payload)
    except AxiomError:
        await _reply(delivery, FAILED)
        raise
    await _reply(delivery, reply)


async def _reply(delivery: Delivery, reply: bytes) -> None:
    # A plain message on the subject of a request: nobody waits.
    if delivery.reply is not None:
        await delivery.reply(reply)
