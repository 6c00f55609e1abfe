"""What arrives on the bus: one function a subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from axiom_common.errors import WireError
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, node_of
from axiom_common.model.reason import Reason
from axiom_common.ports.clock import Clock
from axiom_common.ports.tracing import Span, Tracer
from axiom_common.state.hearing import Hearing
from axiom_common.state.inflight_vectors import SILENT_MS, InFlightVectors
from axiom_common.wire import subjects
from axiom_common.wire.schemas import (
    EnsureReply,
    EnsureRequest,
    InFlightReport,
    Message,
    ReportKind,
    ResyncRequest,
    decode,
    encode,
)
from axiom_node_agent.loader import Loader
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.reporter import GATHER_MS, Reporter
from axiom_node_agent.state import EngineBook

DEADLINE_MAX_MS = 120_000.0
ENSURE = "ensure adapter"
"""The span of a load that a gateway asked for, with the wait for its turn."""

_M = TypeVar("_M", bound=Message)


class Handlers:
    """A message that does not parse is counted here; the bus logs and drops it."""

    def __init__(
        self,
        node: NodeId,
        books: Mapping[EngineId, EngineBook],
        loaders: Mapping[EngineId, Loader],
        reporter: Reporter,
        hearing: Hearing,
        clock: Clock,
        metrics: AgentMetrics,
        tracer: Tracer,
    ) -> None:
        self._node = node
        self._books = books
        self._loaders = loaders
        self._reporter = reporter
        self._hearing = hearing
        self._vectors = InFlightVectors()
        self._clock = clock
        self._metrics = metrics
        self._tracer = tracer

    async def ensure(self, subject: str, payload: bytes) -> bytes:
        """A gateway wants an adapter on an engine of this node."""
        del subject
        request = self._decode(payload, EnsureRequest)
        traceparent = request.traceparent.encode() if request.traceparent else None
        with self._tracer.begin(ENSURE, traceparent, None) as span:
            result = await self._ensure(request)
            if span.recorded:
                _tell(span, request, result)
        self._metrics.ensures.labels(result.outcome, result.reason or "").inc()
        return encode(EnsureReply(result=result))

    async def resync(self, subject: str, payload: bytes) -> None:
        """Somebody has a hole in what it heard of this node."""
        del subject
        self._decode(payload, ResyncRequest)
        self._reporter.tell_all(within_ms=GATHER_MS)

    async def in_flight(self, subject: str, payload: bytes) -> None:
        """A gateway tells its requests in flight on this node, on its own subject."""
        report = self._decode(payload, InFlightReport)
        if subject != subjects.node_inflight(report.region, self._node, report.gateway):
            self._metrics.invalid_messages.labels(InFlightReport.__name__).inc()
            raise WireError(f"a vector of {report.region}/{report.gateway} on {subject[:200]}")
        now_ms = self._clock.now_ms()
        changed = self._vectors.apply(
            report.gateway,
            incarnation=report.incarnation,
            seq=report.seq,
            full=report.kind is ReportKind.FULL,
            counts=[
                (count.engine, count.adapter, count.count)
                for count in report.counts
                if node_of(count.engine) == self._node
            ],
            now_ms=now_ms,
        )
        told: defaultdict[EngineId, set[EngineAdapter]] = defaultdict(set)
        for count in report.counts:
            told[count.engine].add(count.adapter)
        self._tell_books({*changed, *told}, now_ms, told)

    def engines_changed(self) -> None:
        """Engines came or went: what vectors said of those that are there counts for them too."""
        self._tell_books(self._books.keys(), self._clock.now_ms(), {})

    def expire_vectors(self, *, connected: bool) -> None:
        """Forget gateways that fell silent, if they could be heard all the time; `connected` tells
        whether the bus is there."""
        now_ms = self._clock.now_ms()
        self._hearing.tick(now_ms, connected=connected)
        if self._hearing.unbroken_ms(now_ms, connected=connected) >= SILENT_MS:
            self._tell_books(self._vectors.expire(now_ms), now_ms, {})

    async def _ensure(self, request: EnsureRequest) -> EnsureResult:
        loader = self._loaders.get(request.engine)
        if loader is None:
            return EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.UNKNOWN_ENGINE)
        self._hear_asker(request)
        deadline_ms = min(request.deadline_ms, DEADLINE_MAX_MS)
        return await loader.ensure(request.adapter, deadline_ms=deadline_ms)

    def _hear_asker(self, request: EnsureRequest) -> None:
        """The asker's own counts are newer than its last vector."""
        counts = {c.adapter: c.count for c in request.in_flight if c.engine == request.engine}
        now_ms = self._clock.now_ms()
        changed = self._vectors.tell_engine(request.gateway, request.engine, counts, now_ms)
        self._tell_books(changed, now_ms, {})

    def _tell_books(
        self,
        engines: Iterable[EngineId],
        now_ms: float,
        told: Mapping[EngineId, AbstractSet[EngineAdapter]],
    ) -> None:
        for engine in engines:
            if engine in self._books:
                self._books[engine].in_flight(
                    self._vectors.of(engine), now_ms, told=told.get(engine, frozenset())
                )

    def _decode(self, payload: bytes, kind: type[_M]) -> _M:
        try:
            return decode(payload, kind)
        except WireError:
            self._metrics.invalid_messages.labels(kind.__name__).inc()
            raise


def _tell(span: Span, request: EnsureRequest, result: EnsureResult) -> None:
    span.tell(
        {
            "axiom.engine": request.engine,
            "axiom.adapter": request.adapter.engine_name,
            "axiom.outcome": result.outcome.value,
        }
    )
    if result.reason is not None:
        span.tell({"axiom.reason": result.reason.value})
