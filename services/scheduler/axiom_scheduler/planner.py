"""From a snapshot to the plans it asks for: the placement policy, compared with what stands.

A plan is written anew when its content changes, and once by each new leader: only then do agents
and compare-and-set refuse the writes that a former leader may still have under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.policy.placement import node_plans, place

NAMES_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a placement depends on.

    `silent` nodes have not been heard for too long: they keep a plan and get no adapters. Nor do
    engines that are `draining` by an operator's order. `plans` are the plans as they stand.
    `revision_floor` is the highest revision ever withdrawn.
    """

    region: RegionId
    adapters: Mapping[str, AdapterSpec]
    revision_floor: int
    nodes: tuple[NodeState, ...]
    silent: frozenset[NodeId]
    draining: frozenset[EngineId]
    plans: Mapping[NodeId, Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Plans to write, nodes whose plan must go, and the adapters that got no home.

    `fence` is the proposing leader's; all its plans carry it.
    """

    fence: int
    plans: tuple[Plan, ...]
    gone: tuple[NodeId, ...]
    unplaced: Mapping[str, Reason]


def propose(snapshot: Snapshot, *, fence: int, gone: Iterable[NodeId]) -> Proposal:
    """What a leader with this fence has to change. `gone` are nodes that do not exist any more."""
    engines = [
        _as_used(engine, snapshot, silent=node.node in snapshot.silent)
        for node in snapshot.nodes
        for engine in node.engines
    ]
    placement = place(snapshot.adapters.values(), engines, homes_of(snapshot.plans.values()))
    wanted = node_plans(
        placement, snapshot.adapters, engines, revision_floor=snapshot.revision_floor
    )
    # An agent that was away may have seen more revisions than what stands (a plan deleted since).
    seen = {n.node: n.plan.revision for n in snapshot.nodes if n.plan is not None}
    plans = []
    for node in sorted(wanted):
        current = snapshot.plans.get(node)
        content = tuple(e for e in wanted[node] if e.load or e.unload)
        if current is not None and current.fence == fence and current.engines == content:
            continue
        plans.append(
            Plan(
                region=snapshot.region,
                node=node,
                revision=1 + max(current.revision if current else 0, seen.get(node, 0)),
                fence=fence,
                reason=_why(current, content),
                engines=content,
            )
        )
    return Proposal(
        fence=fence,
        plans=tuple(plans),
        gone=tuple(sorted(n for n in gone if n in snapshot.plans and n not in wanted)),
        unplaced=placement.unplaced,
    )


def homes_of(plans: Iterable[Plan]) -> dict[str, EngineId]:
    """The home of each adapter that plans list, by name."""
    return {
        adapter.name: engine.engine
        for plan in sorted(plans, key=lambda p: p.node)
        for engine in plan.engines
        for adapter in engine.load
    }


def _as_used(engine: EngineState, snapshot: Snapshot, *, silent: bool) -> EngineState:
    """The engine as if it said itself what silence and operators say of it."""
    if silent:
        return replace(engine, status=EngineStatus.UNREACHABLE)
    if engine.engine in snapshot.draining and engine.status is EngineStatus.READY:
        return replace(engine, status=EngineStatus.DRAINING)
    return engine


def _why(current: Plan | None, content: tuple[EnginePlan, ...]) -> str:
    """One line for people: what the plan adds, drops and retires, in a few names."""
    if current is None:
        return "first plan of this node"
    before, after = _contents(current.engines), _contents(content)
    parts = [
        f"{verb} {_names(names)}"
        for verb, names in (
            ("adds", after["load"] - before["load"]),
            ("drops", before["load"] - after["load"]),
            ("retires", after["unload"] - before["unload"]),
            ("has retired", before["unload"] - after["unload"]),
        )
        if names
    ]
    if parts:
        return "; ".join(parts)
    return "moves adapters between engines" if current.engines != content else "new leader"


def _contents(engines: Iterable[EnginePlan]) -> dict[str, set[str]]:
    return {
        "load": {a.engine_name for e in engines for a in e.load},
        "unload": {name for e in engines for name in e.unload},
    }


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMES_SHOWN_MAX
    shown = ", ".join(ordered[:NAMES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
