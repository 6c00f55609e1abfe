"""Tells the node's state: figures on each beat, a change at once, the whole from time to time.

| what | when |
| --- | --- |
| full | when an incarnation begins; each `FULL_EVERY_MS`; to who asks; after a reconnect, or a |
| | message that the bus did not take; when engines came or went, or the plan went |
| delta | at once: slow facts changed (`told.essence`), the plan, or what is urgent of a GPU |
| beat | each `beat_ms`; at once when an engine that tells its LRU order has another one |

Messages are numbered from 1 in each incarnation. The state, its number and its bytes are made in
one go, so that messages lie in the order of what they tell. What comes for all nodes at the same
time (a period, a reconnect) is spread over them by their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from axiom_common.errors import UnavailableError
from axiom_common.model.engine import EngineState, GpuState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.gpu import Gpus
from axiom_common.ports.host import Host
from axiom_common.runtime.logging import Log
from axiom_common.state.region_view import NodeBeat
from axiom_common.wire import subjects
from axiom_common.wire.reports import FULL_EVERY_MS
from axiom_common.wire.schemas import MESSAGE_BYTES_MAX, NodeReport, ReportKind, encode
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.plan_watch import PlanWatch
from axiom_node_agent.report import REDUCTIONS, engine_state, reduced
from axiom_node_agent.state import EngineBook
from axiom_node_agent.told import Told

WHOLE_GAP_MS = 500.0
"""The least time between two whole states of a life, whoever asks."""
SPREAD_MS = 1_000.0
"""All nodes of a region tell the whole within this time when all have reason to."""
GATHER_MS = 20.0
"""Askers of the whole state within this time share one answer."""
DELTA_GAP_MS = 5.0
"""A burst of changes is told as one."""
ORDER_GAP_MS = 20.0
"""The least time between two beats that tell a change of an LRU order at once."""
PUBLISH_TIMEOUT_MS = 1_000.0
BEAT = "beat"


class Reporter:
    """`incarnation` is 0 until `begin`; nothing is told before. `tells` from the first report."""

    def __init__(
        self,
        region: RegionId,
        node: NodeId,
        books: Collection[EngineBook],
        plans: PlanWatch,
        gpus: Gpus,
        host: Host,
        bus: Bus,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
        *,
        beat_ms: float,
    ) -> None:
        self.incarnation = 0
        self.tells = False
        self._region = region
        self._node = node
        self._subject = subjects.node_report(region, node)
        self._share = stable_hash(node) / 2**64
        self._books = books
        self._plans = plans
        self._gpus = gpus
        self._host = host
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._beat_ms = beat_ms
        self._seq = 0
        self._told = Told()
        self._began_ms = 0.0
        self._whole_ms = float("-inf")
        self._whole_due_ms = 0.0
        self._beat_due_ms = 0.0
        self._beat_sent_ms = float("-inf")
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """Something that others should hear of at once may have changed."""
        self._wake.set()

    def tell_all(self, *, within_ms: float) -> None:
        """The whole state is wanted, by an asker that can wait a little."""
        due_ms = max(self._clock.now_ms() + within_ms, self._whole_ms + WHOLE_GAP_MS)
        if due_ms < self._whole_due_ms:
            self._whole_due_ms = due_ms
            self._wake.set()

    def missed(self) -> None:
        """Others may have missed something, perhaps of all nodes at the same time."""
        self.tell_all(within_ms=self._share * SPREAD_MS)

    def begin(self, incarnation: int) -> None:
        """Tell as `incarnation` from now on, the whole first."""
        self.incarnation = incarnation
        self._seq = 0
        self._told = Told()
        self._began_ms = self._clock.now_ms()
        self._whole_ms = float("-inf")
        self._whole_due_ms = self._began_ms
        self._wake.set()

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            self._wake.clear()
            if not self.incarnation:
                await self._wake.wait()
                continue
            self.tells = True
            now_ms = self._clock.now_ms()
            due_ms = await self._tell_due(now_ms)
            await self._until_woken(due_ms - self._clock.now_ms())

    async def leave(self) -> None:
        """Last words, after `run` has ended: nobody has to wait for what comes no more."""
        if self.tells:
            self._seq += 1
            await self._publish(ReportKind.LEFT, encode(self._report(ReportKind.LEFT, ())))

    async def _tell_due(self, now_ms: float) -> float:
        """Tell what is due; when to look again."""
        states = tuple(engine_state(book, now_ms) for book in self._books)
        gpus, told = self._gpus.read(), self._told
        plan = self._plans.book.status
        lacking = told.lacks_the_whole(states, plan)
        if lacking:
            self._whole_due_ms = min(self._whole_due_ms, self._whole_ms + WHOLE_GAP_MS)
        if now_ms >= self._whole_due_ms:
            self._whole_ms = now_ms
            self._whole_due_ms = self._next_whole_ms(now_ms)
            self._beat_due_ms = now_ms + self._beat_ms
            await self._tell_whole(ReportKind.FULL, states, gpus)
        elif lacking:
            return self._whole_due_ms
        elif (
            (changed := told.changes(states)) or told.plan_changed(plan) or told.gpus_changed(gpus)
        ):
            await self._tell_whole(
                ReportKind.DELTA, changed, gpus if told.gpus_changed(gpus) else None
            )
            await self._clock.sleep_ms(DELTA_GAP_MS)
        elif now_ms >= self._beat_due_ms:
            self._beat_due_ms = now_ms + self._beat_ms
            await self._tell_beat(states, gpus, now_ms)
        elif told.exact_order_moved(states):
            if now_ms < self._beat_sent_ms + ORDER_GAP_MS:
                return min(self._beat_sent_ms + ORDER_GAP_MS, self._beat_due_ms)
            await self._tell_beat(states, gpus, now_ms)
        return min(self._whole_due_ms, self._beat_due_ms)

    def _next_whole_ms(self, now_ms: float) -> float:
        """When the next whole is due if nobody asks: in this node's own turn, whenever the last one
        was, so that nodes that all told it at once do not stay together."""
        turn_ms = self._began_ms + self._share * FULL_EVERY_MS
        turns = (now_ms + FULL_EVERY_MS / 2 - turn_ms) // FULL_EVERY_MS + 1
        return turn_ms + turns * FULL_EVERY_MS

    async def _tell_whole(
        self,
        kind: ReportKind,
        engines: tuple[EngineState, ...],
        gpus: tuple[GpuState, ...] | None,
    ) -> None:
        """Tell engines whole. Others hold it once the bus took it; if it did not, the next delta
        has the same base and tells it again."""
        self._seq += 1
        told, seq, plan = self._told, self._seq, self._plans.book.status
        payload, sent = self._encoded(kind, engines, gpus)
        if await self._publish(kind, payload):
            told.told_whole(
                seq,
                zip(engines, sent, strict=True),
                gpus=gpus,
                plan=plan,
                full=kind is ReportKind.FULL,
            )

    async def _tell_beat(
        self, engines: tuple[EngineState, ...], gpus: tuple[GpuState, ...], now_ms: float
    ) -> None:
        self._seq += 1
        self._beat_sent_ms = now_ms
        beat = NodeBeat(
            region=self._region,
            node=self._node,
            incarnation=self.incarnation,
            seq=self._seq,
            base=self._told.base,
            engines=self._told.beat_of(engines),
            gpus=self._told.beat_gpus(gpus, now_ms),
        )
        await self._publish(BEAT, encode(beat))

    async def _publish(self, kind: str, payload: bytes) -> bool:
        """Whether the bus took the message."""
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_MS / 1e3):
                await self._bus.publish(self._subject, payload)
        except (UnavailableError, TimeoutError) as error:
            self.missed()
            self._metrics.report_failures.inc()
            self._log.warning("report not sent", once_a_minute="report", cause=str(error))
            return False
        self._metrics.reports.labels(kind).inc()
        return True

    def _encoded(
        self,
        kind: ReportKind,
        engines: tuple[EngineState, ...],
        gpus: tuple[GpuState, ...] | None,
    ) -> tuple[bytes, tuple[EngineState, ...]]:
        """The report with as little left out as fits into a message, and its engines."""
        for reduction in range(REDUCTIONS + 1):
            sent = tuple(reduced(state, reduction) for state in engines)
            payload = encode(self._report(kind, sent, gpus))
            if len(payload) <= MESSAGE_BYTES_MAX:
                break
        if reduction > 0:
            self._metrics.reports_reduced.labels(reduction).inc()
            self._log.warning("report reduced", once_a_minute="reduced", reduction=reduction)
        return payload, sent

    def _report(
        self,
        kind: ReportKind,
        engines: tuple[EngineState, ...],
        gpus: tuple[GpuState, ...] | None = None,
    ) -> NodeReport:
        return NodeReport(
            kind=kind,
            region=self._region,
            node=self._node,
            incarnation=self.incarnation,
            seq=self._seq,
            base=self._told.base if kind is ReportKind.DELTA else None,
            engines=engines,
            gpus=gpus,
            host=self._host.read() if kind is ReportKind.FULL else None,
            plan=self._plans.book.status,
        )

    async def _until_woken(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, wait_ms) / 1e3):
                await self._wake.wait()
        except TimeoutError:
            return
