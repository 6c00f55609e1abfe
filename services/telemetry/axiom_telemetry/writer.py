"""Writes what is due to the shadow cache: one pipeline a shard, the newest state of each node.

A shard that is away makes only its own nodes wait: they are due again a little later, and then go
to whoever holds them by then. Nothing is done about a shard that comes back, possibly without what
it had: every node is offered every `state.REFRESH_MS` anyway, and so is its name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId
from axiom_common.ports.clock import Clock
from axiom_common.ports.shadow_cache import Put, ShadowCache
from axiom_common.runtime.logging import Log
from axiom_common.wire.schemas import NodeRecord, encode
from axiom_telemetry.metrics import TelemetryMetrics
from axiom_telemetry.state import RETRY_MS, TelemetryState, Write

WRITES_MAX = 64
"""Records in one pipeline."""
TICK_MS = 20.0
MENTION_EVERY_MS = 2_000.0
MENTION_TICK_MS = 100.0
"""How long a new node waits to be named."""
IDLE_MS = 5_000.0
"""A shard that nothing is written to any more is forgotten: its nodes are another's by now."""


@dataclass(slots=True)
class _Shard:
    """One shard: who waits for it, and how it answered last."""

    waiting: dict[NodeId, None] = field(default_factory=dict)
    busy: bool = False
    away: bool = False
    used_ms: float = 0.0


class ShadowWriter:
    """The one that writes: a task that sees what is due, and one for each shard in use."""

    def __init__(
        self,
        state: TelemetryState,
        cache: ShadowCache,
        clock: Clock,
        metrics: TelemetryMetrics,
        log: Log,
    ) -> None:
        self._state = state
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._shards: dict[str, _Shard] = {}
        self._names_away = False
        self._mention_due_ms = 0.0
        self._named: set[NodeId] = set()

    @property
    def away(self) -> bool:
        """Whether some of the cache did not answer last time."""
        return self._names_away or any(shard.away for shard in self._shards.values())

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mention(), name="mention nodes")
            while True:
                now_ms = self._clock.now_ms()
                for node in self._state.take_due(now_ms):
                    shard = self._shards.setdefault(self._cache.shard(node), _Shard())
                    shard.waiting[node] = None
                for name, shard in list(self._shards.items()):
                    if shard.waiting and not shard.busy:
                        shard.busy = True
                        group.create_task(self._drain(shard), name=f"write to {name}")
                    elif not shard.busy and now_ms - shard.used_ms >= IDLE_MS:
                        del self._shards[name]
                await self._clock.sleep_ms(TICK_MS)

    async def _drain(self, shard: _Shard) -> None:
        """Write all that waits for a shard, or give it back where the shard is away."""
        try:
            while shard.waiting:
                await self._write(shard)
        finally:
            shard.busy = False

    async def _write(self, shard: _Shard) -> None:
        now_ms = shard.used_ms = self._clock.now_ms()
        batch = list(shard.waiting)[:WRITES_MAX]
        for node in batch:
            del shard.waiting[node]
        writes = [w for node in batch if (w := self._state.begin_write(node, now_ms)) is not None]
        if not writes:
            return
        outcomes = await self._cache.put_if_newer([_put(write) for write in writes])
        after_ms = self._clock.now_ms()
        for write, outcome in zip(writes, outcomes, strict=True):
            if isinstance(outcome, UnavailableError):
                self._state.not_written(write.state.node, after_ms)
                self._log.warning("shadow cache away", once_a_minute="cache", cause=str(outcome))
            else:
                self._state.wrote(write, after_ms)
        self._metrics.wrote(outcomes, after_ms - now_ms)
        shard.away = all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        if shard.away:
            for node in shard.waiting:
                self._state.not_written(node, after_ms)
            shard.waiting.clear()

    async def _mention(self) -> None:
        """Name all nodes every `MENTION_EVERY_MS`, and one that is new at once."""
        while True:
            now_ms = self._clock.now_ms()
            names = self._state.names()
            all_due = now_ms >= self._mention_due_ms
            new = names if all_due else [name for name in names if name not in self._named]
            if all_due or new:
                try:
                    await self._cache.mention(new)
                except UnavailableError as error:
                    self._names_away = True
                    self._mention_due_ms = 0.0
                    self._log.warning("shadow cache away", once_a_minute="names", cause=str(error))
                else:
                    self._names_away = False
                    self._named = set(names)
                    if all_due:
                        self._mention_due_ms = now_ms + MENTION_EVERY_MS
            await self._clock.sleep_ms(RETRY_MS if self._names_away else MENTION_TICK_MS)


def _put(write: Write) -> Put:
    state = write.state
    return Put(
        node=state.node,
        incarnation=state.incarnation,
        seq=state.seq,
        record=encode(NodeRecord(state=state)),
        ttl_ms=max(1, round(write.ttl_ms)),
    )
