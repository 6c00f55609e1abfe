"""The service without its sockets: it runs on fakes as well. Owns the tasks, says how it is."""

from __future__ import annotations

import asyncio
from functools import partial

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Registry
from axiom_common.ports.shadow_cache import ShadowCache
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import (
    LIVENESS_FROZEN,
    NATS_AWAY,
    REDIS_AWAY,
    REGISTRY_AWAY,
    Readiness,
)
from axiom_common.state.hearing import TICK_MS
from axiom_common.wire import subjects
from axiom_common.wire.schemas import ResyncRequest, encode
from axiom_telemetry.handlers import Handlers
from axiom_telemetry.membership import Membership
from axiom_telemetry.metrics import TelemetryMetrics
from axiom_telemetry.settings import TelemetrySettings
from axiom_telemetry.sharing import Sharing
from axiom_telemetry.state import TelemetryState
from axiom_telemetry.writer import ShadowWriter

RESYNC_TICK_MS = 20.0
SHARE_TICK_MS = 100.0


class TelemetryApp:
    """Hears its share of a region's nodes and keeps their part of the shadow cache.

    `instance` must be this process's own name: two alike would count as one.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        instance: str,
        bus: Bus,
        registry: Registry,
        cache: ShadowCache,
        clock: Clock,
    ) -> None:
        self.metrics = TelemetryMetrics()
        self._region = RegionId(settings.region)
        self._instance = instance
        self._bus = bus
        self._clock = clock
        self._log = Log("axiom.telemetry", clock)
        self._state = TelemetryState(
            self._region, started_ms=clock.now_ms(), write_every_ms=settings.write_every_ms
        )
        self._sharing = Sharing(instance, started_ms=clock.now_ms())
        self._membership = Membership(
            self._region, instance, registry, self._sharing, clock, self._log
        )
        self._handlers = Handlers(self._state, self._sharing, clock, self.metrics, self._log)
        self._writer = ShadowWriter(self._state, cache, clock, self.metrics, self._log)
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics.expose(
            members=lambda: len(self._sharing.members),
            nodes=lambda: self._state.node_count,
            engines=lambda: self._state.engine_count,
            pending=lambda: self._state.dirty_count,
            dropped=lambda: bus.dropped,
            nats_refusals=lambda: bus.refused,
            degraded=lambda: self.readiness().degraded,
        )

    async def start(self, owner: Owner) -> None:
        """Start all tasks in `owner`; returns when it listens on the bus."""
        jobs = {
            "write": self._writer.run(),
            "resync": self._resync(),
            "sweep": self._sweep(),
            "members": self._membership.run(),
            "share": self._share(),
        }
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]
        self._bus.on_reconnect(self._handlers.reconnected)
        await self._bus.subscribe(
            subjects.all_node_reports(self._region), self._handlers.node_report
        )

    async def stop(self) -> None:
        """End the tasks; the bus and the cache may be closed then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._membership.leave()

    def readiness(self) -> Readiness:
        """Always fit: without bus or cache it waits for them, and says so."""
        degraded = {
            NATS_AWAY: not self._bus.connected,
            REDIS_AWAY: self._writer.away,
            REGISTRY_AWAY: self._membership.away,
            LIVENESS_FROZEN: self._state.frozen,
        }
        return Readiness(
            ready=True,
            degraded=tuple(name for name, is_so in degraded.items() if is_so),
            facts={
                "region": self._region,
                "members": list(self._sharing.members),
                "nodes": self._state.node_count,
                "pending_writes": self._state.dirty_count,
                "dropped_messages": self._bus.dropped,
            },
        )

    async def _resync(self) -> None:
        while True:
            for node in self._state.resyncs.take(self._clock.now_ms()):
                await self._ask(node)
            await self._clock.sleep_ms(RESYNC_TICK_MS)

    async def _ask(self, node: NodeId) -> None:
        request = encode(ResyncRequest(asker=self._instance))
        try:
            await self._bus.publish(subjects.node_resync(self._region, node), request)
        except UnavailableError as error:
            # Asked again after the reconnect.
            self._log.warning("resync not sent", once_a_minute="resync", cause=str(error))
        else:
            self.metrics.resyncs.inc()

    async def _share(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            if self._sharing.sweep(now_ms):
                given = self._state.keep_only(partial(self._owns, now_ms), now_ms)
                self._log.info("members", members=list(self._sharing.members), given_away=given)
            await self._clock.sleep_ms(SHARE_TICK_MS)

    def _owns(self, now_ms: float, node: NodeId) -> bool:
        return self._sharing.owns(node, now_ms)

    async def _sweep(self) -> None:
        while True:
            now_ms, connected = self._clock.now_ms(), self._bus.connected
            for node in self._state.sweep(now_ms, connected=connected):
                self.metrics.forgotten.inc()
                self._log.info("node forgotten", node=node)
            await self._clock.sleep_ms(TICK_MS)
