"""Logs: JSON lines with fields; a repeated line is counted, not written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from axiom_common.runtime.logging import Log, set_up_logging


class SteppedClock:
    def __init__(self) -> None:
        self.now = 0.0

    def now_ms(self) -> float:
        return self.now

    async def sleep_ms(self, duration_ms: float) -> None:
        self.now += duration_ms


Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What was logged, as JSON; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging("tester", "info")
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_its_fields(lines: Lines) -> None:
    Log("part", SteppedClock()).warning("load failed", adapter="a~1", attempts=2)
    (line,) = lines()
    assert line["event"] == "load failed"
    assert line["service"] == "tester"
    assert line["level"] == "warning"
    assert (line["adapter"], line["attempts"]) == ("a~1", 2)


def test_repeats_are_left_out_for_a_minute_and_counted(lines: Lines) -> None:
    clock = SteppedClock()
    log = Log("part", clock)
    for _ in range(5):
        log.warning("bad message", once_a_minute="bad message")
    clock.now = 60_000.0
    log.warning("bad message", once_a_minute="bad message")
    first, second = lines()
    assert "left_out" not in first
    assert second["left_out"] == 4


def test_keys_do_not_share_their_minute(lines: Lines) -> None:
    log = Log("part", SteppedClock())
    log.info("a", once_a_minute="a")
    log.info("b", once_a_minute="b")
    assert [line["event"] for line in lines()] == ["a", "b"]


def test_a_defect_is_told_by_its_type_and_way_and_not_by_its_words(lines: Lines) -> None:
    log = Log("part", SteppedClock())
    try:
        json.loads("what a client sent")
    except ValueError as error:
        log.defect("broken", error, request="r-1")
    (line,) = lines()
    assert (line["event"], line["request"], line["error"]) == ("broken", "r-1", "JSONDecodeError")
    assert line["way"][0].startswith("test_runtime_logging.py:")
    assert line["way"][-1].endswith("raw_decode")
    assert "client" not in json.dumps(line)
