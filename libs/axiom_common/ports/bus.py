"""The bus: fire-and-forget messages and request-reply, at most once, bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[str, bytes], Awaitable[None]]
"""Gets (subject, payload)."""
Responder = Callable[[str, bytes], Awaitable[bytes]]
"""Gets (subject, payload), returns the reply, which is never empty."""


class Bus(Protocol):
    """Core NATS semantics. A subject filter may use `*` for one token and `>` for the rest.

    Handlers of one subscription run one after another, in order of arrival. What a subscriber can't
    keep up with is dropped beyond its bound and counted in `dropped`.
    """

    @property
    def connected(self) -> bool:
        """Whether the bus is reachable now."""
        ...

    @property
    def dropped(self) -> int:
        """Messages lost to full subscriptions since the start."""
        ...

    @property
    def refused(self) -> int:
        """What the server's permissions refused to this process since the start."""
        ...

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send; returns when handed over, not when received. Raises UnavailableError when down."""
        ...

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Call `handler` for each message until the bus closes. Survives reconnects."""
        ...

    async def respond(self, subject: str, responder: Responder, *, concurrency: int = 64) -> None:
        """Answer requests on `subject`, at most `concurrency` at a time, until the bus closes.

        An `AxiomError` of the responder is logged here, and who asked is told at once.
        """
        ...

    async def request(self, subject: str, payload: bytes, *, timeout_ms: float) -> bytes:
        """Ask and wait. UnavailableError when nobody answers in time, the responder fails, or the
        bus is down or lost on the way."""
        ...

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back after each reconnect: messages may have been missed."""
        ...
