"""What the demo's client makes of a stream's bytes."""

from __future__ import annotations

import json

import pytest

from axiom_cli.demo.client import StreamReader


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str | None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"role": "assistant", "content": content}}])


DONE = b"data: [DONE]\n\n"
USAGE = event(choices=[], usage={"completion_tokens": 2})
ERROR = event(error={"message": "engine lost", "code": 502})


@pytest.mark.parametrize(
    ("stream", "tokens", "error"),
    [
        (text("") + text("a") + text("b") + USAGE + DONE, 2, ""),
        (text("") + text(None) + DONE, 0, "the stream held no token"),
        (text("a"), 1, "the stream ended without [DONE]"),
        (b"", 0, "the stream ended without [DONE]"),
        (text("a") + ERROR, 1, "engine lost"),
        (text("a") + b"\n" + ERROR, 1, "engine lost"),
        (text("a") + ERROR + DONE, 1, "engine lost"),
        (b": comment\n\n" + text("a") + DONE, 1, ""),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_a_stream_is_read_alike_however_it_is_cut(
    stream: bytes, tokens: int, error: str, piece: int
) -> None:
    reader = StreamReader()
    for start in range(0, len(stream), piece):
        reader.take(stream[start : start + piece], now_ms=float(start))
    assert (reader.tokens, reader.error) == (tokens, error)


def test_the_first_token_is_the_first_chunk_with_text() -> None:
    reader = StreamReader()
    for now_ms, chunk in enumerate([text(""), text("a"), text("b"), DONE]):
        reader.take(chunk, now_ms=float(now_ms))
    assert reader.first_ms == 1.0
