"""Spans on OpenTelemetry's SDK, sent to a collector by OTLP over HTTP.

Which requests are sampled is decided here, before the SDK does anything: one that is not costs two
random numbers and a header. The SDK's worker, a thread, sends what ended every few seconds; its
queue is bounded, and when it is full the oldest spans go. So a collector that is away costs spans,
and no request any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace import SpanKind as SdkKind
from opentelemetry.trace import Tracer as SdkTracer

from axiom_common.errors import AxiomError
from axiom_common.ports.clock import Clock
from axiom_common.ports.tracing import Attributes, Span, SpanCounts, SpanKind
from axiom_common.runtime.logging import Log
from axiom_common.runtime.tracing import NoSpan
from axiom_common.wire import headers
from axiom_common.wire.trace_context import TraceParent, parsed

TRACES_PATH = "/v1/traces"
QUEUE_MAX = 2048
BATCH_MAX = 512
SEND_EVERY_MS = 2_000.0
SEND_TIMEOUT_S = 5.0
CLOSE_MS = 3_000.0
"""How long the end of a process may wait for its last spans to be sent."""
CLOSE_POLL_MS = 20.0
ATTRIBUTES_MAX = 64
ATTRIBUTE_CHARS_MAX = 256
TRACESTATE_BYTES_MAX = 512

_KINDS = {
    SpanKind.SERVER: SdkKind.SERVER,
    SpanKind.CLIENT: SdkKind.CLIENT,
    SpanKind.INTERNAL: SdkKind.INTERNAL,
}
_LINE = b"%s: %s\r\n"
_TRACEPARENT = headers.TRACEPARENT.encode()
_NOT_SAMPLED = _TRACEPARENT + b": 00-%s-%016x-00\r\n"
_TRACESTATE = headers.TRACESTATE.encode()


class OtlpTracer:
    """Begins spans. `endpoint` is a collector's URL; `ratio` of the requests without a parent are
    sampled. `random` needs to differ between processes. `close` it at the end."""

    def __init__(
        self,
        endpoint: str,
        *,
        ratio: float,
        random: Random,
        resource: dict[str, str],
        clock: Clock,
    ) -> None:
        self._ratio = ratio
        self._begun = 0
        self._unseen = b"%016x" % random.getrandbits(64)
        self._random = random
        self._clock = clock
        self._exporter = _CountedExporter(_traces_url(endpoint), Log("axiom.tracing", clock))
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(resource),
            shutdown_on_exit=False,
            span_limits=SpanLimits(
                max_span_attributes=ATTRIBUTES_MAX,
                max_span_attribute_length=ATTRIBUTE_CHARS_MAX,
            ),
        )
        self._processor = _CountingProcessor(
            self._exporter,
            max_queue_size=QUEUE_MAX,
            max_export_batch_size=BATCH_MAX,
            schedule_delay_millis=SEND_EVERY_MS,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("axiom")

    @property
    def counts(self) -> SpanCounts:
        """What became of its spans."""
        return SpanCounts(self._processor.ended, self._exporter.sent, self._exporter.not_sent)

    def begin(self, name: str, traceparent: bytes | None, tracestate: bytes | None) -> Span:
        """The span of a request that came with these headers."""
        parent = parsed(traceparent)
        if parent is None:
            if self._random.random() >= self._ratio:
                return self._not_sampled()
            span = self._tracer.start_span(name, context=Context(), kind=SdkKind.SERVER)
            return _RecordedSpan(self._tracer, span, b"")
        state = b""
        if tracestate is not None and len(tracestate) <= TRACESTATE_BYTES_MAX:
            state = _LINE % (_TRACESTATE, tracestate)
        if not parent.sampled:
            # The span of the client stays the parent of what its callees may do.
            return NoSpan(b"%032x" % parent.trace_id, _line(parent) + state)
        span = self._tracer.start_span(name, context=_under(parent), kind=SdkKind.SERVER)
        return _RecordedSpan(self._tracer, span, state)

    async def close(self) -> None:
        """Send what is left, in bounded time."""
        # A thread that nobody waits for: the SDK's own end may take half a minute.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        deadline_ms = self._clock.now_ms() + CLOSE_MS
        while closing.is_alive() and self._clock.now_ms() < deadline_ms:
            await self._clock.sleep_ms(CLOSE_POLL_MS)

    def _not_sampled(self) -> NoSpan:
        """Callees hear that it is not sampled, so that they don't begin traces of their own.

        Such ids meet nothing but logs: to be no other's they need no more chance than a start.
        """
        self._begun += 1
        trace = b"%s%016x" % (self._unseen, self._begun)
        return NoSpan(trace, _NOT_SAMPLED % (trace, self._begun))


class _RecordedSpan:
    """A `Span` on the SDK's. `state` is the line of the client's trace state, or empty."""

    __slots__ = ("_span", "_state", "_tracer")

    recorded = True

    def __init__(self, tracer: SdkTracer, span: SdkSpan, state: bytes) -> None:
        self._tracer = tracer
        self._span = span
        self._state = state

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    @property
    def traceparent(self) -> bytes:
        own = self._span.get_span_context()
        return TraceParent(own.trace_id, own.span_id, True).encoded()

    @property
    def passed_on(self) -> bytes:
        return _LINE % (_TRACEPARENT, self.traceparent) + self._state

    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> _RecordedSpan:
        context = set_span_in_context(self._span, Context())
        span = self._tracer.start_span(name, context=context, kind=_KINDS[kind])
        return _RecordedSpan(self._tracer, span, self._state)

    def tell(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, reason: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, AxiomError):
            # Not its message, which may quote what a client sent.
            self.fail(kind.__name__)
        self._span.end()


class _CountingProcessor(BatchSpanProcessor):
    ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.ended += 1
        super().on_end(span)


class _CountedExporter(SpanExporter):
    """Counts, and says once a minute that nothing arrives. Called by the SDK's thread only."""

    def __init__(self, url: str, log: Log) -> None:
        # It would tell of each try; `log` tells of what became of them.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._inner = OTLPSpanExporter(endpoint=url, timeout=SEND_TIMEOUT_S)
        self._log = log
        self._url = url
        self.sent = 0
        self.not_sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.not_sent += len(spans)
            self._log.warning("spans not sent", once_a_minute="spans", collector=self._url)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _traces_url(endpoint: str) -> str:
    """A collector's URL may leave out the path of its traces."""
    return endpoint.rstrip("/") + ("" if urlsplit(endpoint).path.strip("/") else TRACES_PATH)


def _line(parent: TraceParent) -> bytes:
    return _LINE % (_TRACEPARENT, parent.encoded())


def _under(parent: TraceParent) -> Context:
    remote = SpanContext(
        parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
    return set_span_in_context(NonRecordingSpan(remote), Context())
