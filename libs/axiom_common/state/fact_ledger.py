"""Which facts an engine's mirror tells, counted by the blocks that earn them.

Two blocks may earn the same fact: chains that part after the end of a chunk but within a block. It
is told while one of them is reached. Changes are collected until they are asked for, so what comes
and goes in between is never told.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from axiom_common.model.prefix import FactBatch, FactChanges
from axiom_common.state.text_facts import Fact


class Reach(IntEnum):
    """Where all blocks up to one lie: not all anywhere; in HBM and then lower; all in HBM."""

    NOT = 0
    LOWER = 1
    HBM = 2


class _Told:
    __slots__ = ("counts", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.counts = [0, 0, 0]

    @property
    def reach(self) -> Reach:
        if self.counts[Reach.HBM]:
            return Reach.HBM
        return Reach.LOWER if self.counts[Reach.LOWER] else Reach.NOT


class FactLedger:
    """Facts by link, and what became of them since the last `changes`."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        self._before: dict[int, Reach] = {}
        self._cleared = False

    def move(self, facts: Iterable[Fact], before: Reach, now: Reach) -> None:
        """A block that earns `facts` is reached otherwise than before."""
        for fact in facts:
            told = self._told.get(fact.link)
            if told is None:
                told = self._told[fact.link] = _Told(fact.tokens)
            self._before.setdefault(fact.link, told.reach)
            if before is not Reach.NOT:
                told.counts[before] -= 1
            if now is not Reach.NOT:
                told.counts[now] += 1

    def clear(self) -> None:
        """Nothing holds any more."""
        self._told.clear()
        self._before.clear()
        self._cleared = True

    def changes(self) -> FactChanges:
        """What to tell since the last time; facts that hold nowhere are dropped."""
        in_hbm: list[tuple[int, int]] = []
        in_lower: list[tuple[int, int]] = []
        left_hbm: list[int] = []
        gone: list[int] = []
        for link, before in self._before.items():
            told = self._told[link]
            now = told.reach
            if now is Reach.NOT:
                del self._told[link]
                if before is not Reach.NOT:
                    gone.append(link)
            elif now is not before:
                if now is Reach.HBM:
                    in_hbm.append((link, told.tokens))
                elif before is Reach.HBM:
                    left_hbm.append(link)
                else:
                    in_lower.append((link, told.tokens))
        cleared, self._cleared = self._cleared, False
        self._before.clear()
        return FactChanges(cleared, FactBatch.of(in_hbm, left_hbm), FactBatch.of(in_lower, gone))

    def whole(self) -> FactChanges:
        """All that holds, as if nothing had been told before."""
        told = self._told.items()
        return FactChanges(
            True,
            FactBatch.of(((k, t.tokens) for k, t in told if t.reach is Reach.HBM), ()),
            FactBatch.of(((k, t.tokens) for k, t in told if t.reach is Reach.LOWER), ()),
        )
