"""The scheduler: wires its parts, owns its tasks, and says how it is."""

from __future__ import annotations

import asyncio

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Registry
from axiom_common.ports.shadow_cache import ShadowCache
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import (
    LIVENESS_FROZEN,
    NATS_AWAY,
    REDIS_AWAY,
    REGISTRY_AWAY,
    REGISTRY_RESET,
    Readiness,
)
from axiom_common.state.hearing import TICK_MS
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import NodeRecord, decode
from axiom_scheduler.applier import Applied, Applier
from axiom_scheduler.handlers import Handlers
from axiom_scheduler.leadership import Leadership
from axiom_scheduler.metrics import SchedulerMetrics
from axiom_scheduler.planner import propose
from axiom_scheduler.settings import SchedulerSettings
from axiom_scheduler.state import SchedulerState

CACHE_RETRY_MS = 500.0
REST_FACTOR = 9
"""A placement is followed by a rest this many times as long: it takes a tenth of a core at most."""


class SchedulerApp:
    """Everything but the sockets, so that it runs on fakes as well."""

    def __init__(
        self,
        settings: SchedulerSettings,
        *,
        holder: str,
        bus: Bus,
        registry: Registry,
        cache: ShadowCache,
        clock: Clock,
    ) -> None:
        self.metrics = SchedulerMetrics()
        self._settings = settings
        self._holder = holder
        self._region = RegionId(settings.region)
        self._bus = bus
        self._registry = registry
        self._cache = cache
        self._clock = clock
        self._log = Log("axiom.scheduler", clock)
        self._state = SchedulerState(
            self._region,
            started_ms=clock.now_ms(),
            settle_ms=settings.settle_ms,
            forget_ms=settings.forget_ms,
        )
        self._handlers = Handlers(self._state, clock, self.metrics, self._log, self._changed)
        self._dirty = asyncio.Event()
        self._cache_away = False
        self._term: int | None = None
        self._unplaced = 0
        self.metrics.expose(
            dropped=lambda: bus.dropped,
            nats_refusals=lambda: bus.refused,
            degraded=lambda: self.readiness().degraded,
        )
        self._rest_ms = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, owner: Owner) -> None:
        """Start all tasks in `owner`; returns when it listens on the bus."""
        desired = await self._registry.bucket(keys.DESIRED_BUCKET)
        self._desired = DesiredWatch(desired, self._log, self._changed)
        self._store = DesiredStore(desired)
        self._applier = Applier(
            await self._registry.bucket(keys.PLAN_BUCKET), region=self._region, log=self._log
        )
        self._leadership = Leadership(
            await self._registry.bucket(keys.lease_bucket(self._region)),
            holder=self._holder,
            times=self._settings.lease_times(),
            clock=self._clock,
            log=self._log,
            on_change=self._changed,
        )
        await self._bus.subscribe(
            subjects.all_node_reports(self._region), self._handlers.node_report
        )
        jobs = {
            "read the shadow cache": self._bootstrap(),
            "follow desired state": self._desired.run(),
            "keep the lease": self._leadership.run(),
            "reconcile": self._reconcile_on_change(),
            "tick": self._tick(),
        }
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]

    async def stop(self) -> None:
        """End the tasks and give the lease back; the bus may be closed then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._leadership.resign()

    def readiness(self) -> Readiness:
        """Ready once it knows what is declared; a follower is as ready as a leader."""
        degraded = {
            NATS_AWAY: not self._bus.connected,
            REGISTRY_AWAY: self._leadership.away,
            REGISTRY_RESET: self._desired.reset,
            REDIS_AWAY: self._cache_away,
            LIVENESS_FROZEN: self._state.frozen,
        }
        fence = self._leadership.fence
        return Readiness(
            ready=self._desired.synced,
            degraded=tuple(name for name, is_so in degraded.items() if is_so),
            facts={
                "leads": fence is not None,
                "fence": fence,
                "nodes": self._state.nodes,
                "adapters": len(self._desired.adapters),
                "unplaced": self._unplaced,
            },
        )

    def _changed(self) -> None:
        self._dirty.set()

    async def _bootstrap(self) -> None:
        """Read the shadow cache once; until that works, reports alone have to do."""
        while True:
            try:
                records = await self._cache.read_all()
                break
            except UnavailableError as error:
                self._cache_away = True
                self._log.warning("shadow cache away", once_a_minute="cache", cause=str(error))
                await self._clock.sleep_ms(CACHE_RETRY_MS)
        self._cache_away = False
        self._state.bootstrap(
            [node for record in records if (node := self._node(record))], self._clock.now_ms()
        )
        self._changed()

    def _node(self, record: bytes) -> NodeState | None:
        try:
            return decode(record, NodeRecord).state
        except WireError as error:
            self.metrics.invalid_messages.labels("record").inc()
            self._log.warning("record dropped", once_a_minute="record", cause=str(error))
            return None

    async def _tick(self) -> None:
        """What only time changes."""
        while True:
            await self._clock.sleep_ms(TICK_MS)
            swept = self._state.sweep(self._clock.now_ms(), connected=self._bus.connected)
            if swept or self._term != self._leadership.fence:
                self._changed()
            unacknowledged = self._state.unacknowledged(self._applier.plans) if self._term else {}
            self.metrics.unacknowledged.set(len(unacknowledged))
            self.metrics.refused(reason for reason in unacknowledged.values() if reason)
            self.metrics.leaders.set(self._leadership.fence is not None)
            self.metrics.nodes.set(self._state.nodes)
            self.metrics.adapters.set(len(self._desired.adapters))

    async def _reconcile_on_change(self) -> None:
        while True:
            await self._dirty.wait()
            await self._clock.sleep_ms(max(self._settings.debounce_ms, self._rest_ms))
            self._dirty.clear()
            started_ms = self._clock.now_ms()
            outcome = await self._reconcile()
            if outcome is not None:
                self.metrics.reconciled(outcome, self._clock.now_ms() - started_ms)

    async def _reconcile(self) -> str | None:
        """Plan and write, if this process leads and knows enough; how it ended."""
        fence = self._leadership.fence
        if fence is None or not self._desired.synced:
            self._term = None
            return None
        try:
            if self._desired.reset:
                await self._restore()
            outcome = await self._plan(fence)
        except UnavailableError as error:
            self._log.warning("registry away", once_a_minute="registry", cause=str(error))
            # A new term begins with reading what stands: what was written is unknown.
            self._term = None
            return "unavailable"
        if outcome is Applied.FENCED:
            self._log.warning("another leader is at work", once_a_minute="fenced", fence=fence)
            await self._leadership.resign()
        if outcome in (Applied.CONFLICT, Applied.FENCED, Applied.LOST):
            self._changed()
        return outcome

    async def _restore(self) -> None:
        """The registry's store was lost: declare again what it had, as far as it is known here."""
        lost = self._desired.lost
        self._log.warning("registry lost its store, declaring again", records=len(lost))
        await self._store.restore(lost, revision_floor=self._desired.revision_floor)

    async def _plan(self, fence: int) -> Applied | None:
        if self._term != fence:
            await self._applier.read()
        plans = self._applier.plans
        now_ms = self._clock.now_ms()
        if not self._state.settled(plans, now_ms):
            return None
        self._term = fence
        proposal = propose(
            self._state.snapshot(
                self._desired.adapters,
                plans,
                self._desired.engine_orders.values(),
                revision_floor=self._desired.revision_floor,
            ),
            fence=fence,
            gone=self._state.gone(plans, now_ms),
        )
        self._rest_ms = REST_FACTOR * (self._clock.now_ms() - now_ms)
        self._unplaced = len(proposal.unplaced)
        self.metrics.unplaced(proposal.unplaced.values())
        written = self._applier.written
        outcome = await self._applier.apply(proposal, lambda: self._leadership.fence == fence)
        self.metrics.plans_written.inc(self._applier.written - written)
        return outcome
