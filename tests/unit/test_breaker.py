"""The breaker opens on failures in a window, probes once, and doubles."""

from __future__ import annotations

from axiom_common.state.breaker import (
    FAILURES_MAX,
    OPEN_MS,
    OPEN_MS_MAX,
    PROBE_MS,
    WINDOW_MS,
    Breaker,
)


def opened(now_ms: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_MAX):
        breaker.failed(now_ms)
    return breaker


def test_opens_with_the_fifth_failure_in_the_window() -> None:
    breaker = Breaker()
    for i in range(FAILURES_MAX - 1):
        breaker.failed(i * 100.0)
    assert not breaker.is_open(400.0)
    breaker.failed(400.0)
    assert breaker.is_open(400.0)


def test_failures_spread_over_more_than_the_window_do_not_open() -> None:
    breaker = Breaker()
    for i in range(20):
        breaker.failed(i * WINDOW_MS / (FAILURES_MAX - 2))
        assert not breaker.is_open(i * WINDOW_MS / (FAILURES_MAX - 2))


def test_an_answer_wipes_the_slate() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(1.0)
    assert not breaker.is_open(1.0)


def test_half_open_lets_one_probe_through() -> None:
    breaker = opened()
    assert breaker.is_open(OPEN_MS - 1.0)
    assert not breaker.is_open(OPEN_MS)
    breaker.sent(OPEN_MS)
    assert breaker.is_open(OPEN_MS + 1.0)
    breaker.succeeded()
    assert not breaker.is_open(OPEN_MS + 1.0)
    breaker.failed(OPEN_MS + 2.0)
    assert not breaker.is_open(OPEN_MS + 2.0)


def test_each_failed_probe_doubles_the_wait_up_to_the_bound() -> None:
    breaker = opened()
    now_ms, waits = 0.0, []
    for _ in range(6):
        end_ms = now_ms
        while breaker.is_open(end_ms):
            end_ms += 500.0
        waits.append(end_ms - now_ms)
        now_ms = end_ms
        breaker.sent(now_ms)
        breaker.failed(now_ms)
    assert waits == [OPEN_MS, 4000.0, 8000.0, 16_000.0, OPEN_MS_MAX, OPEN_MS_MAX]


def test_streams_that_break_together_open_it_once() -> None:
    """Those that were on their way when it opened tell nothing new, whether they fail or go on."""
    breaker = opened()
    for _ in range(3 * FAILURES_MAX):
        breaker.sent(1.0)
        breaker.failed(1.0)
    assert breaker.is_open(OPEN_MS - 1.0)
    assert not breaker.is_open(OPEN_MS)
    breaker.sent(OPEN_MS)
    breaker.failed(OPEN_MS + 1.0)
    breaker.failed(OPEN_MS + 1.0)
    assert not breaker.is_open(OPEN_MS + 1.0 + 2 * OPEN_MS)


def test_a_probe_that_never_ends_is_given_up() -> None:
    breaker = opened()
    breaker.sent(OPEN_MS)
    assert breaker.is_open(OPEN_MS + PROBE_MS - 1.0)
    assert not breaker.is_open(OPEN_MS + PROBE_MS)


def test_requests_through_a_closed_breaker_change_nothing() -> None:
    breaker = Breaker()
    breaker.sent(0.0)
    assert not breaker.is_open(0.0)
