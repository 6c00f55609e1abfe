"""Probe and Axiom's extension in one worker, for vLLM takes one class; and a switch for both halves
of the extension, to measure what they cost."""

from __future__ import annotations

from typing import Any

import residency_probe

from axiom_vllm import middleware, worker

SWITCH_PATH = "/agent/extension/"


class WorkerExtension(residency_probe.WorkerExtension, worker.WorkerExtension):
    """Tells by itself, and is asked by the judge."""

    def watch_adapters(self, on: bool) -> None:
        """Puts the hooks on or takes them off."""
        watch = self.axiom_attached.watch
        watch.detach()
        if on:
            watch.attach(lambda _: None)


class Middleware(middleware.Middleware):
    """Axiom's, with GET /agent/extension/on and off."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._teller: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(SWITCH_PATH):
            await super().__call__(scope, receive, send)
            return
        on = scope["path"] == f"{SWITCH_PATH}on"
        self._teller = self._api.teller or self._teller
        self._api.teller = self._teller if on else None
        await scope["app"].state.engine_client.collective_rpc("watch_adapters", args=(on,))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
