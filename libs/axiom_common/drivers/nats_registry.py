"""The registry on JetStream KV.

A bucket is a handle that opens its stream, and makes it where it is missing, once a session: a
process may start before NATS does. A time to live is a whole number of seconds on the server, so it
is rounded up. An expired record leaves a marker, for watches to see; the library's own get and
create take that marker for a value, and its watch may say too early that all present was told
(`record_feed`), so everything here uses the stream beneath.

A stream whose store was lost is made anew and counts from 1 again, but incarnations and fences must
go on growing. So a revision is the stream's life, from its moment of creation, plus the sequence
number. It grows unless the server's clock goes back between two lives, or a stream takes more than
2^10 writes per ms of its life; and it stays below 2^53, exact as a double, until the year 2248.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, Header, StorageType, StreamConfig, StreamInfo
from nats.js.kv import KV_DEL, KV_MARKER_REASON, KV_OP, KV_PURGE

from axiom_common.drivers.nats_connection import CONNECTION_ERRORS, NatsConnection, Session
from axiom_common.drivers.record_feed import RecordFeed
from axiom_common.drivers.watch_progress import WatchProgress
from axiom_common.errors import ConflictError, InvalidInputError, UnavailableError
from axiom_common.ports.registry import Entry

CALL_TIMEOUT_MS = 1_000.0
MARKER_TTL_S = 60.0
"""How long the server keeps the marker of an expired record."""
DUPLICATE_WINDOW_S = 120.0
VALUE_BYTES_MAX = 1 << 20
KEY_POLL_S = 0.5
QUIET_S = 0.25
"""A watch that was told nothing for so long looks whether its session still is open."""
CHECK_QUIETS = 8
"""After so many quiet times in a row it asks the server whether it missed anything."""
LIFE_SHIFT = 10
"""Bits of a revision below the ms of the stream's creation."""

_ABSENT = 0
_WRONG_LAST_SEQUENCE = (10071, 10164)
_OTHER_CONFIGURATION = 10058
_NO_MESSAGE = 10037
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Stream:
    """A bucket's stream as one session opened it. A revision is `life` plus sequence number."""

    session: Session
    jetstream: JetStreamContext
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a process uses its buckets; see `NatsRegistry`."""

    replicas: int
    domain: str | None
    direct: bool
    timeout_s: float


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
        self._way = _Way(
            replicas=replicas, domain=domain, direct=direct, timeout_s=call_timeout_ms / 1e3
        )

    async def bucket(self, name: str, *, lasting: bool = False) -> NatsBucket:
        """A handle on bucket `name`; needs no connection yet."""
        return NatsBucket(self._connection, name, self._way, lasting=lasting)


class NatsBucket:
    """A `Bucket`."""

    def __init__(self, connection: NatsConnection, name: str, way: _Way, *, lasting: bool) -> None:
        self._connection = connection
        self._name = name
        self._way = way
        self._lasting = lasting
        # How JetStream itself names a bucket's stream and its subjects.
        self._stream_name = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._opened: _Stream | None = None

    async def get(self, key: str) -> Entry | None:
        """The record, or None."""
        last = await self._last(key)
        return last if last is not None and last.value is not None else None

    async def list(self) -> tuple[Entry, ...]:
        """All present records, by key."""

        async def call(stream: _Stream) -> tuple[Entry, ...]:
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

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete; deleting what is not there is no error without `revision`."""
        await self._write(key, b"", revision=revision, headers={KV_OP: KV_DEL})

    async def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
        """Present records, None, then changes; all again whenever changes may have been missed.

        What is gone since it was last told comes as deleted, before the None. One key is asked for
        every `KEY_POLL_S`: what changes twice in between is told once.
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
        life, last_revision = await self._position()
        progress.begin(life, last_revision)
        told = await self._last(key)
        if told is not None and progress.take(told):
            yield told
        for gone in progress.end_of_present():
            yield gone
        yield None
        while session.open:
            await asyncio.sleep(KEY_POLL_S)
            last = await self._last(key)
            if _revision(last) < _revision(told):
                self._opened = None
                return
            if last is not None and _revision(last) > _revision(told):
                told = last
                if progress.take(last):
                    yield last

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

    async def _open_feed(self, stream: _Stream) -> RecordFeed:
        client, jetstream = stream.session.client, stream.jetstream
        return await RecordFeed.open(client, jetstream, self._stream_name, f"{self._prefix}>")

    def _entry(self, message: Msg, life: int) -> Entry:
        value = None if _says_gone(message.headers or {}) else message.data
        key = message.subject.removeprefix(self._prefix)
        return Entry(key, value, life + message.metadata.sequence.stream)

    async def _last(self, key: str) -> Entry | None:
        """The newest message of a key; its value is None where that says deleted or expired."""

        async def call(stream: _Stream) -> Entry | None:
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

        async def call(stream: _Stream) -> tuple[int, int]:
            info = await stream.jetstream.stream_info(self._stream_name)
            life = _life(info)
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

        async def call(stream: _Stream) -> int:
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

    async def _call(self, call: Callable[[_Stream], Awaitable[_T]]) -> _T:
        session = self._connection.session()
        try:
            async with session.bounded(self._way.timeout_s):
                return await call(await self._open(session))
        except CONNECTION_ERRORS as error:
            # The stream may be gone, so the next call looks again.
            self._opened = None
            cause = str(error) or type(error).__name__
            raise UnavailableError(f"bucket {self._name}: {cause}") from error

    async def _open(self, session: Session) -> _Stream:
        opened = self._opened
        if opened is None or opened.session is not session:
            jetstream = session.client.jetstream(
                timeout=self._way.timeout_s, domain=self._way.domain
            )
            try:
                info = await jetstream.stream_info(self._stream_name)
            except nats.js.errors.NotFoundError as error:
                if self._way.domain is not None:
                    raise UnavailableError(
                        f"bucket {self._name} is not there yet: those who write it make it"
                    ) from error
                await self._make(jetstream)
                info = await jetstream.stream_info(self._stream_name)
            opened = self._opened = _Stream(session, jetstream, _life(info))
        return opened

    async def _make(self, jetstream: JetStreamContext) -> None:
        try:
            await jetstream.add_stream(self._stream_config())
        except nats.js.errors.BadRequestError as error:
            # Somebody was faster, with more replicas for example: theirs is as good.
            if error.err_code != _OTHER_CONFIGURATION:
                raise

    def _stream_config(self) -> StreamConfig:
        """A KV bucket with one record a key. Where records expire, the server leaves markers, and
        for those it allows roll-up: who may write one key can have it drop all others then."""
        return StreamConfig(
            name=self._stream_name,
            subjects=[f"{self._prefix}>"],
            max_msgs_per_subject=1,
            max_msg_size=VALUE_BYTES_MAX,
            discard=DiscardPolicy.NEW,
            storage=StorageType.FILE,
            num_replicas=self._way.replicas,
            duplicate_window=DUPLICATE_WINDOW_S,
            allow_rollup_hdrs=False,
            deny_delete=True,
            allow_direct=True,
            deny_purge=self._lasting,
            allow_msg_ttl=not self._lasting,
            subject_delete_marker_ttl=None if self._lasting else MARKER_TTL_S,
        )


def _revision(entry: Entry | None) -> int:
    return entry.revision if entry is not None else 0


def _life(info: StreamInfo) -> int:
    # JetStream tells it of each stream.
    created = cast("datetime", info.created)
    return int(created.timestamp() * 1e3) << LIFE_SHIFT


def _says_gone(headers: Mapping[str, str]) -> bool:
    return headers.get(KV_OP) in (KV_DEL, KV_PURGE) or KV_MARKER_REASON in headers
