"""Whom to ask for its full state, and when: paced, so that not all answer at once.

One node that lacks something is asked at once. A thousand of them (a reconnect, a take-over) are
asked by and by. An agent's answer goes to all listeners, so whoever else lacks something of the
node finds it answered, and does not ask.
"""

from __future__ import annotations

from axiom_common.model.ids import NodeId

FIRST_MS = 20.0
"""A full state may be on its way already."""
EVERY_MS = 1_000.0
"""The least time between two requests to one node."""
A_SECOND = 1_000.0
BURST = 20.0
"""In any time of t ms at most `BURST` + `A_SECOND` * t / 1000 nodes are asked."""
WANTED_MAX = 4_096
"""Beyond it a node waits for its next report, or for the full state that agents tell anyway."""


class Resyncs:
    """What is wanted and not there yet."""

    def __init__(self) -> None:
        self._due_ms: dict[NodeId, float] = {}
        self._asked_ms: dict[NodeId, float] = {}
        self._allowance = BURST
        self._allowed_ms = float("-inf")

    def __len__(self) -> int:
        """Nodes that a full state is wanted of."""
        return len(self._due_ms)

    def want(self, node: NodeId, now_ms: float) -> None:
        """Something of the node is lacking."""
        if node not in self._due_ms and len(self._due_ms) < WANTED_MAX:
            asked_ms = self._asked_ms.get(node, float("-inf"))
            self._due_ms[node] = max(now_ms + FIRST_MS, asked_ms + EVERY_MS)

    def came(self, node: NodeId) -> None:
        """Its full state is there."""
        self._due_ms.pop(node, None)

    def forget(self, node: NodeId) -> None:
        """Nothing is wanted of it any more."""
        self._due_ms.pop(node, None)
        self._asked_ms.pop(node, None)

    def take(self, now_ms: float) -> list[NodeId]:
        """Whom to ask now. Who does not answer is taken again, behind the others."""
        passed_ms = min(now_ms - self._allowed_ms, EVERY_MS)
        self._allowance = min(BURST, self._allowance + passed_ms * A_SECOND / 1e3)
        self._allowed_ms = now_ms
        if not self._due_ms:
            self._asked_ms.clear()
            return []
        due = sorted((due_ms, node) for node, due_ms in self._due_ms.items() if due_ms <= now_ms)
        taken = [node for _, node in due[: int(self._allowance)]]
        self._allowance -= len(taken)
        for node in taken:
            self._asked_ms[node] = now_ms
            self._due_ms[node] = now_ms + EVERY_MS
        return taken
