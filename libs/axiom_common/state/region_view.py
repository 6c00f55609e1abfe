"""All nodes of a region, folded from their reports in whatever order these arrive.

Per node, (incarnation, seq) orders all states. What a report does to a node at (i, s):

    report            older or equal     newer
    full (i', s')     STALE              APPLIED
    delta, i' > i     -                  NEEDS_FULL: an agent's new life begins with a full state
    delta, i' = i     STALE              APPLIED if s' = s + 1, else GAP: one between was lost

A node that is not known yet finds NO_ROOM among `NODES_MAX` others.

After GAP and NEEDS_FULL the node stays as it is until a full state comes; whoever folds asks the
agent for one. A removed node leaves its order behind, so that a late report can't bring it back.

One writer folds; `apply_full`, `apply_delta` and `forget` are the only doors. Each costs as much
as the node has engines, whatever the size of the region.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from axiom_common.model.engine import EngineState, GpuState, HostState, NodeState, PlanStatus
from axiom_common.model.ids import EngineId, NodeId, RegionId

NODES_MAX = 4096
"""Above any region; whoever makes names up can't fill this process's memory."""
TOMBSTONE_MS = 600_000.0
"""Far above any delay of a message on the bus."""
TOMBSTONES_MAX = 4096


class Outcome(StrEnum):
    """What a report did."""

    APPLIED = "applied"
    STALE = "stale"
    GAP = "gap"
    NEEDS_FULL = "needs-full"
    NO_ROOM = "no-room"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDelta:
    """A change of a node: the changed engines, whole. Of the rest, empty and None: unchanged."""

    region: RegionId
    node: NodeId
    incarnation: int
    seq: int
    engines: tuple[EngineState, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    host: HostState | None = None
    plan: PlanStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The outcome with what it changed. `changed` engines are new or differ from before.

    APPLIED, GAP and NEEDS_FULL prove that a node's agent lives.
    """

    outcome: Outcome
    changed: tuple[EngineState, ...] = ()
    removed: tuple[EngineId, ...] = ()


@dataclass(frozen=True, slots=True)
class _Tombstone:
    order: tuple[int, int]
    until_ms: float


class RegionView:
    """The fold. Reports of another region are STALE."""

    def __init__(self, region: RegionId) -> None:
        self._region = region
        self._nodes: dict[NodeId, NodeState] = {}
        self._tombstones: dict[NodeId, _Tombstone] = {}

    def __len__(self) -> int:
        """How many nodes are known."""
        return len(self._nodes)

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes, in no particular order."""
        return tuple(self._nodes.values())

    def node(self, node: NodeId) -> NodeState | None:
        """One node, whole."""
        return self._nodes.get(node)

    def engines(self) -> Iterator[EngineState]:
        """All engines, in no particular order."""
        for state in self._nodes.values():
            yield from state.engines

    def apply(self, report: NodeState | NodeDelta, now_ms: float) -> Change:
        """Fold a report of either kind."""
        if isinstance(report, NodeDelta):
            return self.apply_delta(report, now_ms)
        return self.apply_full(report, now_ms)

    def apply_full(self, state: NodeState, now_ms: float) -> Change:
        """Fold a full state: it replaces the node when it is newer."""
        known = self._nodes.get(state.node)
        order = (state.incarnation, state.seq)
        if state.region != self._region or order <= self._order(state.node, now_ms):
            return Change(outcome=Outcome.STALE)
        if known is None and len(self._nodes) >= NODES_MAX:
            return Change(outcome=Outcome.NO_ROOM)
        self._nodes[state.node] = state
        self._tombstones.pop(state.node, None)
        before = {e.engine: e for e in known.engines} if known else {}
        after = {e.engine for e in state.engines}
        return Change(
            outcome=Outcome.APPLIED,
            changed=tuple(e for e in state.engines if before.get(e.engine) != e),
            removed=tuple(engine for engine in before if engine not in after),
        )

    def apply_delta(self, delta: NodeDelta, now_ms: float) -> Change:
        """Fold a change: it applies only to the state just before it."""
        incarnation, seq = self._order(delta.node, now_ms)
        if delta.region != self._region or (delta.incarnation, delta.seq) <= (incarnation, seq):
            return Change(outcome=Outcome.STALE)
        known = self._nodes.get(delta.node)
        if known is None and len(self._nodes) >= NODES_MAX:
            return Change(outcome=Outcome.NO_ROOM)
        if known is None or delta.incarnation > incarnation:
            return Change(outcome=Outcome.NEEDS_FULL)
        if delta.seq > seq + 1:
            return Change(outcome=Outcome.GAP)
        before = {e.engine: e for e in known.engines}
        changed = tuple(e for e in delta.engines if before.get(e.engine) != e)
        self._nodes[delta.node] = replace(
            known,
            seq=delta.seq,
            engines=tuple((before | {e.engine: e for e in changed}).values()),
            gpus=delta.gpus or known.gpus,
            host=delta.host or known.host,
            plan=delta.plan or known.plan,
        )
        return Change(outcome=Outcome.APPLIED, changed=changed)

    def forget(self, node: NodeId, now_ms: float) -> tuple[EngineId, ...]:
        """Remove a node; its engines. What remains of it is one order, for `TOMBSTONE_MS`."""
        state = self._nodes.pop(node, None)
        if state is None:
            return ()
        self._bury(node, (state.incarnation, state.seq), now_ms)
        return tuple(e.engine for e in state.engines)

    def _order(self, node: NodeId, now_ms: float) -> tuple[int, int]:
        state = self._nodes.get(node)
        if state is not None:
            return (state.incarnation, state.seq)
        buried = self._tombstones.get(node)
        return buried.order if buried is not None and buried.until_ms > now_ms else (-1, -1)

    def _bury(self, node: NodeId, order: tuple[int, int], now_ms: float) -> None:
        self._tombstones.pop(node, None)
        self._tombstones[node] = _Tombstone(order, now_ms + TOMBSTONE_MS)
        # In the order of burial, so the first expire first.
        while self._tombstones:
            oldest, buried = next(iter(self._tombstones.items()))
            if buried.until_ms > now_ms and len(self._tombstones) <= TOMBSTONES_MAX:
                break
            del self._tombstones[oldest]
