"""The journal on a JetStream stream.

Messages go out without waiting for the server's word: for a log that is sampled anyway, an answer
to each would cost more than it is worth. Once a session, and every `LOOK_EVERY_MS`, the stream is
looked for, and made where it is missing.
"""

from __future__ import annotations

from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from axiom_common.drivers.nats_connection import (
    CONNECTION_ERRORS,
    OUTBOUND_BYTES_MAX,
    NatsConnection,
    Session,
)
from axiom_common.drivers.nats_streams import DUPLICATE_WINDOW_S, Way, open_stream
from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock

LOOK_EVERY_MS = 30_000.0
CALL_TIMEOUT_S = 1.0


class NatsJournal:
    """A `Journal` on a started `NatsConnection`: stream `name`, of what comes on `subject`.

    `subject` is a filter. Whoever makes the stream decides its bounds; who comes later finds it as
    it is.
    """

    def __init__(
        self,
        connection: NatsConnection,
        clock: Clock,
        name: str,
        *,
        subject: str,
        bytes_max: int,
        age_ms: float,
        message_bytes_max: int,
        replicas: int = 1,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._name = name
        self._subject = subject
        self._bytes_max = bytes_max
        self._age_ms = age_ms
        self._message_bytes_max = message_bytes_max
        self._way = Way(replicas=replicas, domain=None, direct=False, timeout_s=CALL_TIMEOUT_S)
        self._seen: Session | None = None
        self._look_ms = 0.0

    async def append(self, subject: str, payload: bytes) -> None:
        """Hand to the socket's buffer, which is bounded, once the stream is there."""
        session = self._connection.session()
        try:
            if self._seen is not session or self._clock.now_ms() >= self._look_ms:
                await self._look(session)
            if session.client.pending_data_size > OUTBOUND_BYTES_MAX:
                raise UnavailableError("NATS takes nothing: too much waits to be sent")
            await session.client.publish(subject, payload)
        except CONNECTION_ERRORS as error:
            self._seen = None
            cause = str(error) or type(error).__name__
            raise UnavailableError(f"stream {self._name}: {cause}") from error

    async def _look(self, session: Session) -> None:
        self._seen = None
        async with session.bounded(self._way.timeout_s):
            await open_stream(session, self._name, self._way, config=self._config)
        self._seen = session
        self._look_ms = self._clock.now_ms() + LOOK_EVERY_MS

    def _config(self) -> StreamConfig:
        age_s = self._age_ms / 1e3
        return StreamConfig(
            name=self._name,
            subjects=[self._subject],
            max_bytes=self._bytes_max,
            max_age=age_s,
            max_msg_size=self._message_bytes_max,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            num_replicas=self._way.replicas,
            duplicate_window=min(DUPLICATE_WINDOW_S, age_s),
            deny_delete=True,
        )
