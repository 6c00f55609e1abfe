"""Writes what waits to the shadow cache: some nodes at a time, the newest state of each.

While the cache is away one node is tried at a time; once it answers, everything is written again,
since a cache that restarted has lost it all. Where no report comes, no write would tell of such a
loss, so from time to time it is asked whether it is there and offered everything again; it refuses
what it still has.
"""

from __future__ import annotations

import asyncio

from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock
from axiom_common.ports.shadow_cache import ShadowCache
from axiom_common.runtime.logging import Log
from axiom_common.wire.schemas import NodeRecord, encode
from axiom_telemetry.metrics import TelemetryMetrics
from axiom_telemetry.state import TelemetryState, Write

WRITES_MAX = 16
TICK_MS = 20.0
RETRY_MS = 200.0
QUIET_MS = 1_000.0


class ShadowWriter:
    """The one task that writes."""

    def __init__(
        self,
        state: TelemetryState,
        cache: ShadowCache,
        clock: Clock,
        metrics: TelemetryMetrics,
        log: Log,
    ) -> None:
        self.away = False
        self._wrote_ms = clock.now_ms()
        self._state = state
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._log = log

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            now_ms = self._clock.now_ms()
            writes = self._state.take_writes(now_ms, 1 if self.away else WRITES_MAX)
            if writes:
                self._wrote_ms = now_ms
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._write(write), name=f"write {write.state.node}")
                        for write in writes
                    ]
                self._judge(all(task.result() for task in tasks))
            elif self.away or now_ms - self._wrote_ms >= QUIET_MS:
                self._wrote_ms = now_ms
                self._state.write_all()
                self._judge(await self._answers())
            await self._clock.sleep_ms(RETRY_MS if self.away else 0 if writes else TICK_MS)

    def _judge(self, reached: bool) -> None:
        if reached and self.away:
            self._log.info("shadow cache is back")
            self._state.write_all()
        self.away = not reached

    async def _answers(self) -> bool:
        """Whether the cache is there, where there is nothing to write that would tell."""
        try:
            await self._cache.ping()
        except UnavailableError:
            return False
        return True

    async def _write(self, write: Write) -> bool:
        """Whether the cache answered."""
        state = write.state
        began_ms = self._clock.now_ms()
        try:
            stored = await self._cache.put_if_newer(
                state.node,
                incarnation=state.incarnation,
                seq=state.seq,
                record=encode(NodeRecord(state=state)),
                ttl_ms=max(1, round(write.ttl_ms)),
            )
        except UnavailableError as error:
            self._state.not_written(write)
            self._metrics.writes.labels("failed").inc()
            self._log.warning("shadow cache away", once_a_minute="cache", cause=str(error))
            return False
        now_ms = self._clock.now_ms()
        self._state.wrote(write, now_ms)
        self._metrics.writes.labels("stored" if stored else "not-newer").inc()
        self._metrics.write_duration.observe((now_ms - began_ms) / 1e3)
        return True
