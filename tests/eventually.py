"""Waiting for a condition, with a bound: what tests do instead of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.01


async def eventually(condition: Callable[[], object], *, within_s: float = 5.0) -> None:
    """Return once `condition()` is true; fail after `within_s`."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {within_s} s"
        await asyncio.sleep(POLL_S)


async def succeeds(
    call: Callable[[], Awaitable[object]],
    *,
    despite: type[Exception],
    within_s: float = 5.0,
) -> None:
    """Repeat `call` until it raises `despite` no more; fail after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            await call()
        except despite:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(POLL_S)
        else:
            return
