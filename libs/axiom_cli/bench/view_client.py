"""What a gateway's watch tells, with the moment at which each adapter was first seen on a node."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import msgspec

from axiom_cli.admin import WATCH_PATH, Target
from axiom_cli.admin_client import WATCH_SILENCE_S
from axiom_cli.event_stream import EventStream
from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock


class _Resident(msgspec.Struct, frozen=True):
    adapter: str
    state: str


class _Engine(msgspec.Struct, frozen=True):
    engine: str
    residents: list[_Resident]


class SeenView(msgspec.Struct, frozen=True):
    """Of a NodeView what is measured, so that reading it takes next to no time."""

    node: str
    engines: list[_Engine]

    def residents(self) -> dict[str, list[list[str]]]:
        """By engine, oldest first, each as [adapter, state]."""
        return {e.engine: [[r.adapter, r.state] for r in e.residents] for e in self.engines}


_DECODER = msgspec.json.Decoder(SeenView)
Key = tuple[str, str]
"""Node and adapter."""


@dataclass(slots=True)
class ViewClient:
    """`first_ms` says when an adapter of a node was first seen in a slot."""

    clock: Clock
    first_ms: dict[Key, float] = field(default_factory=dict)
    _waiting: defaultdict[Key, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )

    async def run(self, gateway: Target, nodes: Sequence[str]) -> None:
        """Watch until cancelled; UnavailableError when the gateway ends it."""
        query = "&".join(f"node={node}" for node in nodes)
        timeout = aiohttp.ClientTimeout(sock_read=WATCH_SILENCE_S)
        try:
            async with (
                aiohttp.ClientSession(headers=gateway.headers) as session,
                session.get(f"{gateway.url}{WATCH_PATH}?{query}", timeout=timeout) as response,
            ):
                response.raise_for_status()
                stream = EventStream()
                async for chunk in response.content.iter_any():
                    now_ms = self.clock.now_ms()
                    for kind, data in stream.feed(chunk):
                        if kind == "node":
                            self.take(data, now_ms)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise UnavailableError(f"the gateway's watch broke: {error!r}") from error
        raise UnavailableError("the gateway ended the watch")

    async def seen(self, node: str, adapter: str, *, timeout_s: float) -> float:
        """When the adapter was first seen there, once it was; TimeoutError."""
        key = (node, adapter)
        if key not in self.first_ms:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiting[key].wait()
            finally:
                del self._waiting[key]
        return self.first_ms[key]

    def take(self, data: bytes, now_ms: float) -> None:
        """A view that came at `now_ms`."""
        view = _DECODER.decode(data)
        for engine in view.engines:
            for resident in engine.residents:
                key = (view.node, resident.adapter)
                if resident.state == "resident" and key not in self.first_ms:
                    self.first_ms[key] = now_ms
                    if key in self._waiting:
                        self._waiting[key].set()
