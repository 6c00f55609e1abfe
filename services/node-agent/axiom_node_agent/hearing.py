"""Whether gateways can be heard: silence says something only of those that could have spoken.

Away from the bus, and in a process that was paused, the agent hears of no request; all the same
requests run. Until it has listened again for a while, it lets no vector lapse and unloads nothing.
"""

from __future__ import annotations

from collections.abc import Callable

TICK_MS = 500.0
LATE_MS = 1_500.0
"""A tick that comes so late was held up by a pause of the whole process."""


class Hearing:
    """`connected` tells whether the bus is there. Somebody calls `tick` every `TICK_MS`."""

    def __init__(self, connected: Callable[[], bool], now_ms: float) -> None:
        self._connected = connected
        self._since_ms = now_ms
        self._tick_ms = now_ms

    def tick(self, now_ms: float) -> None:
        """Time passed."""
        if self._deaf(now_ms):
            self.interrupted(now_ms)
        self._tick_ms = now_ms

    def interrupted(self, now_ms: float) -> None:
        """The bus was lost and is back."""
        self._since_ms = now_ms

    def unbroken_ms(self, now_ms: float) -> float:
        """For how long nothing was missed; 0 while the agent is deaf."""
        return 0.0 if self._deaf(now_ms) else now_ms - self._since_ms

    def _deaf(self, now_ms: float) -> bool:
        return not self._connected() or now_ms - self._tick_ms >= LATE_MS
