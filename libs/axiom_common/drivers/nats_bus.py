"""The bus on core NATS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.msg import Msg

from axiom_common.drivers.inbox import (
    FAILED,
    PENDING_BYTES_MAX,
    PENDING_MAX,
    Delivery,
    Inbox,
    answer,
)
from axiom_common.drivers.nats_connection import (
    CONNECTION_ERRORS,
    OUTBOUND_BYTES_MAX,
    NatsConnection,
    Session,
)
from axiom_common.errors import AxiomError, UnavailableError
from axiom_common.ports.bus import Handler, Responder


class NatsBus:
    """A `Bus` on a started `NatsConnection`. Subscriptions may be made while NATS is away."""

    def __init__(
        self,
        connection: NatsConnection,
        *,
        pending_max: int = PENDING_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> None:
        self._connection = connection
        self._pending_max = pending_max
        self._pending_bytes_max = pending_bytes_max
        self._inboxes: list[Inbox] = []

    @property
    def connected(self) -> bool:
        """Whether the connection has a session."""
        return self._connection.connected

    @property
    def dropped(self) -> int:
        """Messages lost to full subscriptions."""
        return sum(inbox.dropped for inbox in self._inboxes)

    @property
    def refused(self) -> int:
        """What the server refused to the connection, the registry's part included."""
        return self._connection.refused

    async def publish(self, subject: str, payload: bytes) -> None:
        """Hand to the socket's buffer, which is bounded."""
        client = self._connection.session().client
        if client.pending_data_size > OUTBOUND_BYTES_MAX:
            raise UnavailableError("NATS takes nothing: too much waits to be sent")
        try:
            await client.publish(subject, payload)
        except CONNECTION_ERRORS as error:
            raise UnavailableError(f"publish on {subject}: {error}") from error

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Call `handler` for each message, in a task of the connection's owner."""

        async def handle(delivery: Delivery) -> None:
            await handler(delivery.subject, delivery.payload)

        inbox = await self._inbox(subject)
        self._connection.owner.create_task(inbox.run(handle), name=f"subscription {subject}")

    async def respond(self, subject: str, responder: Responder, *, concurrency: int = 64) -> None:
        """Answer requests, each in a task of the connection's owner."""

        async def handle(delivery: Delivery) -> None:
            await answer(delivery, responder)

        inbox = await self._inbox(subject)
        owner = self._connection.owner
        owner.create_task(
            inbox.run_concurrent(handle, owner=owner, concurrency=concurrency),
            name=f"responder {subject}",
        )

    async def request(self, subject: str, payload: bytes, *, timeout_ms: float) -> bytes:
        """Ask and wait; fails at once when nobody listens on `subject`."""
        session = self._connection.session()
        timeout_s = timeout_ms / 1e3
        try:
            async with session.bounded(timeout_s):
                reply = await session.client.request(subject, payload, timeout=timeout_s)
        except nats.errors.NoRespondersError as error:
            raise UnavailableError(f"nobody answers on {subject}") from error
        except CONNECTION_ERRORS as error:
            raise UnavailableError(f"no answer on {subject} in {timeout_ms:g} ms") from error
        if reply.data == FAILED:
            raise UnavailableError(f"the responder on {subject} failed")
        return reply.data

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back after each session but one opened by the connection's `start`."""
        self._connection.on_reconnect(callback)

    async def close(self) -> None:
        """End the tasks of all subscriptions; the connection stays."""
        for inbox in self._inboxes:
            inbox.close()

    async def _inbox(self, subject: str) -> Inbox:
        inbox = Inbox(
            self._log_failed,
            pending_max=self._pending_max,
            pending_bytes_max=self._pending_bytes_max,
        )

        async def receive(message: Msg) -> None:
            inbox.put(Delivery(message.subject, message.data, self._reply_to(message)))

        async def prepare(session: Session) -> None:
            await session.client.subscribe(subject, cb=receive)

        self._inboxes.append(inbox)
        await self._connection.on_session(prepare)
        return inbox

    def _reply_to(self, message: Msg) -> Callable[[bytes], Awaitable[None]] | None:
        if not message.reply:
            return None

        async def reply(payload: bytes) -> None:
            await self.publish(message.reply, payload)

        return reply

    def _log_failed(self, subject: str, error: AxiomError) -> None:
        self._connection.log.warning(
            "message not handled",
            once_a_minute=f"handle {error.code}",
            subject=subject,
            cause=str(error),
        )
