"""Tells the node agent what the API server knows: requests in flight, and adapters' names.

Changes of a few ms go into one message, so a busy server sends hundreds a second at most. Each
second it tells the whole, which heals what was dropped and shows that it lives.
"""

from __future__ import annotations

import asyncio
from typing import Any

from axiom_vllm.channel import Channel
from axiom_vllm.in_flight import InFlight
from axiom_vllm.messages import NAMES, Message

FLUSH_S = 0.002
BEAT_S = 1.0


class ServerTeller:
    """Of one API server process; `models` is its OpenAIServingModels."""

    def __init__(self, channel: Channel, models: Any) -> None:
        self.in_flight = InFlight(self._flush_soon)
        self._channel = channel
        self._models = models
        self._told: dict[str, tuple[int, str]] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def beat(self) -> None:
        """Tell the whole, now and each second from now on."""
        self._send(self.in_flight.message(whole=True))
        self.names_changed()
        self._timers["beat"] = asyncio.get_running_loop().call_later(BEAT_S, self.beat)

    def stop(self) -> None:
        """Say no more."""
        for timer in self._timers.values():
            timer.cancel()

    def request_ended(self) -> None:
        """A first request for an unseen name may have made vLLM find and load it."""
        if self._told is not None and len(self._told) != len(self._models.lora_requests):
            self.names_changed()

    def names_changed(self) -> None:
        """A name was loaded or unloaded, perhaps."""
        if self._told != self._registered():
            self._send_names()

    def requests(self) -> Message:
        """What is in flight, whole."""
        return self._channel.stamped(self.in_flight.counts())

    def names(self) -> Message:
        """The names that the server answers to, with numbers and paths."""
        return self._channel.stamped(_names_message(self._registered()))

    def _registered(self) -> dict[str, tuple[int, str]]:
        requests = self._models.lora_requests
        return {name: (r.lora_int_id, r.lora_path) for name, r in requests.items()}

    def _send_names(self) -> None:
        self._told = self._registered()
        self._send(_names_message(self._told))

    def _send(self, message: Message) -> None:
        self._channel.send(message)
        if self._channel.owed:
            # The agent may be another one when it is back.
            self._told = None

    def _flush_soon(self) -> None:
        loop = asyncio.get_running_loop()
        self._timers["flush"] = loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._send(self.in_flight.message(whole=self._channel.owed))


def _names_message(registered: dict[str, tuple[int, str]]) -> Message:
    entries = {name: {"id": number, "path": path} for name, (number, path) in registered.items()}
    return {"kind": NAMES, "whole": True, "registered": entries}
