"""One HTTP exchange on raw ASGI: what /v1 needs and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from axiom_common.errors import AxiomError
from axiom_common.runtime.lifecycle import Owner
from axiom_common.wire import headers
from axiom_gateway.errors import ApiError, too_large

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
_CONTENT_LENGTH = b"content-length"
_CONTENT_TYPE = b"content-type"
DROPPED_BYTES_MAX = 64 << 20
"""Of a body that is refused for its size; after so much the answer goes out all the same."""
WATCH_AFTER_S = 0.01
"""Most small answers are over by then, and no task is spent on watching their client."""
_RETRY_AFTER = headers.RETRY_AFTER.encode()


class ClientGoneError(AxiomError):
    """The client closed its connection; nobody reads what would be sent."""


class Exchange:
    """A request being answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._asked: dict[bytes, bytes] = dict(scope["headers"])
        self._headers: dict[bytes, bytes] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._drops_rest = False
        self.status: int | None = None
        """Status of the answer once its head is sent."""
        self.cut: asyncio.Timeout | None = None
        """The scope that ends this exchange when it is rescheduled into the past."""
        self.buffered_bytes = 0
        """Bytes of the body that are kept for this exchange."""
        self.has_body = False
        """The whole body came."""
        self.gone = False
        """The client closed its connection."""
        self.ended = False
        """The whole answer is sent."""

    @property
    def method(self) -> str:
        """HTTP method, upper case."""
        return str(self._scope["method"])

    @property
    def path(self) -> str:
        """Decoded path."""
        return str(self._scope["path"])

    def header(self, name: str) -> str | None:
        """A request header; `name` in lower case."""
        value = self._asked.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def all_headers(self, name: str) -> list[str]:
        """Every request header of this name, as often as it came; `name` in lower case."""
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self._scope["headers"] if key == wanted]

    def raw_header(self, name: bytes) -> bytes | None:
        """A request header as it came; `name` in lower case."""
        return self._asked.get(name)

    def set_header(self, name: bytes, value: bytes) -> None:
        """A header that the answer will carry, whatever the answer is."""
        self._headers[name] = value

    async def body(self, bytes_max: int, take: Callable[[int], None]) -> bytes:
        """The whole request body; ApiError (413) beyond `bytes_max`, however it is sent.

        `take` hears of the bytes of each part before it is kept, and may raise.
        """
        announced = self.header("content-length")
        if announced is not None and announced.isdigit() and int(announced) > bytes_max:
            self.skip_body()
            raise too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        while not self.has_body:
            part = await self._part()
            size += len(part)
            if size > bytes_max:
                parts.clear()
                await self._drop_body()
                raise too_large(bytes_max)
            take(len(part))
            self.buffered_bytes += len(part)
            parts.append(part)
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def skip_body(self) -> None:
        """It is answered at once; its body comes all the same, unless its client asks first."""
        self._drops_rest = self.header("expect") is None

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.has_body = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def drop_rest(self, limit_s: float) -> None:
        """After an answer that did not wait for the body: end it when the body is over, or late.

        A connection that is closed earlier is reset, and the answer may be lost with it.
        """
        if not self._drops_rest or self.ended:
            return
        with contextlib.suppress(TimeoutError, ClientGoneError):
            async with asyncio.timeout(limit_s):
                await self._drop_body()
        await self.finish()

    async def _drop_body(self) -> None:
        """Read on, for most clients look at an answer only when they have sent all."""
        left = DROPPED_BYTES_MAX
        while left > 0 and not self.has_body:
            left -= len(await self._part())

    def watch_client(self, owner: Owner) -> None:
        """End the exchange when its client goes, until `unwatch`. Only after `body`."""

        def begin() -> None:
            self._watcher = owner.create_task(self._until_gone(), name="watch client")

        self._watch = asyncio.get_running_loop().call_later(WATCH_AFTER_S, begin)

    def unwatch(self) -> None:
        """The client may go."""
        if self._watch is not None:
            self._watch.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.end_now()

    def has_until(self, limit_s: float) -> None:
        """From now on the exchange may take `limit_s`; then it is cut."""
        if self.cut is not None and not self.cut.expired():
            self.cut.reschedule(asyncio.get_running_loop().time() + limit_s)

    def end_now(self) -> None:
        """Cut what is under way: the body of `cut` sees a TimeoutError at its edge."""
        self.has_until(0.0)

    async def start(self, status: int, content_type: bytes, *extra: tuple[bytes, bytes]) -> None:
        """Send the head of the answer."""
        self.status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(_CONTENT_TYPE, content_type), *self._headers.items(), *extra],
            }
        )

    async def write(self, chunk: bytes) -> None:
        """Send a piece of the answer's body; waits while the client is slow."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last piece."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def answer(
        self, status: int, body: bytes, content_type: bytes = JSON, *extra: tuple[bytes, bytes]
    ) -> None:
        """Send a whole answer."""
        length = (_CONTENT_LENGTH, b"%d" % len(body))
        await self.start(status, content_type, length, *extra)
        if self._drops_rest:
            await self.write(body)
        else:
            await self.finish(body)

    async def fail(self, error: ApiError) -> None:
        """Answer with an error; inside a stream as its last event. Once ended, nothing is left."""
        if self.ended:
            return
        if self.status is not None:
            await self.finish(error.event())
            return
        extra: Headers = []
        if error.retry_after_s is not None:
            extra = [(_RETRY_AFTER, b"%d" % error.retry_after_s)]
        await self.answer(error.status, error.body(), JSON, *extra)
