"""The decisions of the last minutes, whole, with what became of them, for whoever asks why."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from axiom_common.model.decision import Decision, Query
from axiom_common.model.outcome import Outcome

IDS_MAX = 10_000


class DecisionRecord(NamedTuple):
    """One decision as it was taken. `id` is what the client got; a retry has the id's next try."""

    id: str
    at_ms: float
    attempt: int
    query: Query
    decision: Decision


class RequestRecord(NamedTuple):
    """All tries of one id, in order: none where it was not decided, or that is forgotten. `outcome`
    None: it is under way."""

    decisions: tuple[DecisionRecord, ...]
    outcome: Outcome | None


class DecisionLog:
    """A bounded ring of decisions, found by id. The oldest ids go first.

    `on_end` hears of each request that ended.
    """

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._records: OrderedDict[str, tuple[DecisionRecord, ...]] = OrderedDict()
        self._outcomes: dict[str, Outcome] = {}
        self.on_end: Callable[[tuple[DecisionRecord, ...], Outcome], None] = _ignore

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision."""
        self._keep(record.id, (*self._records.get(record.id, ()), record))

    def end(self, decision_id: str, outcome: Outcome) -> None:
        """Keep what became of a request."""
        decisions = self._records.get(decision_id)
        if decisions is None:
            decisions = ()
            self._keep(decision_id, decisions)
        self._outcomes[decision_id] = outcome
        self.on_end(decisions, outcome)

    def get(self, decision_id: str) -> RequestRecord | None:
        """What is known of one id; None when unknown or forgotten."""
        decisions = self._records.get(decision_id)
        if decisions is None:
            return None
        return RequestRecord(decisions, self._outcomes.get(decision_id))

    def _keep(self, decision_id: str, decisions: tuple[DecisionRecord, ...]) -> None:
        self._records[decision_id] = decisions
        if len(self._records) > self._ids_max:
            oldest, _ = self._records.popitem(last=False)
            self._outcomes.pop(oldest, None)


def _ignore(decisions: tuple[DecisionRecord, ...], outcome: Outcome) -> None:
    """Nobody listens yet."""
