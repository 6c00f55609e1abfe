"""Nodes whose agent comes and goes: damped, so that nobody builds on what is gone the next moment.

    steady --STUMBLES stumbles within WINDOW_MS--> flapping --none for STEADY_MS--> steady

A stumble is a death, or a new incarnation of an agent that was not dead. What a node did outlives
its removal, or a node that comes and goes would begin anew each time. When more than a third of all
nodes, and at least `MASS_MIN`, stumble within `MASS_MS`, the cause is common to them (a registry
that lost its store, an upgrade): no node is to blame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from axiom_common.model.ids import NodeId
from axiom_common.state.liveness import MASS_MIN

STUMBLES = 3
WINDOW_MS = 60_000.0
STEADY_MS = 30_000.0
MASS_MS = 10_000.0
REMEMBERED_MAX = 4096


@dataclass(slots=True)
class _History:
    """The latest stumbles of a node, and since when it has been steady."""

    stumbles: deque[float] = field(default_factory=lambda: deque(maxlen=STUMBLES))
    steady_since_ms: float = 0.0
    flapping: bool = False


class Flapping:
    """The nodes of a region, as one listener hears them. Times never go back."""

    def __init__(self) -> None:
        self._histories: dict[NodeId, _History] = {}
        self._latest: deque[tuple[float, NodeId]] = deque()

    def stumbled(self, node: NodeId, now_ms: float, *, nodes: int) -> None:
        """The node died, or began anew; `nodes` are known in all."""
        history = self._histories.pop(node, None) or _History()
        self._histories[node] = history
        if len(self._histories) > REMEMBERED_MAX:
            del self._histories[next(iter(self._histories))]
        history.stumbles.append(now_ms)
        history.steady_since_ms = now_ms
        self._latest.append((now_ms, node))
        while self._latest and now_ms - self._latest[0][0] >= MASS_MS:
            self._latest.popleft()
        together = {other for _, other in self._latest}
        if len(together) >= MASS_MIN and 3 * len(together) > nodes:
            for at_ms, other in self._latest:
                self._forgive(other, at_ms)
        elif len(history.stumbles) == STUMBLES and now_ms - history.stumbles[0] <= WINDOW_MS:
            history.flapping = True

    def returned(self, node: NodeId, now_ms: float) -> None:
        """The node was dead and is heard again: only from now on can it be steady."""
        history = self._histories.get(node)
        if history is not None:
            history.steady_since_ms = now_ms

    def nodes(self, now_ms: float) -> frozenset[NodeId]:
        """Those that flap at `now_ms`."""
        for node, history in list(self._histories.items()):
            if now_ms - history.steady_since_ms >= STEADY_MS:
                history.flapping = False
            if not history.flapping and now_ms - history.steady_since_ms > WINDOW_MS:
                del self._histories[node]
        return frozenset(node for node, history in self._histories.items() if history.flapping)

    def _forgive(self, node: NodeId, at_ms: float) -> None:
        history = self._histories.get(node)
        if history is not None and at_ms in history.stumbles:
            history.stumbles.remove(at_ms)
            history.flapping = history.flapping and len(history.stumbles) == STUMBLES
