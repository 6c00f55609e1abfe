"""The half in the API server: `--middleware axiom_vllm.middleware.Middleware`.

Answers /axiom/v1, counts inference requests on their way through, and passes all else on. Where the
extension is off, every other request goes through untouched.
"""

from __future__ import annotations

from typing import Any

from axiom_vllm.agent_api import PREFIX, AgentApi, status_of
from axiom_vllm.messages import BAD_REQUEST, encoded, refused
from axiom_vllm.settings import Settings
from axiom_vllm.tracking import TRACKED, App, Event, Receive, Scope, Send, TrackedRequest

NAMING = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
BODY_BYTES_MAX = 1 << 16


class Middleware:
    """Around vLLM's application, outermost."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._api = AgentApi(Settings.read())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self._answer(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST" and self._api.teller:
            await self._follow(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def attaching(event: Event) -> None:
            # Before the server takes its first request: nothing is missed.
            if event["type"] == "lifespan.startup.complete":
                await self._api.attach(scope["app"].state)
            await send(event)

        try:
            await self._app(scope, receive, attaching)
        finally:
            if self._api.teller is not None:
                self._api.teller.stop()

    async def _follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        teller = self._api.teller
        assert teller is not None
        path = scope["path"]
        if path in NAMING:
            await self._app(scope, receive, send)
            teller.names_changed()
        elif path in TRACKED:
            is_base = scope["app"].state.openai_serving_models.is_base_model
            await TrackedRequest(teller.in_flight, is_base).run(self._app, scope, receive, send)
            teller.request_ended()
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            answer = refused(BAD_REQUEST, f"a body above {BODY_BYTES_MAX} bytes")
        else:
            state: Any = scope["app"].state
            token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            answer = await self._api.answer(state, scope["method"], scope["path"], token, body)
        headers = [(b"content-type", b"application/json")]
        status = status_of(answer)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": encoded(answer)})


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when it is too large or its sender is gone."""
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if event["type"] != "http.request" or len(body) > BODY_BYTES_MAX:
            return None
        if not event.get("more_body", False):
            return bytes(body)
