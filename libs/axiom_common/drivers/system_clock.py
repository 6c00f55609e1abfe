"""The real clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Monotonic time of this machine."""

    def now_ms(self) -> float:
        """Now, in ms."""
        return time.monotonic() * 1e3

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(max(0.0, duration_ms) / 1e3)
