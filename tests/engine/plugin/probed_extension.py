"""Probe and Axiom's extension in one worker, for vLLM takes one class; a switch for both halves of
the extension, to measure what they cost; and a tap, to see what was told and when."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import residency_probe

from axiom_vllm import agent_api, channel, middleware, worker

SWITCH_PATH = "/agent/extension/"
TAP = os.environ["TEST_TAP_SOCKET"]


class TappedDatagrams(channel.UnixDatagrams):
    """Each datagram goes to the tap as well, if anybody listens there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._tap = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._tap.setblocking(False)

    def __call__(self, datagram: bytes) -> None:
        with contextlib.suppress(OSError):
            self._tap.sendto(datagram, TAP)
        super().__call__(datagram)


worker.UnixDatagrams = TappedDatagrams  # type: ignore[misc]
agent_api.UnixDatagrams = TappedDatagrams  # type: ignore[misc]


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
