"""All records of a JetStream bucket, and then what changes, in one subscription.

The library's own watch asks how many records are left once its subscription runs. What is on its
way by then is neither left nor received, so it may say too early that all present was told. Here
the consumer is made before anybody listens: it says itself what there is to tell. At the end it is
deleted: the server would keep it for a while, and a stream takes a limited number of them.
"""

from __future__ import annotations

import asyncio
import contextlib

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from axiom_common.drivers.nats_connection import CONNECTION_ERRORS
from axiom_common.errors import UnavailableError

PENDING_MAX = 1 << 16
"""Messages received and not read yet; above it some are dropped, which `read` notices."""
INACTIVE_S = 30.0
"""Without a listener for so long the server deletes a consumer that its client left behind."""


class RecordFeed:
    """The newest message of each key under a subject, oldest first, and then the changes."""

    def __init__(self, jetstream: JetStreamContext, consumer: ConsumerInfo) -> None:
        self._jetstream = jetstream
        self._consumer = consumer
        self._subscription: Subscription | None = None
        self._received: asyncio.Queue[Msg] = asyncio.Queue(PENDING_MAX)
        self._read = 0
        self._present_left = bool(consumer.num_pending)
        self._present_told = False

    @classmethod
    async def open(
        cls, client: Client, jetstream: JetStreamContext, stream: str, subject: str
    ) -> RecordFeed:
        """Begin; any of CONNECTION_ERRORS when that fails."""
        inbox = client.new_inbox()
        config = ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            filter_subject=subject,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=INACTIVE_S,
            num_replicas=1,
            mem_storage=True,
        )
        feed = cls(jetstream, await jetstream.add_consumer(stream, config))
        feed._subscription = await client.subscribe(inbox, cb=feed._receive)
        return feed

    async def read(self) -> Msg | None:
        """The next message, once it comes; None once, when all that was present is read.

        UnavailableError when a message was missed.
        """
        if not self._present_left and not self._present_told:
            self._present_told = True
            return None
        message = await self._received.get()
        self._read += 1
        if message.metadata.sequence.consumer != self._read:
            raise UnavailableError(f"missed a message of stream {self._consumer.stream_name}")
        if message.metadata.num_pending == 0:
            self._present_left = False
        return message

    async def close(self) -> None:
        """End it, as far as the server can still be told."""
        with contextlib.suppress(*CONNECTION_ERRORS):
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            await self._jetstream.delete_consumer(self._consumer.stream_name, self._consumer.name)

    async def _receive(self, message: Msg) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._received.put_nowait(message)
