"""Which adapters an engine runs for somebody that no gateway speaks for.

An engine that tells its counts at once is ahead of the gateways, whose vectors are a pause of 50 ms
and a network old. So its count is taken as low as it was in the last moments and theirs as high:
a request of a gateway was told of by now, or was not in flight at some moment of that time. What is
left is foreign: it shows after EXPLAINS_MS and ends at once.

Of other engines a scrape says which adapters run. It is up to a poll old and a gateway's word is
newer, so it counts only if no gateway counted the adapter then or since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from axiom_common.model.ids import EngineAdapter

EXPLAINS_MS = 100.0
"""Longer than a gateway's word takes, and than an ended request shows in a scrape."""

Counts = Mapping[EngineAdapter, int]


class ForeignUse:
    """Of one engine. `counts`: foreign requests by adapter, none of them 0; where the engine tells
    no counts, 1 for each adapter."""

    def __init__(self) -> None:
        self.counts: Counts = {}
        self._exact = False
        self._counted: Counts = {}
        self._counted_ms: dict[EngineAdapter, float] = {}
        self._engine = _Extreme(min)
        self._gateways = _Extreme(max)

    @property
    def adapters(self) -> AbstractSet[EngineAdapter]:
        """The adapters that others use."""
        return self.counts.keys()

    def counted(self, counts: Counts, used: AbstractSet[EngineAdapter], now_ms: float) -> None:
        """Gateways count these now; `used` they named, if only to say that it is over."""
        self._counted = counts
        self._counted_ms |= dict.fromkeys(used, now_ms)
        self._gateways.add(
            {**counts, **{name: max(1, counts.get(name, 0)) for name in used}}, now_ms
        )
        self._gateways.add(counts, now_ms)
        if self._exact:
            self._compare(now_ms)
        else:
            self.counts = {name: 1 for name in self.counts if name not in used}

    def told(self, in_flight: Counts, now_ms: float) -> None:
        """The engine's own counts now."""
        self._exact = True
        self._engine.add(in_flight, now_ms)
        self._compare(now_ms)

    def sampled(self, in_use: AbstractSet[EngineAdapter], now_ms: float) -> None:
        """A scrape came."""
        recent = {a: at for a, at in self._counted_ms.items() if now_ms - at < EXPLAINS_MS}
        self._counted_ms = recent | dict.fromkeys(self._counted, now_ms)
        if self._exact:
            self._compare(now_ms)
        else:
            self.counts = dict.fromkeys(sorted(in_use - self._counted_ms.keys()), 1)

    def silent(self) -> None:
        """The engine tells its counts no more."""
        self._exact = False
        self._engine = _Extreme(min)

    def _compare(self, now_ms: float) -> None:
        told = self._gateways.of_late(now_ms)
        rest = {n: c - told.get(n, 0) for n, c in self._engine.of_late(now_ms).items()}
        self.counts = {name: count for name, count in sorted(rest.items()) if count > 0}


class _Extreme:
    """The least, or the most, that each count was in the last EXPLAINS_MS or up to twice that: in
    two spans of time, one that is over and one that goes on."""

    def __init__(self, pick: Callable[[int, int], int]) -> None:
        self._pick = pick
        self._now: Counts = {}
        self._span: Counts = {}
        self._span_before: Counts = {}
        self._since_ms = -math.inf

    def add(self, counts: Counts, now_ms: float) -> None:
        self._pass(now_ms)
        self._span = self._both(self._span, counts)
        self._now = dict(counts)

    def of_late(self, now_ms: float) -> Counts:
        self._pass(now_ms)
        return self._both(self._span_before, self._span)

    def _pass(self, now_ms: float) -> None:
        passed_ms = now_ms - self._since_ms
        if passed_ms >= EXPLAINS_MS:
            # After two spans nothing has been added for one of them.
            self._span_before = self._span if passed_ms < 2 * EXPLAINS_MS else self._now
            self._span, self._since_ms = self._now, now_ms

    def _both(self, one: Counts, other: Counts) -> Counts:
        return {n: self._pick(one.get(n, 0), other.get(n, 0)) for n in one.keys() | other.keys()}
