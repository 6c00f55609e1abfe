"""HTTP/1.1 to engines: a connection a try, kept for the next one.

Only what a try needs, and every way in which an answer can end before its end is one and the same
UnavailableError: refused, lost, silent for too long, or bytes that are no HTTP. What an engine
sends faster than it is read waits in its socket.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from axiom_common.errors import AxiomError, UnavailableError

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM closes an idle connection: a request must not meet that close."""
IDLE_MAX = 256
"""Connections kept to one engine."""
HEAD_BYTES_MAX = 64 << 10
BUFFER_BYTES_MAX = 256 << 10
"""Received and not read yet; beyond it the socket waits."""

_HEAD = (
    b"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\n"
    b"accept-encoding: identity\r\ncontent-length: %d\r\n"
)


class WithheldError(AxiomError):
    """A request did not go out, because it must not go any more."""

    code = "withheld"


class _Origin(NamedTuple):
    host: str
    port: int
    secure: bool


class EngineConnection(asyncio.Protocol):
    """One connection, with the answer that is coming in on it. `idle_s` bounds each silence."""

    def __init__(self, origin: _Origin, idle_s: float) -> None:
        self.origin = origin
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.kept_since_s = 0.0
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._woken: asyncio.Future[None] | None = None
        self._reading = True
        self._parser = httptools.HttpResponseParser(self)
        self._silent_from_s = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._buffered = 0
        self._between = 0
        self._has_head = self._done = self._reusable = False
        self._error: UnavailableError | None = None

    # What a try does.

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request; its answer is read with `read_head` and `read`."""
        if self.kept_since_s:
            self._begin()
        self._transport.writelines((head, body))

    async def read_head(self) -> None:
        """Wait for `status` and `headers`."""
        while not self._has_head:
            await self._more()

    async def read(self) -> bytes:
        """What has come of the body, at least a byte; nothing at its end."""
        while not self._parts:
            if self._done:
                return b""
            await self._more()
        parts, self._parts, self._buffered = self._parts, [], 0
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def reusable(self) -> bool:
        """Whether the next request may go out on it."""
        sent = not self._transport.get_write_buffer_size()
        return self._done and self._reusable and sent and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once, which makes the engine stop."""
        self._transport.abort()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._woken = self._loop.create_future()
        self._silent_from_s = self._loop.time()
        if self._silence is None:
            self._silence = self._loop.call_later(self._idle_s, self._bound_silence)
        try:
            await self._woken
        finally:
            self._woken = None

    def _bound_silence(self) -> None:
        """One timer for all the waits of a connection, set anew only when it has run out: there is
        a wait for each chunk of a stream."""
        self._silence = None
        if self._woken is None:
            return
        left_s = self._silent_from_s + self._idle_s - self._loop.time()
        if left_s > 0.0:
            self._silence = self._loop.call_later(left_s, self._bound_silence)
        else:
            self._fail("silent for too long")

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer, or unasked ones."""
        self._between += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reusable = False
            self._fail(f"no HTTP: {error}")
        if self._between > HEAD_BYTES_MAX:
            self._fail("the head of the answer is too large")
        if self._buffered > BUFFER_BYTES_MAX and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed. An answer that tells no length ends with it."""
        self._reusable = False
        if self._silence is not None:
            self._silence.cancel()
        told = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        if self._has_head and exc is None and not told:
            self._done = True
        self._fail(f"connection lost: {exc}" if exc else "connection closed")

    # What the parser calls.

    def on_message_begin(self) -> None:
        """An answer begins; a second one was never asked for."""
        if self._done:
            self._reusable = False
            raise ValueError("more than was asked for")
        self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if not self._has_head:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is here, unless it only says that one is to come."""
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._has_head = True
            self._reusable = self._parser.should_keep_alive()
        self._between = 0

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._parts.append(body)
        self._buffered += len(body)
        self._between = 0

    def on_message_complete(self) -> None:
        """The answer is here."""
        self._done = self._has_head

    def _fail(self, why: str) -> None:
        if not self._done and self._error is None:
            self._error = UnavailableError(why)
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class EngineConnections:
    """The connections of one gateway. `connect_s` bounds a connect. `close` it at the end."""

    def __init__(self, *, connect_s: float, idle_s: float) -> None:
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._kept: defaultdict[_Origin, list[EngineConnection]] = defaultdict(list)

    async def post(
        self, url: str, path: str, headers: bytes, body: bytes, may_send: Callable[[], bool]
    ) -> EngineConnection:
        """Send a request; `headers` are whole lines. `release` what is returned.

        `may_send` is asked at the very moment in which it goes; WithheldError when it may not.
        """
        origin, host, prefix = _split(url)
        connection = self._take(origin) or await self._connect(origin)
        if not may_send():
            self.release(connection)
            raise WithheldError(f"no request goes to {url} any more")
        head = _HEAD % (prefix + path.encode(), host, len(body))
        connection.send(b"".join((head, headers, b"\r\n")), body)
        return connection

    def release(self, connection: EngineConnection) -> None:
        """The answer is read, or nobody wants it any more."""
        kept = self._kept[connection.origin]
        now_s = self._loop.time()
        while kept and now_s - kept[0].kept_since_s > KEEP_ALIVE_S:
            kept.pop(0).abort()
        if connection.reusable and len(kept) < IDLE_MAX:
            connection.kept_since_s = now_s
            kept.append(connection)
            return
        connection.abort()
        if not kept:
            del self._kept[connection.origin]

    def close(self) -> None:
        """Let go of what is kept."""
        for kept in self._kept.values():
            for connection in kept:
                connection.abort()
        self._kept.clear()

    def _take(self, origin: _Origin) -> EngineConnection | None:
        """The connection kept last: it has the most time left."""
        kept = self._kept.get(origin)
        while kept:
            connection = kept.pop()
            fresh = self._loop.time() - connection.kept_since_s <= KEEP_ALIVE_S
            if fresh and connection.reusable:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: _Origin) -> EngineConnection:
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: EngineConnection(origin, self._idle_s),
                    origin.host,
                    origin.port,
                    ssl=_tls() if origin.secure else None,
                )
        except (OSError, TimeoutError) as error:
            raise UnavailableError(f"can't connect: {error or 'too slow'}") from error
        return connection


@lru_cache(maxsize=4096)
def _split(url: str) -> tuple[_Origin, bytes, bytes]:
    """Where an engine's URL leads, its host header, and what its paths begin with."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnavailableError(f"no URL of an engine: {url[:200]!r}")
    try:
        port = parts.port or (443 if secure else 80)
        host = parts.netloc.rpartition("@")[2].encode("ascii")
        prefix = parts.path.rstrip("/").encode("ascii")
    except ValueError as error:
        raise UnavailableError(f"no URL of an engine: {error}") from error
    return _Origin(parts.hostname, port, secure), host, prefix


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
