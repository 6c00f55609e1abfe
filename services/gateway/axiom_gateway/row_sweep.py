"""Which rows are written anew for the sake of time alone: a few a turn, the oldest first.

Rules look at the absence of news and at how long something has stood. When a large region falls
silent, or this process falls behind, all of its rows at once would hold up requests, and the news
that is waited for.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from axiom_gateway.engine_facts import EngineFacts

TURNS = 8
"""Turns that follow one look at all engines."""
ROWS_A_TURN = 32
SWEPT_MAX = TURNS * ROWS_A_TURN
"""Rows that one look leads to; the others wait for the next one."""


class RowSweep:
    """The rows that are due. `begin` after a look at all engines, then `take` in each turn."""

    def __init__(self) -> None:
        self._due: deque[EngineFacts] = deque()

    def begin(self, due: Iterable[EngineFacts]) -> None:
        """These are due from now on, and no others."""
        self._due = deque(heapq.nsmallest(SWEPT_MAX, due, key=attrgetter("written_ms")))

    def take(self, now_ms: float) -> list[EngineFacts]:
        """The rows of the next turn; those that news has written meanwhile are left out."""
        taken: list[EngineFacts] = []
        while self._due and len(taken) < ROWS_A_TURN:
            facts = self._due.popleft()
            if facts.due(now_ms):
                taken.append(facts)
        return taken
