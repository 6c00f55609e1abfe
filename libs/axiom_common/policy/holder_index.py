"""Which rows hold an adapter: dictionaries to write, arrays to decide with."""

from __future__ import annotations

import numpy as np

from axiom_common.model.ids import EngineAdapter
from axiom_common.policy.occupancy import Holding
from axiom_common.policy.scorers.adapter_affinity import Held
from axiom_common.policy.view import Holders

NOWHERE = Holders(
    rows=np.zeros(0, np.intp),
    held=np.zeros(0, np.int8),
    remaining_ms=np.zeros(0),
    ready_at_ms=np.zeros(0),
    all_resident=True,
)


class HolderIndex:
    """adapter -> row -> how it is held. Arrays are built when asked for and kept until a change."""

    def __init__(self) -> None:
        self._holdings: dict[EngineAdapter, dict[int, Holding]] = {}
        self._arrays: dict[EngineAdapter, Holders] = {}

    def set(self, adapter: EngineAdapter, row: int, holding: Holding | None) -> None:
        """Write how `row` holds `adapter`; None: not at all."""
        rows = self._holdings.get(adapter, {})
        if rows.get(row) == holding:
            return
        self._arrays.pop(adapter, None)
        if holding is not None:
            self._holdings.setdefault(adapter, rows)[row] = holding
            return
        del rows[row]
        if not rows:
            del self._holdings[adapter]

    def holders(self, adapter: EngineAdapter) -> Holders:
        """Who holds `adapter`."""
        arrays = self._arrays.get(adapter)
        if arrays is None:
            rows = self._holdings.get(adapter)
            if rows is None:
                return NOWHERE
            found = rows.values()
            arrays = self._arrays[adapter] = Holders(
                rows=np.fromiter(rows, np.intp, len(rows)),
                held=np.fromiter((h.held for h in found), np.int8, len(rows)),
                remaining_ms=np.fromiter((h.remaining_ms for h in found), np.float64, len(rows)),
                ready_at_ms=np.fromiter((h.ready_at_ms for h in found), np.float64, len(rows)),
                all_resident=all(h.held == Held.RESIDENT for h in found),
            )
        return arrays
