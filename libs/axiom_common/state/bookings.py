"""Bookings: the load that decisions put on engines before telemetry can show it.

    book --first_token--> running --release--> gone
      \\-------------------release------------/

Until its first token a booking holds its uncached tokens and the load that it waits for; until its
release it holds one request in flight for (engine, adapter), and with it the adapter's slot. All
sums are integers and end at exactly zero. Telemetry carries no request ids and never confirms a
booking, and an engine that is lost from sight may still stream: only the requests release it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from axiom_common.model.ids import EngineAdapter, EngineId

NO_LOAD_MS = float("-inf")
"""The end of a load when none is booked: before any time."""


@dataclass(slots=True)
class AdapterBooks:
    """What is booked for one adapter on one engine. `ready_at_ms`: when its booked load ends."""

    requests: int = 0
    ready_at_ms: float = NO_LOAD_MS


@dataclass(slots=True)
class EngineBooks:
    """What is booked on one engine."""

    requests: int = 0
    tokens: int = 0
    adapters: dict[EngineAdapter, AdapterBooks] = field(default_factory=dict)


@dataclass(slots=True)
class _Booking:
    engine: EngineId
    adapter: EngineAdapter
    tokens: int


class Bookings:
    """All bookings of one gateway. The single writer is the fleet that decides."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, _Booking] = {}
        self._books: dict[EngineId, EngineBooks] = {}

    def book(
        self, engine: EngineId, adapter: EngineAdapter, *, tokens: int, ready_at_ms: float | None
    ) -> int:
        """Book one request. `ready_at_ms` is set when it starts a load. Returns the booking's id,
        which is never 0 and never used again."""
        self._last += 1
        self._open[self._last] = _Booking(engine, adapter, tokens)
        books = self._books.setdefault(engine, EngineBooks())
        books.requests += 1
        books.tokens += tokens
        entry = books.adapters.setdefault(adapter, AdapterBooks())
        entry.requests += 1
        if ready_at_ms is not None:
            entry.ready_at_ms = ready_at_ms
        return self._last

    def first_token(self, booking: int) -> tuple[EngineId, EngineAdapter] | None:
        """The prompt is computed and the adapter loaded. Returns whose books changed."""
        held = self._open.get(booking)
        if held is None:
            return None
        books = self._books[held.engine]
        books.tokens -= held.tokens
        held.tokens = 0
        books.adapters[held.adapter].ready_at_ms = NO_LOAD_MS
        return held.engine, held.adapter

    def release(self, booking: int) -> tuple[EngineId, EngineAdapter] | None:
        """The request ended, however. Returns whose books changed; None when it was gone."""
        held = self._open.pop(booking, None)
        if held is None:
            return None
        books = self._books[held.engine]
        books.requests -= 1
        books.tokens -= held.tokens
        entry = books.adapters[held.adapter]
        entry.requests -= 1
        if not entry.requests:
            del books.adapters[held.adapter]
        if not books.requests:
            del self._books[held.engine]
        return held.engine, held.adapter

    def on(self, engine: EngineId) -> EngineBooks:
        """What is booked on one engine, to read only."""
        return self._books.get(engine) or EngineBooks()

    def in_flight(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        """Requests in flight by engine and adapter; no entry is 0."""
        return {
            (engine, adapter): entry.requests
            for engine, books in self._books.items()
            for adapter, entry in books.adapters.items()
        }
