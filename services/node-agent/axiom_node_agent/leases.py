"""Leases: between an agent's yes and the request that it was for, nobody takes the adapter away.

The yes to an ensure leases the adapter until the gateways' vectors have shown the request come and
go, and for 2 s at most: by then a gateway's vector holds it against eviction itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from axiom_common.model.ids import EngineAdapter

LEASE_MS = 2_000.0
VECTOR_DELAY_MS = 100.0
"""A younger lease may belong to a request that no vector has told yet (they come each 50 ms)."""


@dataclass(frozen=True, slots=True)
class _Lease:
    granted_ms: float
    until_ms: float


class Leases:
    """The leased adapters of one engine."""

    def __init__(self) -> None:
        self._leases: dict[EngineAdapter, _Lease] = {}

    def grant(self, adapter: EngineAdapter, now_ms: float) -> None:
        """Lease, or lease anew."""
        self._leases[adapter] = _Lease(now_ms, now_ms + LEASE_MS)

    def requests_ended(self, adapter: EngineAdapter, now_ms: float) -> None:
        """No vector counts the adapter any more: its lease has served, if a vector knew of it."""
        if lease := self._leases.get(adapter):
            until_ms = min(lease.until_ms, max(now_ms, lease.granted_ms + VECTOR_DELAY_MS))
            self._leases[adapter] = _Lease(lease.granted_ms, until_ms)

    def held(self, now_ms: float) -> AbstractSet[EngineAdapter]:
        """The adapters leased now."""
        self._leases = {a: lease for a, lease in self._leases.items() if now_ms < lease.until_ms}
        return self._leases.keys()
