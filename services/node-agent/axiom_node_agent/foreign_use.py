"""Which adapters an engine runs for somebody that no gateway speaks for.

A scrape is up to a poll old and a gateway's word is newer. So what a scrape shows running counts
only if no gateway counted the adapter then or since: the requests of gateways are in their own
counts, and are over when those say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from axiom_common.model.ids import EngineAdapter

EXPLAINS_MS = 100.0
"""A request that ended so shortly before a scrape may still show in it."""


class ForeignUse:
    """The adapters of one engine that others use."""

    def __init__(self) -> None:
        self.adapters: AbstractSet[EngineAdapter] = frozenset()
        self._counted_ms: dict[EngineAdapter, float] = {}

    def counted(self, adapters: Iterable[EngineAdapter], now_ms: float) -> None:
        """Gateways count these, or did until now."""
        self._counted_ms |= dict.fromkeys(adapters, now_ms)
        self.adapters = self.adapters - self._counted_ms.keys()

    def sampled(
        self, in_use: AbstractSet[EngineAdapter], counted: Iterable[EngineAdapter], now_ms: float
    ) -> None:
        """A scrape came; gateways count the adapters `counted` now."""
        recent = {a: at for a, at in self._counted_ms.items() if now_ms - at < EXPLAINS_MS}
        self._counted_ms = recent | dict.fromkeys(counted, now_ms)
        self.adapters = in_use - self._counted_ms.keys()
