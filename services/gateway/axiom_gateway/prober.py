"""Looks after engines whose agent is silent: asks their /health itself, slowly and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import aiohttp

from axiom_common.model.ids import EngineId
from axiom_common.ports.clock import Clock

PROBE_EVERY_MS = 1000.0
PROBE_TIMEOUT_S = 1.0
PROBES_AT_A_TIME = 16
ENGINES_A_ROUND_MAX = 256

Silent = tuple[EngineId, str]
"""An engine and its URL."""


class Prober:
    """Probes what `silent` yields, and tells `found` (engine, whether it answered)."""

    def __init__(
        self,
        clock: Clock,
        *,
        silent: Callable[[], Iterable[Silent]],
        found: Callable[[EngineId, bool], None],
    ) -> None:
        self._clock = clock
        self._silent = silent
        self._found = found

    async def run(self) -> None:
        """Probe until cancelled."""
        limit = asyncio.Semaphore(PROBES_AT_A_TIME)
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                async with asyncio.TaskGroup() as group:
                    for engine, url in list(self._silent())[:ENGINES_A_ROUND_MAX]:
                        group.create_task(
                            self._probe(session, limit, engine, url), name=f"probe {engine}"
                        )
                await self._clock.sleep_ms(PROBE_EVERY_MS)

    async def _probe(
        self, session: aiohttp.ClientSession, limit: asyncio.Semaphore, engine: EngineId, url: str
    ) -> None:
        async with limit:
            try:
                async with session.get(f"{url}/health") as response:
                    answered = response.status == 200
            except (aiohttp.ClientError, TimeoutError, OSError):
                answered = False
        self._found(engine, answered)
