"""ASGI in the few words that the engine's server needs: request, reply, and who is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from axiom_sim.engine.openai_api import read_object
from axiom_sim.engine.refusals import RefusedError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"
_BODY_BYTES_MAX = 32 << 20

T = TypeVar("T")


class GoneError(Exception):
    """The client has hung up: there is nobody to answer."""


class Reply:
    """A whole response."""

    __slots__ = ("body", "content_type", "status")

    def __init__(self, body: bytes, *, status: int = 200, content_type: str | None = JSON) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type


class Request:
    """One request: its headers, its body, and the means to answer."""

    __slots__ = ("headers", "receive", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self.receive = receive
        self.send = send

    async def read(self) -> bytes:
        """The body, within bounds."""
        parts = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > _BODY_BYTES_MAX:
                raise RefusedError(413, "Request body too large.", kind="Request Entity Too Large")
            if not message.get("more_body", False):
                return b"".join(parts)

    async def read_object(self) -> dict[str, Any]:
        """The body as a JSON object."""
        return read_object(await self.read(), self.headers.get("content-type", ""))

    async def until_gone(self) -> None:
        """Returns when the client has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, or GoneError as soon as the client has hung up."""
    try:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work, name="answer")
            watching = group.create_task(request.until_gone(), name="watch client")
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            gone = not working.done()
            working.cancel()
            watching.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    if gone:
        raise GoneError
    return working.result()
