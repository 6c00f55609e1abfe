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


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(RequestRecord)


class DecisionLog:
    """A bounded ring of decisions, found by id. The oldest ids go first.

    `on_end` hears of each request that ended. What ended is kept as bytes: a decision is some
    hundred objects, and ten thousand of them are memory that no cache of a CPU holds. To make them
    there, and to free them there, cost each request more than to encode its own.
    """

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._kept: OrderedDict[str, tuple[DecisionRecord, ...] | bytes] = OrderedDict()
        self.on_end: Callable[[tuple[DecisionRecord, ...], Outcome], None] = _ignore

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision of a request that is under way."""
        self._keep(record.id, (*self._decisions(record.id), record))

    def end(self, decision_id: str, outcome: Outcome) -> None:
        """Keep what became of a request."""
        decisions = self._decisions(decision_id)
        self._keep(decision_id, _ENCODER.encode((decisions, outcome)))
        self.on_end(decisions, outcome)

    def get(self, decision_id: str) -> RequestRecord | None:
        """What is known of one id; None when unknown or forgotten."""
        kept = self._kept.get(decision_id)
        if isinstance(kept, bytes):
            return _DECODER.decode(kept)
        return None if kept is None else RequestRecord(kept, None)

    def _decisions(self, decision_id: str) -> tuple[DecisionRecord, ...]:
        kept = self._kept.get(decision_id, ())
        return _DECODER.decode(kept).decisions if isinstance(kept, bytes) else kept

    def _keep(self, decision_id: str, kept: tuple[DecisionRecord, ...] | bytes) -> None:
        self._kept[decision_id] = kept
        if len(self._kept) > self._ids_max:
            self._kept.popitem(last=False)


def _ignore(decisions: tuple[DecisionRecord, ...], outcome: Outcome) -> None:
    """Nobody listens yet."""
