"""Follows one inference request through the API server: for which adapter, from when, until when.

A request counts from when its body is whole until its answer is, or until the application is done
with it in any other way: client gone, error, cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from axiom_vllm.in_flight import BASE, NAME_CHARS_MAX, InFlight

Scope = dict[str, Any]
Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TRACKED = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/score",
        "/v1/rerank",
        "/v2/rerank",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/inference/v1/generate",
        "/classify",
        "/pooling",
        "/rerank",
        "/score",
    }
)
"""Paths of POST requests that make the engine work."""


def adapter_of(body: bytes, is_base: Callable[[str], bool]) -> str | None:
    """The adapter that a request's body asks for; BASE when it names none, as forms can't in a way
    that is read here; None when the server will refuse it for the name that it has."""
    if body.lstrip()[:1] != b"{":
        return BASE
    try:
        model = json.loads(body).get("model")
    except (ValueError, RecursionError):
        return None
    if model is None or model == "":
        return BASE
    if not isinstance(model, str) or len(model) > NAME_CHARS_MAX:
        return None
    return BASE if is_base(model) else model


class TrackedRequest:
    """One request on its way to `app`."""

    def __init__(self, in_flight: InFlight, is_base: Callable[[str], bool]) -> None:
        self._in_flight = in_flight
        self._is_base = is_base
        self._received: list[Event] = []
        self._answered = False
        self._gone = False

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on as it came, and count it meanwhile."""
        name = await self._adapter(receive)
        self._received.reverse()

        async def replay() -> Event:
            if self._received:
                return self._received.pop()
            event = await receive()
            if event["type"] == "http.disconnect" and not self._answered:
                self._gone = True
            return event

        async def watched_send(event: Event) -> None:
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                self._answered = True
            await send(event)

        if name is None:
            await app(scope, replay, send)
            return
        self._in_flight.start(name)
        try:
            await app(scope, replay, watched_send)
        finally:
            self._in_flight.end(name, aborted=self._gone or not self._answered)

    async def _adapter(self, receive: Receive) -> str | None:
        while True:
            event = await receive()
            self._received.append(event)
            if event["type"] != "http.request":
                return None
            if not event.get("more_body", False):
                break
        body = b"".join(event.get("body", b"") for event in self._received)
        return adapter_of(body, self._is_base)
