"""Breaker of one (gateway, engine): stop sending where requests fail, and find out when it is over.

    closed --FAILURES_MAX failures in WINDOW_MS--> open
    open --its time is over--> half open --probe succeeds--> closed
                                         --probe fails--> open, for twice as long

Failures are refused connections, 5xx answers and broken streams; what a client did wrong never
counts. Half open lets one request through; while it runs, the breaker looks open to all others. A
probe that never ends is given up after PROBE_MS. While open, only the probe's failure is news: an
engine that dies breaks all its streams at once, and one death must not count as many.
"""

from __future__ import annotations

from collections import deque

FAILURES_MAX = 5
WINDOW_MS = 10_000.0
OPEN_MS = 2_000.0
OPEN_MS_MAX = 30_000.0
PROBE_MS = 30_000.0


class Breaker:
    """One breaker. Times are the caller's monotonic clock, in ms."""

    def __init__(self) -> None:
        self._failed_at_ms: deque[float] = deque(maxlen=FAILURES_MAX)
        self._open_ms = 0.0
        self._shut_until_ms = 0.0
        self._probing = False

    def is_open(self, now_ms: float) -> bool:
        """True while no request may go to the engine."""
        return self._open_ms > 0.0 and now_ms < self._shut_until_ms

    def sent(self, now_ms: float) -> None:
        """A request goes to the engine. Half open, it is the probe: others stay away."""
        if self._open_ms > 0.0 and not self.is_open(now_ms):
            self._probing = True
            self._shut_until_ms = now_ms + PROBE_MS

    def succeeded(self) -> None:
        """The engine answered: close. A stream that yields a token is an answer."""
        self._open_ms = 0.0
        self._probing = False
        self._failed_at_ms.clear()

    def failed(self, now_ms: float) -> None:
        """A request failed by the engine's fault."""
        if self._open_ms > 0.0:
            if self._probing:
                self._open(min(2.0 * self._open_ms, OPEN_MS_MAX), now_ms)
            return
        self._failed_at_ms.append(now_ms)
        full = len(self._failed_at_ms) == FAILURES_MAX
        if full and now_ms - self._failed_at_ms[0] <= WINDOW_MS:
            self._open(OPEN_MS, now_ms)

    def _open(self, duration_ms: float, now_ms: float) -> None:
        self._probing = False
        self._open_ms = duration_ms
        self._shut_until_ms = now_ms + duration_ms
