"""The header `traceparent`, by the examples and rules of W3C trace context."""

from __future__ import annotations

import pytest

from axiom_common.wire.trace_context import TraceParent, parsed

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_a_parent_is_read(header: str, *, sampled: bool) -> None:
    assert parsed(header.encode()) == TraceParent(int(TRACE, 16), int(SPAN, 16), sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-1",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"cc-{TRACE}-{SPAN}-01.more",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        "x" * 100_000,
    ],
)
def test_what_is_no_parent_is_left_out(header: str) -> None:
    assert parsed(header.encode()) is None


def test_none_is_none() -> None:
    assert parsed(None) is None


def test_it_is_written_as_it_was_read() -> None:
    header = f"00-{TRACE}-{SPAN}-01".encode()
    parent = parsed(header)
    assert parent is not None
    assert parent.encoded() == header
