"""The registry on JetStream KV.

A bucket is a handle that opens its stream, and makes it where it is missing, once a session: a
process may start before NATS does. A time to live is a whole number of seconds on the server, so it
is rounded up. An expired record leaves a marker, for watches to see; the library's own get and
create take that marker for a value, and its watch may say too early that all present was told
(`record_feed`), so everything here uses the stream beneath (`nats_streams`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import Header, StreamConfig
from nats.js.kv import KV_DEL, KV_MARKER_REASON, KV_OP, KV_PURGE

from axiom_common.drivers.nats_connection import CONNECTION_ERRORS, NatsConnection, Session
from axiom_common.drivers.nats_streams import (
    Stream,
    Way,
    bucket_config,
    changed_on,
    life_of,
    open_stream,
)
from axiom_common.drivers.record_feed import RecordFeed
from axiom_common.drivers.watch_progress import WatchProgress
from axiom_common.errors import ConflictError, InvalidInputError, UnavailableError
from axiom_common.ports.registry import Entry

CALL_TIMEOUT_MS = 1_000.0
QUIET_S = 0.25
"""A watch that was told nothing for so long looks whether its session still is open."""
KEY_QUIETS = 8
"""After so many quiet times in a row a watch of one key reads it, in case it missed the word."""
CHECK_QUIETS = 8
"""After so many quiet times in a row it asks the server whether it missed anything."""
_ABSENT = 0
_WRONG_LAST_SEQUENCE = (10071, 10164)
_NO_MESSAGE = 10037
_T = TypeVar("_T")


class NatsRegistry:
    """A `Registry` on a started `NatsConnection`.

    `replicas`: on how many servers of the cluster a bucket that is made here keeps its records.
    `domain`: the name under which JetStream is reached, where the account has none of its own;
    buckets are made by others then.
    `direct`: read single keys from any replica, which may lag by some ms, by requests that have the
    key in their subject, so that a server's permissions can cut who reads what.
    """

    def __init__(
        self,
        connection: NatsConnection,
        *,
        replicas: int = 1,
        domain: str | None = None,
        direct: bool = False,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> None:
        self._connection = connection
        self._way = Way(
            replicas=replicas, domain=domain, direct=direct, timeout_s=call_timeout_ms / 1e3
        )

    async def bucket(
        self, name: str, *, lasting: bool = False, bytes_max: int | None = None
    ) -> NatsBucket:
        """A handle on bucket `name`; needs no connection yet."""
        config = partial(
            bucket_config,
            name,
            replicas=self._way.replicas,
            lasting=lasting,
            bytes_max=bytes_max,
        )
        return NatsBucket(self._connection, name, self._way, config, lasting=lasting)


class NatsBucket:
    """A `Bucket`."""

    def __init__(
        self,
        connection: NatsConnection,
        name: str,
        way: Way,
        config: Callable[[], StreamConfig],
        *,
        lasting: bool,
    ) -> None:
        self._connection = connection
        self._config = config
        self._name = name
        self._way = way
        self._lasting = lasting
        # How JetStream itself names a bucket's stream and its subjects.
        self._stream_name = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._opened: Stream | None = None

    async def get(self, key: str) -> Entry | None:
        """The record, or None."""
        last = await self._last(key)
        return last if last is not None and last.value is not None else None

    async def list(self) -> tuple[Entry, ...]:
        """All present records, by key."""

        async def call(stream: Stream) -> tuple[Entry, ...]:
            entries: dict[str, Entry] = {}
            feed = await self._open_feed(stream)
            try:
                while (message := await feed.read()) is not None:
                    entry = self._entry(message, stream.life)
                    entries[entry.key] = entry
            finally:
                await feed.close()
            return tuple(e for _, e in sorted(entries.items()) if e.value is not None)

        return await self._call(call)

    async def put(self, key: str, value: bytes) -> int:
        """Write without a condition."""
        return await self._write(key, value)

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        """Write only if absent; deleted and expired count as absent."""
        try:
            return await self._write(key, value, revision=_ABSENT, ttl_ms=ttl_ms)
        except ConflictError:
            last = await self._last(key)
            if last is None or last.value is not None:
                raise
        return await self._write(key, value, revision=last.revision, ttl_ms=ttl_ms)

    async def update(
        self, key: str, value: bytes, *, revision: int, ttl_ms: float | None = None
    ) -> int:
        """Write only on `revision`."""
        return await self._write(key, value, revision=revision, ttl_ms=ttl_ms)

    async def delete(self, key: str, *, revision: int | None = None) -> int:
        """Delete; deleting what is not there is no error without `revision`."""
        return await self._write(key, b"", revision=revision, headers={KV_OP: KV_DEL})

    async def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
        """Present records, None, then changes; all again whenever changes may have been missed.

        What is gone since it was last told comes as deleted, before the None. One key is read when
        the server says that it changed: what changes twice meanwhile is told once.
        """
        progress = WatchProgress()
        while True:
            session = await self._connection.wait_session()
            try:
                telling = self._watch_all if key is None else partial(self._watch_key, key)
                async with contextlib.aclosing(telling(session, progress)) as entries:
                    async for entry in entries:
                        yield entry
            except UnavailableError as error:
                self._connection.log.warning(
                    "watch interrupted", once_a_minute=f"watch {self._name}", cause=str(error)
                )
            await asyncio.sleep(QUIET_S)

    async def _watch_key(
        self, key: str, session: Session, progress: WatchProgress
    ) -> AsyncGenerator[Entry | None, None]:
        """Tell the record and then changes, until the bucket looks older than what was told."""
        changed = asyncio.Event()

        async def change(_: Msg) -> None:
            changed.set()

        subscription = await self._call(
            lambda _: session.client.subscribe(changed_on(self._name, key), cb=change)
        )
        try:
            life, last_revision = await self._position()
            progress.begin(life, last_revision)
            told = await self._last(key)
            if told is not None and progress.take(told):
                yield told
            for gone in progress.end_of_present():
                yield gone
            yield None
            while await self._until(changed, session):
                last = await self._last(key)
                if _revision(last) < _revision(told):
                    self._opened = None
                    return
                if last is not None and _revision(last) > _revision(told):
                    told = last
                    if progress.take(last):
                        yield last
        finally:
            with contextlib.suppress(*CONNECTION_ERRORS):
                await subscription.unsubscribe()

    async def _until(self, changed: asyncio.Event, session: Session) -> bool:
        """Wait for a change, or for long enough to look anyway; False when the session ended."""
        for _ in range(KEY_QUIETS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    await changed.wait()
            if changed.is_set() or not session.open:
                break
        changed.clear()
        return session.open

    async def _watch_all(
        self, session: Session, progress: WatchProgress
    ) -> AsyncGenerator[Entry | None, None]:
        """Tell what is present and then changes, until one may have been missed."""
        life, last_revision = await self._position()
        progress.begin(life, last_revision)
        feed = await self._call(self._open_feed)
        quiets = 0
        try:
            while session.open:
                try:
                    async with asyncio.timeout(QUIET_S):
                        message = await feed.read()
                except TimeoutError:
                    quiets += 1
                    check_due = quiets % CHECK_QUIETS == 0 or feed.behind
                    if check_due and not await self._call(lambda _: feed.fed()):
                        return
                    continue
                quiets = 0
                if message is None:
                    for gone in progress.end_of_present():
                        yield gone
                    yield None
                elif progress.take(entry := self._entry(message, life)):
                    yield entry
        finally:
            await feed.close()

    async def _open_feed(self, stream: Stream) -> RecordFeed:
        client, jetstream = stream.session.client, stream.jetstream
        return await RecordFeed.open(client, jetstream, self._stream_name, f"{self._prefix}>")

    def _entry(self, message: Msg, life: int) -> Entry:
        value = None if _says_gone(message.headers or {}) else message.data
        key = message.subject.removeprefix(self._prefix)
        return Entry(key, value, life + message.metadata.sequence.stream)

    async def _last(self, key: str) -> Entry | None:
        """The newest message of a key; its value is None where that says deleted or expired."""

        async def call(stream: Stream) -> Entry | None:
            try:
                message = await stream.jetstream.get_last_msg(
                    self._stream_name, self._prefix + key, direct=self._way.direct
                )
            except nats.js.errors.NotFoundError as error:
                # A direct read that meets no stream is answered by nobody, so it has no such error.
                if self._way.direct or error.err_code == _NO_MESSAGE:
                    return None
                raise
            gone = _says_gone(message.headers or {})
            value = None if gone else message.data or b""
            return Entry(key, value, stream.life + (message.seq or 0))

        return await self._call(call)

    async def _position(self) -> tuple[int, int]:
        """The stream's life as it is now, and its last revision."""

        async def call(stream: Stream) -> tuple[int, int]:
            info = await stream.jetstream.stream_info(self._stream_name)
            life = life_of(info)
            if life != stream.life:
                self._opened = None
            return life, life + info.state.last_seq

        return await self._call(call)

    async def _write(
        self,
        key: str,
        value: bytes,
        *,
        revision: int | None = None,
        ttl_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Write; with `revision` only on that one, `_ABSENT` for none."""
        if ttl_ms is not None and self._lasting:
            raise InvalidInputError(f"bucket {self._name} lasts: no record of it expires")

        async def call(stream: Stream) -> int:
            sent = dict(headers or {})
            if revision is not None:
                sequence = revision if revision == _ABSENT else revision - stream.life
                if sequence < 0:
                    raise ConflictError(f"{self._name}/{key}: revision {revision} is lost")
                sent[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(sequence)
            ttl_s = None if ttl_ms is None else math.ceil(ttl_ms / 1e3)
            try:
                ack = await stream.jetstream.publish(
                    self._prefix + key,
                    value,
                    stream=self._stream_name,
                    headers=sent,
                    msg_ttl=ttl_s,
                )
            except nats.js.errors.APIError as error:
                if error.err_code in _WRONG_LAST_SEQUENCE:
                    # The sequence may be that of an earlier life, so the next call looks again.
                    self._opened = None
                    raise ConflictError(f"{self._name}/{key}: {error.description}") from error
                raise
            return stream.life + ack.seq

        return await self._call(call)

    async def _call(self, call: Callable[[Stream], Awaitable[_T]]) -> _T:
        session = self._connection.session()
        try:
            async with session.bounded(self._way.timeout_s):
                return await call(await self._open(session))
        except CONNECTION_ERRORS as error:
            # The stream may be gone, so the next call looks again.
            self._opened = None
            cause = str(error) or type(error).__name__
            raise UnavailableError(f"bucket {self._name}: {cause}") from error

    async def _open(self, session: Session) -> Stream:
        opened = self._opened
        if opened is None or opened.session is not session:
            opened = await open_stream(session, self._stream_name, self._way, config=self._config)
            self._opened = opened
        return opened


def _revision(entry: Entry | None) -> int:
    return entry.revision if entry is not None else 0


def _says_gone(headers: Mapping[str, str]) -> bool:
    return headers.get(KV_OP) in (KV_DEL, KV_PURGE) or KV_MARKER_REASON in headers
