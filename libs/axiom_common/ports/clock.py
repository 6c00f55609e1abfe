"""Time, as something that can be given."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Monotonic time in ms from an arbitrary start, and waiting in it."""

    def now_ms(self) -> float:
        """Now, in ms; never goes back."""
        ...

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait; 0 or less yields once."""
        ...
