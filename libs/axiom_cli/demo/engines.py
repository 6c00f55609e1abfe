"""What the simulated engines counted, over all their lives in a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from axiom_cli.demo.figures import EngineCounters, FleetCounters
from axiom_common.model.ids import EngineId

STATS_PATH = "/sim/stats"
TIMEOUT_S = 5.0


class _Stats(msgspec.Struct):
    adapter_loads: int
    prefix_query_tokens: int
    prefix_hit_tokens: int


_STATS = msgspec.json.Decoder(_Stats)


class EngineWatch:
    """Reads all engines. One read or one death at a time, so that no old life counts twice."""

    def __init__(self, session: aiohttp.ClientSession, urls: Mapping[EngineId, str]) -> None:
        self._session = session
        self._urls = urls
        self._fleet = FleetCounters()
        self._lock = asyncio.Lock()

    async def read(self) -> EngineCounters:
        """The fleet's counters now; an engine that is away counts with what it had."""
        async with self._lock:
            await asyncio.gather(*(self._read_one(engine) for engine in self._urls))
            return self._fleet.total()

    @asynccontextmanager
    async def ending(self, engine: EngineId) -> AsyncIterator[None]:
        """The body ends the engine's life; what it had counted until then is kept."""
        async with self._lock:
            await self._read_one(engine)
            yield
            self._fleet.ended(engine)

    async def _read_one(self, engine: EngineId) -> None:
        try:
            async with self._session.get(self._urls[engine] + STATS_PATH) as response:
                told = _STATS.decode(await response.read())
        except (aiohttp.ClientError, TimeoutError):
            return
        self._fleet.seen(
            engine,
            EngineCounters(
                adapter_loads=told.adapter_loads,
                prefix_query_tokens=told.prefix_query_tokens,
                prefix_hit_tokens=told.prefix_hit_tokens,
            ),
        )


@asynccontextmanager
async def engine_watch(urls: Mapping[EngineId, str]) -> AsyncIterator[EngineWatch]:
    """A watch of the engines at `urls`."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield EngineWatch(session, urls)
