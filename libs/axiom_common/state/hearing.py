"""Whether others can be heard: silence says something only of those that could have spoken.

Away from the bus, and in a process that was paused, nothing is heard of anybody; the same holds
until all had time to speak again. `Hearing` is a clock that stands still meanwhile. Whoever judges
others by their silence measures it on this clock, so that time in which nobody could be heard is
nobody's silence, however often the bus comes and goes. Who must have heard all that was said, and
not only whoever still speaks, asks for how long nothing was missed.
"""

from __future__ import annotations

TICK_MS = 500.0
LATE_MS = 3 * TICK_MS
"""A tick that comes so late was held up by a pause of the whole process."""
RECOVERY_MS = 1_000.0
"""Once it can hear again: four beats for all agents to be heard."""


class Hearing:
    """The clock. Somebody calls `tick` every `TICK_MS`."""

    def __init__(self, now_ms: float) -> None:
        self._ticked_ms = now_ms
        self._missed_ms = 0.0
        self._recovered_ms = now_ms
        self._unbroken_since_ms = now_ms
        self.deaf = False

    def tick(self, now_ms: float, *, connected: bool) -> None:
        """Time passed; `connected` tells whether the bus is there."""
        passed_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        if not connected or passed_ms >= LATE_MS:
            self._recovered_ms = now_ms + RECOVERY_MS
            self._unbroken_since_ms = now_ms
        self.deaf = now_ms < self._recovered_ms
        if self.deaf:
            self._missed_ms += passed_ms

    def listened_ms(self, now_ms: float) -> float:
        """`now_ms` without all the time in which nobody could be heard.

        What comes between a pause and the tick that finds it is at most `LATE_MS` ahead.
        """
        return self._ticked_ms - self._missed_ms + min(now_ms - self._ticked_ms, LATE_MS)

    def interrupted(self, now_ms: float) -> None:
        """The bus was lost and is back, perhaps between two ticks."""
        self._unbroken_since_ms = now_ms

    def unbroken_ms(self, now_ms: float, *, connected: bool) -> float:
        """For how long nothing was missed; 0 while the bus is away, or after a pause that no tick
        has found yet."""
        if not connected or now_ms - self._ticked_ms >= LATE_MS:
            return 0.0
        return now_ms - self._unbroken_since_ms
