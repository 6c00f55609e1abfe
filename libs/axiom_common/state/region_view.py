"""All nodes of a region, folded from their reports in whatever order these arrive.

Per node, (incarnation, seq) orders all states. Fulls and deltas tell slow facts; the last of them
is the base of what follows. A beat tells figures only, each as it is now, so that a lost beat
leaves no hole: it needs its base and no other beat. What a report does to a node at (i, s):

    report                older or equal     newer
    full, i' >= i         STALE              APPLIED
    delta or beat, i' > i -                  NEEDS_FULL: a new life of an agent begins with a full
    delta or beat, i' = i STALE              APPLIED on the base that it names, else GAP
    left                  STALE              LEFT: the node stays until its owner forgets it

A node that is not known yet finds NO_ROOM among `NODES_MAX` others.

After GAP and NEEDS_FULL the node stays as it is until a full state comes; whoever folds asks the
agent for one. A removed node leaves its order behind, so that a late report can't bring it back.

One writer folds; `apply` and `forget` are the only doors. Each costs as much as the node has
engines, whatever the size of the region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from axiom_common.model.adapter import Residency
from axiom_common.model.engine import (
    EngineFigures,
    EngineRank,
    EngineState,
    GpuState,
    HostState,
    NodeState,
    PlanStatus,
)
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId

NODES_MAX = 4096
"""Above any region; whoever makes names up can't fill this process's memory."""
TOMBSTONE_MS = 600_000
"""How long a node's order outlives the node: far above any delay of a message or a writer."""
TOMBSTONES_MAX = 4096

_by_name = attrgetter("adapter")


class Outcome(StrEnum):
    """What a report did."""

    APPLIED = "applied"
    STALE = "stale"
    GAP = "gap"
    NEEDS_FULL = "needs-full"
    NO_ROOM = "no-room"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDelta:
    """A change of a node: the changed engines, whole. `gpus`, `host`, `plan` None: unchanged.

    It applies on the state whose base is `base`; -1 stands for the number just below `seq`.
    """

    region: RegionId
    node: NodeId
    incarnation: int
    seq: int
    base: int = -1
    engines: tuple[EngineState, ...] = ()
    gpus: tuple[GpuState, ...] | None = None
    host: HostState | None = None
    plan: PlanStatus | None = None

    def __post_init__(self) -> None:
        if self.base < 0:
            object.__setattr__(self, "base", self.seq - 1)


class EngineBeat(NamedTuple):
    """One engine in a beat. `order` is its LRU order as places in the list of its residents sorted
    by name, least recently used first; None while it is as the base told it."""

    engine: EngineId
    figures: EngineFigures
    order: tuple[int, ...] | None = None
    ranks: tuple[EngineRank, ...] = ()


class NodeBeat(NamedTuple):
    """Figures of all engines of a node, absolute, on the beat. `gpus` None: as told before."""

    region: RegionId
    node: NodeId
    incarnation: int
    seq: int
    base: int
    engines: tuple[EngineBeat, ...]
    gpus: tuple[GpuState, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft:
    """The last words of an agent that ends: it tells no more. Its engines may live on."""

    region: RegionId
    node: NodeId
    incarnation: int
    seq: int


Report = NodeState | NodeDelta | NodeBeat | NodeLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The outcome with what it changed. `changed` engines are new or differ from before.

    APPLIED, GAP and NEEDS_FULL prove that a node's agent lives.
    """

    outcome: Outcome
    changed: tuple[EngineState, ...] = ()
    removed: tuple[EngineId, ...] = ()


_STALE, _GAP, _NEEDS_FULL, _NO_ROOM, _LEFT, _SAME = (
    Change(outcome=outcome)
    for outcome in (
        Outcome.STALE,
        Outcome.GAP,
        Outcome.NEEDS_FULL,
        Outcome.NO_ROOM,
        Outcome.LEFT,
        Outcome.APPLIED,
    )
)


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

    def apply(self, report: Report, now_ms: float) -> Change:
        """Fold a report of any kind."""
        known = self._nodes.get(report.node)
        order = (report.incarnation, report.seq)
        if report.region != self._region or order <= self._order(report.node, known, now_ms):
            return _STALE
        if isinstance(report, NodeLeft):
            return self._left(known, report)
        if known is None and len(self._nodes) >= NODES_MAX:
            return _NO_ROOM
        if isinstance(report, NodeState):
            return self._replaced(known, report)
        if known is None or report.incarnation > known.incarnation:
            return _NEEDS_FULL
        if report.base != known.base:
            return _GAP
        if isinstance(report, NodeBeat):
            return self._beat(known, report)
        return self._changed(known, report)

    def forget(self, node: NodeId, now_ms: float) -> tuple[EngineId, ...]:
        """Remove a node; its engines. What remains of it is one order, for `TOMBSTONE_MS`."""
        state = self._nodes.pop(node, None)
        if state is None:
            return ()
        self._bury(node, (state.incarnation, state.seq), now_ms)
        return tuple(e.engine for e in state.engines)

    def _replaced(self, known: NodeState | None, state: NodeState) -> Change:
        self._nodes[state.node] = state
        self._tombstones.pop(state.node, None)
        before = {e.engine: e for e in known.engines} if known else {}
        after = {e.engine for e in state.engines}
        return Change(
            outcome=Outcome.APPLIED,
            changed=tuple(e for e in state.engines if before.get(e.engine) != e),
            removed=tuple(engine for engine in before if engine not in after),
        )

    def _changed(self, known: NodeState, delta: NodeDelta) -> Change:
        before = {e.engine: e for e in known.engines}
        changed = tuple(e for e in delta.engines if before.get(e.engine) != e)
        self._nodes[delta.node] = replace(
            known,
            seq=delta.seq,
            base=delta.seq,
            engines=tuple((before | {e.engine: e for e in changed}).values()),
            gpus=known.gpus if delta.gpus is None else delta.gpus,
            host=delta.host or known.host,
            plan=delta.plan or known.plan,
        )
        return Change(outcome=Outcome.APPLIED, changed=changed)

    def _beat(self, known: NodeState, beat: NodeBeat) -> Change:
        """Fold a beat on its base; a GAP when it is of other engines or residents."""
        told = beat.engines
        if len(told) != len(known.engines):
            return _GAP
        if any(e.engine != t.engine for e, t in zip(known.engines, told, strict=True)):
            by_id = {t.engine: t for t in told}
            if by_id.keys() != {e.engine for e in known.engines}:
                return _GAP
            told = tuple(by_id[e.engine] for e in known.engines)
        engines: list[EngineState] = []
        changed: list[EngineState] = []
        for engine, (_, figures, order, ranks) in zip(known.engines, told, strict=True):
            residents = engine.residents if order is None else reordered(engine.residents, order)
            if residents is None:
                return _GAP
            after = engine
            if (
                figures != engine.figures
                or residents is not engine.residents
                or ranks != engine.ranks
            ):
                after = engine.with_figures(figures, ranks=ranks, residents=residents)
                changed.append(after)
            engines.append(after)
        self._nodes[known.node] = NodeState(
            region=known.region,
            node=known.node,
            incarnation=known.incarnation,
            seq=beat.seq,
            base=known.base,
            engines=tuple(engines) if changed else known.engines,
            gpus=known.gpus if beat.gpus is None else beat.gpus,
            host=known.host,
            plan=known.plan,
        )
        return Change(outcome=Outcome.APPLIED, changed=tuple(changed)) if changed else _SAME

    def _left(self, known: NodeState | None, report: NodeLeft) -> Change:
        if known is None:
            return _STALE
        # Its order stands, so that nothing that it said before comes after.
        self._nodes[known.node] = replace(
            known, incarnation=report.incarnation, seq=report.seq, base=report.seq
        )
        return _LEFT

    def _order(self, node: NodeId, known: NodeState | None, now_ms: float) -> tuple[int, int]:
        if known is not None:
            return (known.incarnation, known.seq)
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


def order_of(adapters: Sequence[EngineAdapter]) -> tuple[int, ...]:
    """The LRU order of residents, least recently used first, as a beat tells it: `EngineBeat`."""
    place = {name: at for at, name in enumerate(sorted(adapters))}
    return tuple(place[name] for name in adapters)


def reordered(
    residents: tuple[Residency, ...], order: tuple[int, ...]
) -> tuple[Residency, ...] | None:
    """The residents in the order that a beat tells; the same object when they are, None when the
    order is not one of these."""
    if len(order) != len(residents) or len(set(order)) != len(order):
        return None
    if order and not (min(order) == 0 and max(order) == len(order) - 1):
        return None
    by_name = sorted(residents, key=_by_name)
    after = tuple([by_name[at] for at in order])
    if all(one is other for one, other in zip(after, residents, strict=True)):
        return residents
    return after
