"""The region's plans and whether a scheduler leads, followed all the time: so that both are known
while the registry is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import Any, Self

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket, Entry, Registry
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import SCHEDULER_AWAY
from axiom_common.wire import keys
from axiom_common.wire.schemas import PlanRecord, decode

AWAY_MS = 5_000.0
"""A lease changes hands within it."""
RETRY_MS = 500.0
NODES_MAX = 16_384


class PlanFeed:
    """Follows what schedulers write. Plans stay packed until somebody looks at them."""

    def __init__(
        self,
        plans: Bucket,
        leases: Bucket,
        bus: Bus,
        clock: Clock,
        log: Log,
        *,
        region: RegionId,
    ) -> None:
        self._plans = plans
        self._leases = leases
        self._bus = bus
        self._clock = clock
        self._log = log
        self._region = region
        self._packed: dict[NodeId, bytes] = {}
        self._follows_plans = self._follows_lease = False
        self._held = False
        self._in_touch_ms = self._led_ms = clock.now_ms()

    @classmethod
    async def of(
        cls, registry: Registry, bus: Bus, clock: Clock, log: Log, region: RegionId
    ) -> Self:
        """Of a region, with its buckets opened."""
        plans = await registry.bucket(keys.PLAN_BUCKET)
        leases = await registry.bucket(keys.lease_bucket(region))
        return cls(plans, leases, bus, clock, log, region=region)

    def jobs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs all the time, by name."""
        return {
            "follow plans": self._follow_plans(),
            "follow the scheduler's lease": self._follow_lease(),
        }

    def plan(self, node: NodeId) -> Plan | None:
        """What is planned for a node; None: nothing. WireError when that can't be read."""
        packed = self._packed.get(node)
        if packed is None:
            return None
        try:
            return decode(packed, PlanRecord).plan
        except WireError as error:
            raise WireError(f"the plan of {node!r} does not parse: {error}") from error

    def staleness_ms(self) -> float:
        """Since when no scheduler is known to keep the plans up to date; 0: one is now."""
        return self.look() - min(self._in_touch_ms, self._led_ms)

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be, by stable names. Whether a scheduler leads is not known
        while the registry is away, which has a name of its own."""
        now_ms = self.look()
        is_away = self._in_touch_ms == now_ms and now_ms - self._led_ms >= AWAY_MS
        return (SCHEDULER_AWAY,) if is_away else ()

    def look(self) -> float:
        """To be called again and again: note whether it is in touch, and whether one leads. The
        moment of this look, in ms."""
        now_ms = self._clock.now_ms()
        if self._bus.connected and self._follows_plans and self._follows_lease:
            self._in_touch_ms = now_ms
            if self._held:
                self._led_ms = now_ms
        return now_ms

    async def _follow_plans(self) -> None:
        while True:
            self._follows_plans = False
            async for entry in self._told(self._plans.watch()):
                if entry is None:
                    self._follows_plans = True
                elif (node := keys.planned_node(self._region, entry.key)) is not None:
                    self._take_plan(node, entry)

    async def _follow_lease(self) -> None:
        while True:
            self._follows_lease = False
            async for entry in self._told(self._leases.watch(key=keys.SCHEDULER_LEASE)):
                self.look()
                if entry is None:
                    self._follows_lease = True
                else:
                    self._held = entry.value is not None

    async def _told(self, watch: AsyncIterator[Entry | None]) -> AsyncIterator[Entry | None]:
        """What a watch tells, until the registry is away; then a moment passes."""
        try:
            async for entry in watch:
                yield entry
        except UnavailableError as error:
            self._log.warning("plans out of reach", once_a_minute="plans", cause=str(error))
        await self._clock.sleep_ms(RETRY_MS)

    def _take_plan(self, node: NodeId, entry: Entry) -> None:
        if entry.lost:
            # Nobody withdrew it: agents go on with it as well.
            return
        if entry.value is None:
            self._packed.pop(node, None)
        elif node in self._packed or len(self._packed) < NODES_MAX:
            self._packed[node] = entry.value
