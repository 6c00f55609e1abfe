"""This gateway's in-flight vector: to its peers whole, to each node what is in flight there.

Changes are told within 50 ms, all that is not zero each second, so that a lost message is repaired.
A node where nothing is left in flight hears so three times, a second apart; then nothing, until a
request goes there again. All messages are numbered by one counter.

Peers also hear up to which revision this gateway has taken over the desired state, and, at its end,
that it is gone and not merely silent. Whoever is silent for too long is not waited for by those who
order anything, and says so itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId, node_of
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.ops import ORDERS_STALE
from axiom_common.state.inflight_vectors import EXPIRED_MS
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
EMPTY_TIMES = 3
NODES_A_TICK_MAX = 500
"""The rest has its turn 50 ms later, those first that were told least lately."""
INCARNATION_RETRY_MS = 500.0

Key = tuple[EngineId, EngineAdapter]
Vector = Mapping[Key, int]


@dataclass(slots=True)
class _NodeTold:
    """What a node's agent was told last, and how often that nothing is left."""

    counts: dict[Key, int] = field(default_factory=dict)
    told_ms: float = float("-inf")
    whole_due_ms: float = float("-inf")
    empty_times: int = 0


class InFlightPublisher:
    """Publishes what `read` yields, with the revision `applied`. Nothing goes out before the
    registry gave an incarnation; `begun` is set once peers were told for the first time."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        incarnations: Bucket,
        *,
        region: RegionId,
        gateway: GatewayId,
        read: Callable[[], Vector],
        applied: Callable[[], int],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._incarnations = incarnations
        self._region = region
        self._gateway = gateway
        self._read = read
        self._applied = applied
        self.begun = asyncio.Event()
        self._incarnation = 0
        self._seq = 0
        self._peers_told: Vector = {}
        self._applied_told = 0
        self._spoke_ms = float("-inf")
        self._peers_whole_due_ms = float("-inf")
        self._nodes: dict[NodeId, _NodeTold] = {}
        self._used: set[Key] = set()
        self._used_on: dict[NodeId, set[Key]] = {}

    def used(self, engine: EngineId, adapter: EngineAdapter) -> None:
        """A request was booked. It is told even if it is over by then: its adapter was used."""
        if len(self._used) < COUNTS_MAX:
            self._used.add((engine, adapter))

    async def run(self) -> None:
        """Publish until cancelled."""
        self._incarnation = await self._take_incarnation()
        while True:
            # The next whole ones tell all; if they are late, others drop this vector in 3 s.
            with contextlib.suppress(UnavailableError):
                await self._tell(self._read(), self._clock.now_ms())
            await self._clock.sleep_ms(DELTA_EVERY_MS)

    def degraded(self) -> tuple[str, ...]:
        """Whether orders of engines and keys may have changed without peers waiting for this
        gateway: it has told them nothing for so long, or never."""
        silent_ms = self._clock.now_ms() - self._spoke_ms
        return (ORDERS_STALE,) if silent_ms >= EXPIRED_MS else ()

    async def say_goodbye(self) -> None:
        """The last word, once `run` has ended; UnavailableError when the bus is away."""
        if self.begun.is_set():
            await self._publish(self._to_peers, {}, ReportKind.LEFT, applied=self._applied())

    async def _take_incarnation(self) -> int:
        while True:
            try:
                return await self._incarnations.put(keys.GATEWAY_INCARNATION, b"")
            except UnavailableError:
                await self._clock.sleep_ms(INCARNATION_RETRY_MS)

    async def _tell(self, now: Vector, now_ms: float) -> None:
        used, self._used = self._used, set()
        for key in used:
            self._used_on.setdefault(node_of(key[0]), set()).add(key)
        by_node: dict[NodeId, dict[Key, int]] = {}
        for key, count in now.items():
            by_node.setdefault(node_of(key[0]), {})[key] = count
        await self._tell_peers(now, used, now_ms)
        due = [
            node
            for node in {**self._nodes, **by_node, **self._used_on}
            if self._is_due(node, by_node.get(node, {}), now_ms)
        ]
        due.sort(key=lambda node: self._nodes[node].told_ms if node in self._nodes else 0.0)
        for node in due[:NODES_A_TICK_MAX]:
            await self._tell_node(node, by_node.get(node, {}), now_ms)

    async def _tell_peers(self, now: Vector, used: Iterable[Key], now_ms: float) -> None:
        full = now_ms >= self._peers_whole_due_ms
        told = dict(now) if full else _changes(self._peers_told, now)
        for key in used:
            told.setdefault(key, now.get(key, 0))
        applied = self._applied()
        if not told and not full and applied == self._applied_told:
            return
        if full:
            self._peers_whole_due_ms = now_ms + FULL_EVERY_MS
        await self._publish(self._to_peers, told, _kind(full=full), applied=applied)
        self._peers_told, self._applied_told = now, applied
        self._spoke_ms = now_ms
        self.begun.set()

    def _is_due(self, node: NodeId, counts: Vector, now_ms: float) -> bool:
        told = self._nodes.get(node)
        return (
            told is None
            or node in self._used_on
            or now_ms >= told.whole_due_ms
            or told.counts != counts
        )

    async def _tell_node(self, node: NodeId, counts: dict[Key, int], now_ms: float) -> None:
        told = self._nodes.setdefault(node, _NodeTold())
        full = now_ms >= told.whole_due_ms
        changes = dict(counts) if full else _changes(told.counts, counts)
        for key in self._used_on.get(node, ()):
            changes.setdefault(key, counts.get(key, 0))
        await self._publish(
            subjects.node_inflight(self._region, node, self._gateway), changes, _kind(full=full)
        )
        self._used_on.pop(node, None)
        told.counts, told.told_ms = counts, now_ms
        if full:
            told.whole_due_ms = now_ms + FULL_EVERY_MS
        if counts:
            told.empty_times = 0
        elif full:
            told.empty_times += 1
            if told.empty_times >= EMPTY_TIMES:
                del self._nodes[node]

    @property
    def _to_peers(self) -> str:
        return subjects.gateway_inflight(self._region, self._gateway)

    async def _publish(
        self, subject: str, counts: Vector, kind: ReportKind, *, applied: int | None = None
    ) -> None:
        self._seq += 1
        report = InFlightReport(
            kind=kind,
            region=self._region,
            gateway=self._gateway,
            incarnation=self._incarnation,
            seq=self._seq,
            counts=tuple(
                InFlightCount(engine=engine, adapter=adapter, count=count)
                for (engine, adapter), count in islice(counts.items(), COUNTS_MAX)
            ),
            applied=applied,
        )
        await self._bus.publish(subject, encode(report))


def _kind(*, full: bool) -> ReportKind:
    return ReportKind.FULL if full else ReportKind.DELTA


def _changes(before: Vector, now: Vector) -> dict[Key, int]:
    gone = {key: 0 for key in before if key not in now}
    return gone | {key: count for key, count in now.items() if before.get(key) != count}
