"""Foreign load: requests on an engine that no gateway of the region sent.

An engine reports how many requests it has; the gateways' vectors say how many are theirs. The
surplus is foreign, but the two are never of the same moment: a request that ended is still in the
last report, one that was just sent not yet. So the least surplus over the last two samples counts:
a report that repeats the engine's figures confirms nothing.
"""

from __future__ import annotations

from axiom_common.model.ids import EngineId


class ForeignLoad:
    """The last surplus of each engine."""

    def __init__(self) -> None:
        self._surplus: dict[EngineId, int] = {}

    def beat(self, engine: EngineId, *, reported: int, gateways: int) -> int:
        """Foreign requests after one more sample: `reported` by the engine, `gateways` own and
        peers' at the same time. Never below 0; 0 on the first sample, which nothing confirms."""
        surplus = max(0, reported - gateways)
        before = self._surplus.get(engine, 0)
        self._surplus[engine] = surplus
        return min(before, surplus)

    def forget(self, engine: EngineId) -> None:
        """The engine is gone."""
        self._surplus.pop(engine, None)
