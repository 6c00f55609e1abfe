"""Spans that nobody sees: what a process has that traces nothing, and most requests of one that
does."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from axiom_common.ports.tracing import Attributes, Span, SpanCounts, SpanKind


class NoSpan:
    """A span that nobody sees."""

    __slots__ = ("_trace", "passed_on")

    recorded = False
    traceparent = None

    def __init__(self, trace: bytes | None = None, passed_on: bytes | None = None) -> None:
        self._trace = trace
        self.passed_on = passed_on

    @property
    def trace_id(self) -> str | None:
        """32 hexadecimal digits; None where nothing is traced."""
        return None if self._trace is None else self._trace.decode()

    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> NoSpan:
        """This one."""
        del name, kind
        return self

    def tell(self, attributes: Attributes) -> None:
        """Nothing."""

    def fail(self, reason: str) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


NO_SPAN = NoSpan()


class NoTracer:
    """Traces nothing, and leaves to callees what clients sent."""

    counts = SpanCounts()

    def begin(self, name: str, traceparent: bytes | None, tracestate: bytes | None) -> Span:
        """A span that nobody sees."""
        del name, traceparent, tracestate
        return NO_SPAN


NO_TRACER = NoTracer()
