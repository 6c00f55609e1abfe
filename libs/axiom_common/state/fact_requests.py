"""Of which engines a snapshot is asked for, and when: at random, ever more seldom, few at a time.

Many gateways lack the same after a loss, and a gateway that starts lacks everything. An agent's
snapshot goes to all who listen, so each waits a random time first, and who sees one arrive does not
ask. Few are asked for at once, because a snapshot may have megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from axiom_common.model.ids import EngineId

FIRST_MS = 500.0
"""The longest first wait; doubles with each try."""
WAIT_MS_MAX = 30_000.0
ANSWER_MS = 2_000.0
"""An agent gathers askers, and then sends in parts: so long nothing new has to come."""
ASKED_MAX = 16
"""Engines asked for whose snapshot is not whole yet."""
GIVEN_UP_MS = 30_000.0
"""What was told before a loss counts so long; then nothing does until the snapshot is there."""


@dataclass(slots=True)
class _Want:
    """Due at a time; asked for so often; `awaited`: what was asked for may still come."""

    since_ms: float
    due_ms: float
    tries: int = 0
    awaited: bool = False


class FactRequests:
    """What is lacking. `chance` yields numbers from 0 below 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._wants: dict[EngineId, _Want] = {}

    def __len__(self) -> int:
        """Engines that lack something."""
        return len(self._wants)

    def want(self, engine: EngineId, now_ms: float) -> None:
        """Something of the engine is lacking."""
        if engine not in self._wants:
            self._wants[engine] = _Want(now_ms, now_ms + self._chance() * FIRST_MS)

    def arriving(self, engine: EngineId, now_ms: float) -> None:
        """A part of its snapshot came, whoever asked for it."""
        want = self._wants.get(engine)
        if want is not None:
            want.due_ms, want.awaited = max(want.due_ms, now_ms + ANSWER_MS), True

    def came(self, engine: EngineId) -> None:
        """Nothing is lacking any more, or nobody is there to ask."""
        self._wants.pop(engine, None)

    def take(self, now_ms: float) -> list[EngineId]:
        """Whom to ask for now, those first that are due for longest."""
        due = []
        for engine, want in self._wants.items():
            if want.due_ms <= now_ms:
                want.awaited = False
                due.append((want.due_ms, engine))
        room = ASKED_MAX - sum(want.awaited for want in self._wants.values())
        taken = [engine for _, engine in sorted(due)[: max(0, room)]]
        for engine in taken:
            want = self._wants[engine]
            want.tries += 1
            want.awaited = True
            wait_ms = min(WAIT_MS_MAX, FIRST_MS * 2.0 ** min(want.tries, 16))
            want.due_ms = now_ms + ANSWER_MS + self._chance() * wait_ms
        return taken

    def given_up(self, now_ms: float) -> list[EngineId]:
        """Engines that have lacked something for too long, each told once in that time."""
        found = [e for e, want in self._wants.items() if now_ms - want.since_ms >= GIVEN_UP_MS]
        for engine in found:
            self._wants[engine].since_ms = now_ms
        return found
