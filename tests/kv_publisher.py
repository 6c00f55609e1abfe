"""An engine's side of KV events, scripted: publishes, keeps its last messages, answers who asks.

It speaks vLLM's wire: three frames a message, numbers from 0 a life, and a ROUTER that sends what
it keeps from a number on and ends with -1. What is sent, lost or no longer kept is the test's say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import zmq
import zmq.asyncio
from tests.eventually import succeeds
from tests.owner import TestOwner

from axiom_common.drivers.kv_event_feed import KvEventSource

TOPIC = b"kv@127.0.0.1:8000@base"
_END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """One engine's life after another, at the same endpoints."""

    def __init__(self, context: zmq.asyncio.Context, *, keeps: int = 10_000) -> None:
        self.asked: list[int] = []
        self.holes: set[int] = set()
        """Numbers that one answer leaves out, as a full queue does."""
        self.answers = True
        self._context = context
        self._published = context.socket(zmq.XPUB)
        self._published.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._asking = context.socket(zmq.ROUTER)
        ports = [s.bind_to_random_port("tcp://127.0.0.1") for s in (self._published, self._asking)]
        self.source = KvEventSource(
            endpoint=f"tcp://127.0.0.1:{ports[0]}", replay_endpoint=f"tcp://127.0.0.1:{ports[1]}"
        )
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=keeps)
        self._next = 0

    async def subscribed(self) -> None:
        """Somebody subscribed."""
        await self._published.recv()

    async def publish(self, payload: bytes, *, is_lost: bool = False) -> None:
        """The next message; `is_lost` on its way."""
        self._kept.append((self._next, payload))
        if not is_lost:
            number = self._next.to_bytes(8, "big")
            await self._published.send_multipart([TOPIC, number, payload])
        self._next += 1

    async def away(self) -> None:
        """Nobody can connect, and who was connected is not."""
        self._published.unbind(self.source.endpoint)
        self._published.close(linger=0)

    async def back(self) -> None:
        """At the same place again."""
        self._published = self._context.socket(zmq.XPUB)
        # ZeroMQ lets the port go in a thread of its own, some time after `close`.
        await succeeds(self._bind, despite=zmq.ZMQError)

    async def _bind(self) -> None:
        self._published.bind(self.source.endpoint)

    async def send(self, *frames: bytes) -> None:
        """Frames as they are."""
        await self._published.send_multipart(frames)

    def forget_all_but(self, last: int) -> None:
        """Only so many messages are kept still."""
        self._kept = deque(list(self._kept)[-last:], maxlen=self._kept.maxlen)

    def restart(self) -> None:
        """Another life: numbers from 0, nothing kept."""
        self._kept.clear()
        self._next = 0

    async def serve(self) -> None:
        """Answer who asks."""
        while True:
            client, _, start = await self._asking.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if not self.answers:
                continue
            for number, payload in list(self._kept):
                if number >= self.asked[-1] and number not in self.holes:
                    message = [client, b"", TOPIC, number.to_bytes(8, "big"), payload]
                    await self._asking.send_multipart(message)
            self.holes.clear()
            await self._asking.send_multipart([client, b"", b"", _END, b""])


@asynccontextmanager
async def publishing(owner: TestOwner, *, keeps: int = 10_000) -> AsyncIterator[Publisher]:
    """A publisher that answers until the end."""
    context = zmq.asyncio.Context()
    try:
        publisher = Publisher(context, keeps=keeps)
        owner.create_task(publisher.serve(), name="publisher")
        yield publisher
    finally:
        context.destroy(linger=0)
