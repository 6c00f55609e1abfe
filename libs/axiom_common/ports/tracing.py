"""Spans: which part of a request took how long, and what it was about."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Protocol, Self

Value = str | int | float | bool
Attributes = Mapping[str, Value]


class SpanKind(StrEnum):
    """Which side of a call a span is, or that it is none."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class Span(Protocol):
    """One span, from its start to the end of its `with` block.

    Most requests are not sampled: their spans are one object that does nothing. So ask `recorded`
    before an attribute is worked out. No attribute holds what a client wrote in a prompt.
    """

    @property
    def recorded(self) -> bool:
        """Whether anybody will see it."""
        ...

    @property
    def trace_id(self) -> str | None:
        """32 hexadecimal digits; None where nothing is traced."""
        ...

    @property
    def traceparent(self) -> bytes | None:
        """What makes a callee's span a child of this one; None where nobody sees it."""
        ...

    @property
    def passed_on(self) -> bytes | None:
        """Whole header lines for a callee, so that its spans are children of this one.

        None where this process traces nothing: what the client sent stands."""
        ...

    def child(self, name: str, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        """A span that starts now, as a part of this one."""
        ...

    def tell(self, attributes: Attributes) -> None:
        """Add attributes."""
        ...

    def fail(self, reason: str) -> None:
        """It failed, for a reason of a closed list."""
        ...

    def __enter__(self) -> Self:
        """The span itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It ends. An `AxiomError` is an answer, whose meaning its raiser told; any other error
        makes it fail, told by its type only."""
        ...


class SpanCounts(NamedTuple):
    """Spans of sampled requests since the start: what ended, and what a collector took or did not
    take. The rest waits, or was lost to a full queue."""

    ended: int = 0
    sent: int = 0
    not_sent: int = 0


class Tracer(Protocol):
    """Where spans begin."""

    @property
    def counts(self) -> SpanCounts:
        """What became of its spans."""
        ...

    def begin(self, name: str, traceparent: bytes | None, tracestate: bytes | None) -> Span:
        """The span of a request that came with these headers. A parent decides whether it is
        sampled; without one chance does."""
        ...
