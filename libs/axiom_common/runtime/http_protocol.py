"""HTTP/1.1 as uvicorn speaks it, with the bounds that it lacks.

The head of a request is bounded in size and in time. And a client that leaves is noticed by every
request that it has on the way: of several in a row (pipelining) uvicorn tells only the last. The
head of an answer goes out with the first bytes of its body, in one packet. A wish to go on in
another protocol (`Upgrade: h2c`) is not heard: the request is served as it stands, body and all.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES_MAX = 64 << 10
HEAD_S_MAX = 30.0
"""Time for a head that has begun to come, and for a new connection to begin one."""

ABORT = "axiom.abort"
"""In the scope of a request: closes its connection without waiting for what is still unsent."""


_CONNECTION = b"connection"
_UPGRADE = (b"upgrade", _CONNECTION, b"http2-settings")
"""Headers that belong to the wish for another protocol."""


class HeadTooLargeError(Exception):
    """Ends the parsing of a request; its client gets a 400."""


class _HeadWithBody:
    """What an answer writes to: keeps its first piece for the second one, if that comes at once."""

    __slots__ = ("_first", "_loop", "_transport", "_written", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._first = b""
        self._written = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send, the first piece a little later than it could."""
        if not self._written:
            self._written = True
            self._first = data
            self._loop.call_soon(self._send_first)
        elif self._first:
            first, self._first = self._first, b""
            self._transport.write(first + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close once all is sent."""
        self._send_first()
        self._transport.close()

    def _send_first(self) -> None:
        first, self._first = self._first, b""
        if first:
            self._transport.write(first)


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    """Bytes received since the last part of a request that was whole."""
    _head_limit: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None
    _data = b""
    """What is being parsed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone; so has whoever reads the answers to its requests."""
        self._head_done()
        super().connection_lost(exc)
        waiting = [cycle for cycle, _ in self.pipeline]
        for cycle in (*waiting, *([self._answering] if self._answering else [])):
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        self._head_bytes += len(data)
        self._data = data
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too large.")
        elif self._head_bytes and self._head_limit is None:
            self._limit_head()

    def on_headers_complete(self) -> None:
        """The head is here, the body may follow."""
        if self.parser.should_upgrade():
            # The parser stops here; `_unsupported_upgrade_warning` begins anew.
            return
        if self._head_bytes > HEAD_BYTES_MAX:
            # Much of it may be the body that came along.
            size = sum(len(name) + len(value) for name, value in self.headers) + len(self.url)
            if size > HEAD_BYTES_MAX:
                raise HeadTooLargeError
        self._head_done()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of the body is here."""
        self._head_done()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here."""
        if self.parser.should_upgrade():
            return
        self._head_done()
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """The parser stopped at a head that asks for another protocol: parse that request again as
        one that does not ask. (uvicorn would warn, and lose what follows the head.)"""
        stopped = sys.exc_info()[1]
        method = self.parser.get_method()
        if not isinstance(stopped, httptools.HttpParserUpgrade) or method == b"CONNECT":
            self.send_400_response("This server opens no tunnels.")
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % line for line in self.headers if line[0] not in _UPGRADE]
        if any(b"close" in value.lower() for name, value in self.headers if name == _CONNECTION):
            lines.append(b"connection: close")
        rest = self._data[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join((*lines, b"", b"")) + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: object) -> None:
        self._answering = cycle
        cycle.transport = _HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]
        cycle.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]

    def _limit_head(self) -> None:
        self._head_limit = self.loop.call_later(HEAD_S_MAX, self.timeout_keep_alive_handler)

    def _head_done(self) -> None:
        self._head_bytes = 0
        if self._head_limit is not None:
            self._head_limit.cancel()
            self._head_limit = None
