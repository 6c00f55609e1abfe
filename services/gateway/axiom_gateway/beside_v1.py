"""All that is not /v1, behind one door.

Only the exact path leads to the admin API; everything else is 404, nothing a redirect. Under
/admin, however that is spelled, who has no key is told no more than that. A client is refused once
it has sent its body, also where nobody read that: it could miss the answer otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib

from axiom_common.errors import NotFoundError
from axiom_gateway.admin_access import Access, Authenticated
from axiom_gateway.admin_problems import problem_of
from axiom_gateway.asgi import DROPPED_BYTES_MAX, App, Message, Receive, Scope, Send
from axiom_gateway.handlers import PREFIX

ADMIN = "/admin/v1"
_UNDER_ADMIN = "admin"
DROP_S = 5.0
"""How long a client may take to send what nobody reads."""
_REFUSALS = 400


def beside_v1(admin: App, access: Access) -> App:
    """The app for all requests that are not for /v1."""
    locked = Authenticated(_not_found, access)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(scope, receive, send)
        path: str = scope["path"]
        if path == ADMIN or path.startswith(f"{ADMIN}/"):
            await admin({**scope, "root_path": ADMIN}, body.receive, body.send)
        elif _UNDER_ADMIN in path.lower():
            await locked(scope, body.receive, body.send)
        else:
            await _not_found(scope, body.receive, body.send)

    return app


def routed(v1: App, beside: App) -> App:
    """The app for all requests."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await v1(scope, receive, send)
        else:
            await beside(scope, receive, send)

    return app


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await problem_of(NotFoundError("there is nothing at this path"), scope)(scope, receive, send)


class _Body:
    """The body of a request, whose rest is dropped before a refusal is sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        # Who asks first whether to send it takes the refusal for a no.
        self._left = not any(name == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> Message:
        """The next part."""
        message = await self._receive()
        self._left = self._left and bool(message.get("more_body"))
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer."""
        if message["type"] == "http.response.start" and message["status"] >= _REFUSALS:
            await self._drop()
        await self._send(message)

    async def _drop(self) -> None:
        bytes_left = DROPPED_BYTES_MAX
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DROP_S):
                while self._left and bytes_left > 0:
                    bytes_left -= len((await self.receive()).get("body", b""))
