"""Tells the node's state: whole on each beat, a change at once, whole again to who asks.

Messages are numbered from 1 in each incarnation, which begins with the whole. After a message that
the bus did not take, or after a reconnect, others may have a hole: the next one is whole again. The
state, its number and its bytes are made in one go, so that messages lie in the order of what they
tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from axiom_common.errors import UnavailableError
from axiom_common.model.engine import EngineState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.gpu import Gpus
from axiom_common.runtime.logging import Log
from axiom_common.wire import subjects
from axiom_common.wire.schemas import MESSAGE_BYTES_MAX, NodeReport, ReportKind, encode
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.plan_watch import PlanWatch
from axiom_node_agent.report import REDUCTIONS, engine_state, reduced
from axiom_node_agent.state import EngineBook

GATHER_MS = 20.0
"""Askers of the whole state within this time share one answer."""
DELTA_GAP_MS = 5.0
"""A burst of changes is told as one."""
PUBLISH_TIMEOUT_MS = 1_000.0


class Reporter:
    """`incarnation` is 0 until `begin`; nothing is told before. `tells` from the first report."""

    def __init__(
        self,
        region: RegionId,
        node: NodeId,
        books: Sequence[EngineBook],
        plans: PlanWatch,
        gpus: Gpus,
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
        self._books = books
        self._plans = plans
        self._gpus = gpus
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._beat_ms = beat_ms
        self._seq = 0
        self._told: dict[EngineId, object] = {}
        self._whole_due_ms = 0.0
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """Something that others should hear of at once may have changed."""
        self._wake.set()

    def tell_all(self, *, within_ms: float = 0.0) -> None:
        """The whole state is wanted: after a reconnect, or by an asker that can wait a little."""
        due_ms = self._clock.now_ms() + within_ms
        if due_ms < self._whole_due_ms:
            self._whole_due_ms = due_ms
            self._wake.set()

    def begin(self, incarnation: int) -> None:
        """Tell as `incarnation` from now on, the whole first."""
        self.incarnation = incarnation
        self._seq = 0
        self._told = {}
        self._whole_due_ms = self._clock.now_ms()
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
            if now_ms >= self._whole_due_ms:
                self._whole_due_ms = now_ms + self._beat_ms
                await self._tell(ReportKind.FULL, self._states(now_ms))
            elif changed := self._changes(now_ms):
                await self._tell(ReportKind.DELTA, changed)
                await self._clock.sleep_ms(DELTA_GAP_MS)
            await self._until_woken(self._whole_due_ms - self._clock.now_ms())

    def _states(self, now_ms: float) -> tuple[EngineState, ...]:
        return tuple(engine_state(book, now_ms) for book in self._books)

    def _changes(self, now_ms: float) -> tuple[EngineState, ...]:
        """The engines of which others hold something else; none while they lack the whole."""
        if not self._told:
            return ()
        told = self._told
        return tuple(s for s in self._states(now_ms) if told.get(s.engine) != essence(s))

    async def _tell(self, kind: ReportKind, engines: tuple[EngineState, ...]) -> None:
        self._seq += 1
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_MS / 1e3):
                await self._bus.publish(self._subject, self._encoded(kind, engines))
        except (UnavailableError, TimeoutError) as error:
            self._told = {}
            self._metrics.report_failures.inc()
            self._log.warning("report not sent", once_a_minute="report", cause=str(error))
        else:
            self._told |= {state.engine: essence(state) for state in engines}
            self._metrics.reports.labels(kind).inc()

    def _encoded(self, kind: ReportKind, engines: tuple[EngineState, ...]) -> bytes:
        """The report with as little left out as fits into a message."""
        gpus = self._gpus.read() if kind is ReportKind.FULL else ()
        for reduction in range(REDUCTIONS + 1):
            report = NodeReport(
                kind=kind,
                region=self._region,
                node=self._node,
                incarnation=self.incarnation,
                seq=self._seq,
                engines=tuple(reduced(state, reduction) for state in engines),
                gpus=gpus,
                plan=self._plans.book.status,
            )
            payload = encode(report)
            if len(payload) <= MESSAGE_BYTES_MAX:
                break
        if reduction > 0:
            self._metrics.reports_reduced.labels(reduction).inc()
            self._log.warning("report reduced", once_a_minute="reduced", reduction=reduction)
        return payload

    async def _until_woken(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, wait_ms) / 1e3):
                await self._wake.wait()
        except TimeoutError:
            return


def essence(state: EngineState) -> object:
    """What of an engine is told at once when it changes; all else can wait for the beat."""
    return (
        state.status,
        state.base_model,
        state.limits,
        state.registered,
        {resident.adapter: resident.state for resident in state.residents},
        {failure.adapter for failure in state.failures},
    )
