"""Which of a region's nodes are this instance's, among all telemetry instances that live.

Each instance holds a lease of its own; those whose leases stand are members. A node is its that
ranks highest for it by rendezvous hash, so one more or one less moves only its own share. Who sees
fewer members than there are owns more, never less: an instance always counts itself, so as soon as
no dead one is among the members of the node's true owner, the node has an owner. Two owners at a
time are harmless, the shadow cache compares.

A lease that vanished is forgotten `GRACE_MS` later: when the registry elects a leader, all leases
may end at once, and their holders write them again. Who lost a node goes on with it for
`HANDOVER_MS`, until its new owner knows it. Where nobody can say who lives, the last known members
stand; before anybody ever said, from `JOIN_MS` on, all nodes are this instance's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from axiom_common.model.ids import NodeId
from axiom_common.policy.rendezvous import rendezvous, stable_hash

GRACE_MS = 700.0
HANDOVER_MS = 3_000.0
JOIN_MS = 1_000.0
MEMBERS_MAX = 64
"""Members beyond it are not counted, so each owns more than its share."""
PAST_MAX = 8
KNOWN_MAX = 8_192
"""Nodes whose owner is remembered, until it is worked out again."""


@dataclass(slots=True)
class _Members:
    """Who lived, and which nodes were then this instance's. `until_ms`: how long that counts."""

    names: tuple[str, ...]
    until_ms: float = float("inf")
    owned: dict[NodeId, bool] = field(default_factory=dict)


class Sharing:
    """One instance's view of the others. `own` is its name among them."""

    def __init__(self, own: str, *, started_ms: float) -> None:
        self._own = own
        self._started_ms = started_ms
        self._informed = False
        self._in_force = False
        self._vanished_ms: dict[str, float | None] = {}
        self._now = _Members((own,))
        self._past: list[_Members] = []

    @property
    def members(self) -> tuple[str, ...]:
        """Who lives, itself included, by name."""
        return self._now.names

    def informed(self) -> None:
        """All leases that stand were told."""
        self._informed = True

    def present(self, name: str) -> None:
        """The lease of `name` stands."""
        if name != self._own and (
            name in self._vanished_ms or len(self._vanished_ms) < MEMBERS_MAX - 1
        ):
            self._vanished_ms[name] = None

    def vanished(self, name: str, now_ms: float) -> None:
        """The lease of `name` ended or was given back."""
        if name in self._vanished_ms and self._vanished_ms[name] is None:
            self._vanished_ms[name] = now_ms

    def sweep(self, now_ms: float) -> bool:
        """Let time pass; whether some nodes may have another owner now."""
        for name, since_ms in list(self._vanished_ms.items()):
            if since_ms is not None and now_ms - since_ms >= GRACE_MS:
                del self._vanished_ms[name]
        still = [past for past in self._past if past.until_ms > now_ms]
        ended = len(still) < len(self._past)
        self._past = still
        names = tuple(sorted({self._own, *self._vanished_ms}))
        before, self._in_force = self._in_force, self._in_force or self._settled(now_ms)
        if names == self._now.names:
            return ended or before != self._in_force
        if before:
            self._now.until_ms = now_ms + HANDOVER_MS
            self._past = [*self._past, self._now][-PAST_MAX:]
        self._now = _Members(names)
        return True

    def owns(self, node: NodeId, now_ms: float) -> bool:
        """Whether the node is this instance's, or was until a moment ago."""
        if not self._in_force:
            return False
        if self._owned_among(self._now, node):
            return True
        return any(self._owned_among(past, node) for past in self._past if past.until_ms > now_ms)

    def _settled(self, now_ms: float) -> bool:
        """Whether it is known who lives, or nobody says so for too long."""
        return self._informed or now_ms - self._started_ms >= JOIN_MS

    def _owned_among(self, members: _Members, node: NodeId) -> bool:
        owned = members.owned.get(node)
        if owned is None:
            if len(members.owned) >= KNOWN_MAX:
                members.owned.clear()
            owned = owner(members.names, node) == self._own
            members.owned[node] = owned
        return owned


def owner(members: tuple[str, ...], node: NodeId) -> str:
    """Whose a node is among these, which are at least one."""
    identities = np.array([stable_hash(name) for name in members], np.uint64)
    return members[int(np.argmax(rendezvous(identities, stable_hash(node))))]
