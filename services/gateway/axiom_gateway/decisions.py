"""The decisions of the last minutes, whole, for whoever asks why."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from axiom_common.model.decision import Decision, Query


class DecisionRecord(NamedTuple):
    """One decision as it was taken. `id` is what the client got; a retry has the id's next try."""

    id: str
    at_ms: float
    attempt: int
    query: Query
    decision: Decision


class DecisionLog:
    """A bounded ring of decisions, found by id. The oldest ids go first."""

    def __init__(self, ids_max: int = 10_000) -> None:
        self._ids_max = ids_max
        self._records: OrderedDict[str, tuple[DecisionRecord, ...]] = OrderedDict()

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision."""
        self._records[record.id] = (*self._records.get(record.id, ()), record)
        if len(self._records) > self._ids_max:
            self._records.popitem(last=False)

    def get(self, decision_id: str) -> tuple[DecisionRecord, ...]:
        """All tries of one id, in order; empty when unknown or forgotten."""
        return self._records.get(decision_id, ())
