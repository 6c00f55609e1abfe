"""W3C trace context, level 1 (https://www.w3.org/TR/trace-context/): the header `traceparent`."""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLED = 1
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LATER = b"ff"


class TraceParent(NamedTuple):
    """The span that a call belongs to. Neither id is 0."""

    trace_id: int
    span_id: int
    sampled: bool

    def encoded(self) -> bytes:
        """The header's value."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.sampled)


def parsed(value: bytes | None) -> TraceParent | None:
    """What a header says; None where there is none, or none that may be used."""
    match = _FORM.fullmatch(value) if value is not None else None
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == _LATER or (version == b"00" and more):
        return None
    parent = TraceParent(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None
