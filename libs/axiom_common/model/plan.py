"""Plans: what the scheduler wants on one node."""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """Wanted on one engine: `load` in order of importance, `unload` names that must go.

    The first `hbm_slots` of `load` are to be made resident ahead of demand. The rest are at home
    here too and are loaded when they are asked for: loading them ahead would evict the first.
    An adapter in neither list is left as it is: an on-demand load is not undone by the plan.
    """

    engine: EngineId
    load: tuple[AdapterSpec, ...] = ()
    unload: tuple[EngineAdapter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One node's plan. `fence` is the leader's term: agents refuse one below the highest seen."""

    region: RegionId
    node: NodeId
    revision: int
    fence: int
    reason: str
    engines: tuple[EnginePlan, ...] = ()
