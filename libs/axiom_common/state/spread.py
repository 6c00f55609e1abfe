"""Bounded spread: an adapter gets one more engine when waiting has cost as much as a load would.

Ski rental: every request at the adapter's present engines pays its delay there; a load clears the
account. Whoever decides this way never pays more than twice what knowing the future would. An
account that nobody paid into for `FORGET_MS` starts anew: a busy minute long ago buys nothing.
"""

from __future__ import annotations

from axiom_common.model.ids import EngineAdapter

FORGET_MS = 10_000.0
ACCOUNTS_MAX = 10_000
"""Beyond it the account that was longest without a payment is dropped."""


class Spread:
    """One account per adapter that has waited since its last load."""

    def __init__(self) -> None:
        self._accounts: dict[EngineAdapter, tuple[float, float]] = {}

    def waited_ms(self, adapter: EngineAdapter, now_ms: float) -> float:
        """What waiting has cost since the last load."""
        waited_ms, paid_at_ms = self._accounts.get(adapter, (0.0, now_ms))
        return waited_ms if now_ms - paid_at_ms <= FORGET_MS else 0.0

    def pay(self, adapter: EngineAdapter, delay_ms: float, now_ms: float) -> None:
        """One request is delayed."""
        waited_ms = self.waited_ms(adapter, now_ms) + delay_ms
        self._accounts.pop(adapter, None)
        self._accounts[adapter] = (waited_ms, now_ms)
        if len(self._accounts) > ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]

    def clear(self, adapter: EngineAdapter) -> None:
        """The adapter got one more engine."""
        self._accounts.pop(adapter, None)
