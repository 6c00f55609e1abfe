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


def unix_s() -> float:
    """Wall time in s since 1970, for what others stamp and show; never to measure with."""
    return time.time()
