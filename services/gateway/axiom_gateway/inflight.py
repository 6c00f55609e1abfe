"""This gateway's in-flight vector, told to the region: changes within 50 ms, all each second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import (
    COUNTS_MAX,
    InFlightCount,
    InFlightReport,
    ReportKind,
    encode,
)

DELTA_EVERY_MS = 50.0
FULL_EVERY_MS = 1000.0
INCARNATION_RETRY_MS = 500.0

Vector = Mapping[tuple[EngineId, EngineAdapter], int]


class InFlightPublisher:
    """Publishes what `read` yields. Nothing goes out before the registry gave an incarnation."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        incarnations: Bucket,
        *,
        region: RegionId,
        gateway: GatewayId,
        read: Callable[[], Vector],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._incarnations = incarnations
        self._region = region
        self._gateway = gateway
        self._read = read
        self._told: Vector = {}
        self._used: set[tuple[EngineId, EngineAdapter]] = set()
        self._seq = 0

    def used(self, engine: EngineId, adapter: EngineAdapter) -> None:
        """A request was booked. It is told even if it is over by then: its adapter was used."""
        self._used.add((engine, adapter))

    async def run(self) -> None:
        """Publish until cancelled."""
        incarnation = await self._incarnation()
        next_full_ms = self._clock.now_ms()
        while True:
            now_ms = self._clock.now_ms()
            full = now_ms >= next_full_ms
            if full:
                next_full_ms = now_ms + FULL_EVERY_MS
            await self._publish(incarnation, full=full)
            await self._clock.sleep_ms(DELTA_EVERY_MS)

    async def _incarnation(self) -> int:
        while True:
            try:
                return await self._incarnations.put(keys.GATEWAY_INCARNATION, b"")
            except UnavailableError:
                await self._clock.sleep_ms(INCARNATION_RETRY_MS)

    async def _publish(self, incarnation: int, *, full: bool) -> None:
        now = self._read()
        told = dict(now) if full else _changes(self._told, now)
        for key in self._used:
            told.setdefault(key, now.get(key, 0))
        self._used.clear()
        if not told and not full:
            return
        self._seq += 1
        report = InFlightReport(
            kind=ReportKind.FULL if full else ReportKind.DELTA,
            region=self._region,
            gateway=self._gateway,
            incarnation=incarnation,
            seq=self._seq,
            counts=tuple(
                InFlightCount(engine=engine, adapter=adapter, count=count)
                for (engine, adapter), count in islice(told.items(), COUNTS_MAX)
            ),
        )
        try:
            await self._bus.publish(
                subjects.gateway_inflight(self._region, self._gateway), encode(report)
            )
        except UnavailableError:
            # Peers drop this vector in 3 s; the next full one tells them all.
            return
        self._told = now


def _changes(before: Vector, now: Vector) -> dict[tuple[EngineId, EngineAdapter], int]:
    gone = {key: 0 for key in before if key not in now}
    return gone | {key: count for key, count in now.items() if before.get(key) != count}
