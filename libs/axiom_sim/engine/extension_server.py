"""The HTTP side of the simulated extension, around the engine's server as its middleware is."""

from __future__ import annotations

import hmac
import json
from typing import Any

from axiom_sim.engine.asgi import Receive, Scope, Send
from axiom_sim.engine.extension import SimulatedExtension
from axiom_sim.engine.server import EngineServer
from axiom_vllm.agent_api import CALLS, LOAD_TO_HOST, PREFIX, STATE, status_of
from axiom_vllm.messages import (
    BAD_REQUEST,
    ENGINE_TIMEOUT,
    NOT_FOUND,
    UNAUTHORIZED,
    UNKNOWN_NAME,
    Message,
    encoded,
    refused,
    unsupported,
)
from axiom_vllm.middleware import NAMING
from axiom_vllm.tracking import TRACKED, TrackedRequest


class ExtensionServer:
    """The ASGI app of an engine with the extension. `token` "" means that callers need none."""

    def __init__(
        self, app: EngineServer, extension: SimulatedExtension, *, base: str, token: str
    ) -> None:
        self._app = app
        self._extension = extension
        self._base = base
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path, teller = scope["path"], self._extension.teller
        if path.startswith(PREFIX):
            await self._answer(scope, receive, send)
        elif scope["method"] == "POST" and path in TRACKED:
            request = TrackedRequest(teller.in_flight, lambda name: name == self._base)
            await request.run(self._app, dict(scope), receive, send)  # type: ignore[arg-type]
        else:
            await self._app(scope, receive, send)
            if path in NAMING:
                teller.names_changed()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
        token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        answer = await self._message(scope["method"], scope["path"], token, body)
        headers = [(b"content-type", b"application/json")]
        status = status_of(answer)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": encoded(answer)})

    async def _message(self, method: str, path: str, token: str, body: bytes) -> Message:
        extension, name = self._extension, path.removeprefix(PREFIX)
        if self._token and not hmac.compare_digest(token, f"Bearer {self._token}"):
            return refused(UNAUTHORIZED)
        if extension.silent:
            off = (method, name) == ("GET", STATE)
            return unsupported(ENGINE_TIMEOUT) if off else refused(ENGINE_TIMEOUT)
        if (method, name) == ("GET", STATE):
            return extension.state()
        if method != "POST" or name not in CALLS | {LOAD_TO_HOST}:
            return refused(NOT_FOUND)
        try:
            arguments = json.loads(body)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return refused(BAD_REQUEST, "a JSON object")
        return await self._control(name, arguments)

    async def _control(self, call: str, arguments: dict[str, Any]) -> Message:
        name, number = arguments.get("name"), arguments.get("id")
        if call == LOAD_TO_HOST:
            if not isinstance(name, str) or not name:
                return refused(BAD_REQUEST, "name")
            return await self._extension.load_to_host(name, arguments.get("path"))
        if isinstance(name, str):
            number = self._extension.number_of(name)
            if number is None:
                return refused(UNKNOWN_NAME)
        if not isinstance(number, int) or isinstance(number, bool):
            return refused(BAD_REQUEST, "name or id")
        return self._extension.control(call, number)
