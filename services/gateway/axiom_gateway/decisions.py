"""The decisions of the last minutes, whole, with what became of them, for whoever asks why."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from axiom_common.model.decision import Decision, Query
from axiom_common.model.outcome import Outcome

IDS_MAX = 10_000


class DecisionRecord(NamedTuple):
    """One decision as it was taken. `id` is what the client got; a retry has the id's next try.
    `weights` are those of its profile at that moment, indexed like `Term`."""

    id: str
    at_ms: float
    attempt: int
    query: Query
    decision: Decision
    weights: tuple[float, ...]


class RequestRecord(NamedTuple):
    """All tries of one id, in order: none where it was not decided, or that is forgotten. `outcome`
    None: it is under way."""

    decisions: tuple[DecisionRecord, ...]
    outcome: Outcome | None


ENDED_MAX = 64
"""Requests that ended and are not packed yet: all of them but the first find the code that packs in
the CPU's cache."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(RequestRecord)


class DecisionLog:
    """A bounded ring of decisions, found by id. The oldest ids go first.

    `on_end` hears of each request that ended. What ended is packed into bytes: a decision is some
    hundred objects, and ten thousand of them are memory that no cache of a CPU holds. To make them
    there, and to free them there, cost each request more than to pack its own.
    """

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._kept: OrderedDict[str, tuple[DecisionRecord, ...] | bytes] = OrderedDict()
        self._ended: dict[str, RequestRecord] = {}
        self.on_end: Callable[[tuple[DecisionRecord, ...], Outcome], None] = _ignore

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision of a request that is under way."""
        kept = self._kept
        before = kept.get(record.id)
        kept[record.id] = (record,) if before is None else (*_under_way(before), record)
        if len(kept) > self._ids_max:
            kept.popitem(last=False)

    def end(self, decision_id: str, outcome: Outcome) -> None:
        """Keep what became of a request."""
        decisions = _under_way(self._kept.setdefault(decision_id, ()))
        self._ended[decision_id] = RequestRecord(decisions, outcome)
        if len(self._ended) >= ENDED_MAX:
            self._pack()
        self.on_end(decisions, outcome)

    def get(self, decision_id: str) -> RequestRecord | None:
        """What is known of one id; None when unknown or forgotten."""
        self._pack()
        kept = self._kept.get(decision_id)
        if isinstance(kept, bytes):
            return _DECODER.decode(kept)
        return None if kept is None else RequestRecord(kept, None)

    def _pack(self) -> None:
        kept, encode = self._kept, _ENCODER.encode
        for decision_id, record in self._ended.items():
            if decision_id in kept:
                kept[decision_id] = encode(record)
        self._ended.clear()
        while len(kept) > self._ids_max:
            kept.popitem(last=False)


def _under_way(kept: tuple[DecisionRecord, ...] | bytes) -> tuple[DecisionRecord, ...]:
    """No id ends twice, nor is one decided again that ended."""
    assert not isinstance(kept, bytes)
    return kept


def _ignore(decisions: tuple[DecisionRecord, ...], outcome: Outcome) -> None:
    """Nobody listens yet."""
