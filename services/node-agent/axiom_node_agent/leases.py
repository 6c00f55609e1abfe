"""Leases: between an agent's yes and the request that it was for, nobody takes the adapter away.

The yes to an ensure leases the adapter until the gateways' vectors have shown the request come and
go, and for 2 s at most: by then a gateway's vector holds it against eviction itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from axiom_common.model.ids import EngineAdapter

LEASE_MS = 2_000.0
VECTOR_DELAY_MS = 100.0
"""A younger lease may belong to a request that no vector has told yet (they come each 50 ms)."""


class Leases:
    """The leased adapters of one engine, with the moments at which the leases were granted."""

    def __init__(self) -> None:
        self._granted_ms: dict[EngineAdapter, float] = {}

    def grant(self, adapter: EngineAdapter, now_ms: float) -> None:
        """Lease, or lease anew."""
        self._granted_ms[adapter] = now_ms

    def requests_ended(self, adapter: EngineAdapter, now_ms: float) -> None:
        """No vector counts the adapter any more: its lease has served."""
        if now_ms - self._granted_ms.get(adapter, now_ms) >= VECTOR_DELAY_MS:
            del self._granted_ms[adapter]

    def held(self, now_ms: float) -> AbstractSet[EngineAdapter]:
        """The adapters leased now."""
        self._granted_ms = {
            adapter: granted_ms
            for adapter, granted_ms in self._granted_ms.items()
            if now_ms - granted_ms < LEASE_MS
        }
        return self._granted_ms.keys()
