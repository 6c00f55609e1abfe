"""The journal: messages that are kept for a while, for whoever reads them later."""

from __future__ import annotations

from typing import Protocol


class Journal(Protocol):
    """An append-only log, bounded in bytes and age: the oldest goes first."""

    async def append(self, subject: str, payload: bytes) -> None:
        """Hand over, at most once: it returns when sent, not when kept. UnavailableError when the
        journal can't be reached, or not be made where it is missing."""
        ...
