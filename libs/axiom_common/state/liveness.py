"""Liveness of node agents, from the arrival of their reports alone.

    alive --silent SUSPECT_MS--> suspect --silent DEAD_MS--> dead (told once, then forgotten)
    any --heard--> alive

When more than a third of all agents, and at least `MASS_MIN`, are silent together, the fault is
probably on the listener's side: nobody dies until enough of them are heard again. But a region may
lose so many, or let them go: who was silent for `FREEZE_MAX_MS`, in which the listener could hear
all the time, dies all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.ids import NodeId

SUSPECT_MS = 2_000.0
DEAD_MS = 5_000.0
MASS_MIN = 3
FREEZE_MAX_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a look at the clock found, nodes in order of name.

    `dead` are told once and no longer tracked; `suspect` still are. `frozen`: too many are silent
    together, so only those were declared dead that are silent for very long.
    """

    suspect: tuple[NodeId, ...]
    dead: tuple[NodeId, ...]
    frozen: bool


class Liveness:
    """The agents of one region, as one listener hears them."""

    def __init__(self) -> None:
        self._heard_at_ms: dict[NodeId, float] = {}

    def heard(self, node: NodeId, now_ms: float) -> None:
        """A report of the node arrived."""
        self._heard_at_ms[node] = now_ms

    def forget(self, node: NodeId) -> None:
        """The node was removed on purpose."""
        self._heard_at_ms.pop(node, None)

    def age_ms(self, node: NodeId, now_ms: float) -> float | None:
        """Since the last report; None for a node that was never heard or has died."""
        heard_at_ms = self._heard_at_ms.get(node)
        return None if heard_at_ms is None else now_ms - heard_at_ms

    def sweep(self, now_ms: float) -> Sweep:
        """Judge everybody at `now_ms`; forgets those that it declares dead."""
        silent = dict(
            sorted(
                (node, now_ms - heard_at_ms)
                for node, heard_at_ms in self._heard_at_ms.items()
                if now_ms - heard_at_ms >= SUSPECT_MS
            )
        )
        frozen = len(silent) >= MASS_MIN and 3 * len(silent) > len(self._heard_at_ms)
        dead_ms = FREEZE_MAX_MS if frozen else DEAD_MS
        dead = {node for node, age_ms in silent.items() if age_ms >= dead_ms}
        for node in dead:
            del self._heard_at_ms[node]
        return Sweep(
            suspect=tuple(node for node in silent if node not in dead),
            dead=tuple(node for node in silent if node in dead),
            frozen=frozen,
        )
