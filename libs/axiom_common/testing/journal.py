"""The journal in memory."""

from __future__ import annotations

import asyncio

from axiom_common.errors import UnavailableError


class FakeJournal:
    """A `Journal`. `disconnect` and `reconnect` are the faults; `messages` is what is kept."""

    def __init__(self, *, bytes_max: int = 1 << 20) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._bytes_max = bytes_max
        self._connected = True

    async def append(self, subject: str, payload: bytes) -> None:
        """Keep it, and drop the oldest beyond the bound."""
        if not self._connected:
            raise UnavailableError("the journal is away")
        self.messages.append((subject, payload))
        while sum(len(kept) for _, kept in self.messages) > self._bytes_max:
            self.messages.pop(0)
        await asyncio.sleep(0)

    def disconnect(self) -> None:
        """Lose the server."""
        self._connected = False

    def reconnect(self) -> None:
        """Come back, with what was kept."""
        self._connected = True
