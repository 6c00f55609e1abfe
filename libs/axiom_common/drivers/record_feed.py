"""Records of a JetStream bucket, and then what changes, in one subscription.

The library's own watch asks how many records are left once its subscription runs. What is on its
way by then is neither left nor received, so it may say too early that all present was told. Here
the consumer is made before anybody listens: it says itself what there is to tell. At the end it is
deleted: the server would keep it for a while.

A consumer's name and its filter are part of the subject that makes it, so a server's permissions
can cut who reads what. Its name is a secret of its reader: who may ask about or delete consumers of
a stream can do so with those only whose names it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from axiom_common.drivers.nats_connection import CONNECTION_ERRORS
from axiom_common.errors import UnavailableError

PENDING_MAX = 1 << 16
PENDING_BYTES_MAX = 64 << 20
"""Received and not read yet, in messages and bytes; above it some are dropped: `read` notices."""
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
        self._received_bytes = 0
        self._behind_at: int | None = None
        self._present_left = bool(consumer.num_pending)
        self._present_told = False

    @classmethod
    async def open(
        cls, client: Client, jetstream: JetStreamContext, stream: str, subject: str
    ) -> RecordFeed:
        """Begin; any of CONNECTION_ERRORS when that fails."""
        inbox = client.new_inbox()
        config = ConsumerConfig(
            name=secrets.token_hex(16),
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
        self._received_bytes -= len(message.data)
        if message.metadata.sequence.consumer != self._read:
            raise UnavailableError(f"missed a message of stream {self._consumer.stream_name}")
        if message.metadata.num_pending == 0:
            self._present_left = False
        return message

    @property
    def behind(self) -> bool:
        """Whether the last `fed` found something on its way here."""
        return self._behind_at is not None

    async def fed(self) -> bool:
        """Ask from time to time whether the server still feeds this: False when what was on its way
        last time has not come, CONNECTION_ERRORS when the consumer is gone or out of reach."""
        info = await self._jetstream.consumer_info(self._consumer.stream_name, self._consumer.name)
        told = info.delivered.consumer_seq if info.delivered else 0
        got = self._read + self._received.qsize()
        was_behind_at = self._behind_at
        self._behind_at = got if told > got or info.num_pending else None
        return self._behind_at is None or self._behind_at != was_behind_at

    async def close(self) -> None:
        """End it, as far as the server can still be told."""
        with contextlib.suppress(*CONNECTION_ERRORS):
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            await self._jetstream.delete_consumer(self._consumer.stream_name, self._consumer.name)

    async def _receive(self, message: Msg) -> None:
        if self._received.full() or self._received_bytes > PENDING_BYTES_MAX:
            return
        self._received_bytes += len(message.data)
        self._received.put_nowait(message)
