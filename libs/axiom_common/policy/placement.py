"""Placement: which engine is home to each declared adapter, and what that asks of each node.

The rule: an adapter has one home among the engines that can run it (same base model, rank fits,
ready). The home is the engine that ranks highest for it by rendezvous hash and has room; room is
the least bound under which every adapter of that base model fits (the ceiling of the mean, raised
only where few engines take a large rank). What has a home keeps it while the engine lasts and stays
within the bound, so engines that come and go move no more than they must.

Engines that take rank r also take every lower rank: the sets of feasible engines are nested. Going
from the largest rank to the smallest, an engine below the bound therefore always exists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from axiom_common.model.adapter import AdapterSpec, is_managed
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, node_of
from axiom_common.model.plan import EnginePlan
from axiom_common.model.reason import Reason
from axiom_common.policy.rendezvous import rendezvous, stable_hash

LOADS_PER_NODE_MAX = 512
"""Adapters that one node's plan may list: with 1 KiB each it stays well within a bus message."""
UNLOADS_PER_ENGINE_MAX = 64
"""Names that one plan may retire on an engine; the next plan lists the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The home engine of each adapter by name, and why the others have none."""

    homes: Mapping[str, EngineId]
    unplaced: Mapping[str, Reason]


def place(
    adapters: Iterable[AdapterSpec],
    engines: Iterable[EngineState],
    previous: Mapping[str, EngineId],
) -> Placement:
    """Give each adapter a home. `previous` are the homes until now; names not in it are new.

    Pure, and independent of the order of its arguments.
    """
    wanted: dict[str, list[AdapterSpec]] = defaultdict(list)
    for adapter in sorted(adapters, key=lambda a: (-a.rank, a.name)):
        wanted[adapter.base_model].append(adapter)
    offered: dict[str, list[EngineState]] = defaultdict(list)
    for engine in sorted(engines, key=lambda e: e.engine):
        offered[engine.base_model].append(engine)
    homes: dict[str, EngineId] = {}
    unplaced: dict[str, Reason] = {}
    for base_model in sorted(wanted):
        usable = [e for e in offered[base_model] if _takes_adapters(e)]
        rank_max = max((e.limits.max_lora_rank for e in usable), default=0)
        feasible = [a for a in wanted[base_model] if a.rank <= rank_max]
        if feasible:
            homes |= _place_group(feasible, usable, previous)
        if len(feasible) < len(wanted[base_model]):
            reason = _why_none(offered[base_model])
            unplaced |= {a.name: reason for a in wanted[base_model] if a.rank > rank_max}
    return Placement(homes=homes, unplaced=unplaced)


def bound(adapter_ranks: Iterable[int], engine_ranks: Iterable[int]) -> int:
    """The least number of adapters that some engine must take so that all fit somewhere.

    The maximum, over each rank r, of ceil(adapters of rank >= r / engines that take rank r); every
    adapter must fit some engine.
    """
    ranks, limits = sorted(adapter_ranks), sorted(engine_ranks)
    least = 0
    for rank in set(ranks):
        needing = len(ranks) - bisect_left(ranks, rank)
        taking = len(limits) - bisect_left(limits, rank)
        least = max(least, -(-needing // taking))
    return least


def node_plans(
    placement: Placement,
    adapters: Mapping[str, AdapterSpec],
    engines: Iterable[EngineState],
    *,
    revision_floor: int,
) -> dict[NodeId, tuple[EnginePlan, ...]]:
    """What the placement asks of every node that `engines` run on, engines in order of their id.

    `load` lists the adapters at home on an engine, by name, as many as it holds in HBM and host
    RAM. `unload` lists the managed names that it still answers to and that were replaced by a
    higher revision or withdrawn. `revision_floor` is the highest revision ever withdrawn.
    """
    at_home: dict[EngineId, list[AdapterSpec]] = defaultdict(list)
    for name in sorted(placement.homes):
        at_home[placement.homes[name]].append(adapters[name])
    by_node: dict[NodeId, list[EngineState]] = defaultdict(list)
    for engine in sorted(engines, key=lambda e: e.engine):
        by_node[node_of(engine.engine)].append(engine)
    plans: dict[NodeId, tuple[EnginePlan, ...]] = {}
    for node, its_engines in by_node.items():
        share = LOADS_PER_NODE_MAX // len(its_engines)
        plans[node] = tuple(
            EnginePlan(
                engine=e.engine,
                load=tuple(at_home[e.engine][: min(share, capacity(e))]),
                unload=_retired(e, adapters, revision_floor),
            )
            for e in its_engines
        )
    return plans


def capacity(engine: EngineState) -> int:
    """Adapters that an engine can hold in any tier: its host cache contains its HBM slots."""
    return max(engine.limits.hbm_slots, engine.limits.host_slots)


def _takes_adapters(engine: EngineState) -> bool:
    return engine.status is EngineStatus.READY and engine.limits.hbm_slots > 0


def _why_none(engines: Sequence[EngineState]) -> Reason:
    """Why an adapter that no engine of its base model can take has no home."""
    if not engines:
        return Reason.BASE_MISMATCH
    slotted = [e for e in engines if e.limits.hbm_slots > 0]
    if not slotted:
        return Reason.LORA_DISABLED
    ready = any(e.status is EngineStatus.READY for e in slotted)
    return Reason.RANK_TOO_LARGE if ready else Reason.NOT_READY


def _place_group(
    adapters: Sequence[AdapterSpec],
    engines: Sequence[EngineState],
    previous: Mapping[str, EngineId],
) -> dict[str, EngineId]:
    """Homes of the adapters of one base model, given by falling rank; each fits some engine."""
    group = _Group(adapters, engines)
    index = {e.engine: i for i, e in enumerate(engines)}
    stays: dict[str, int] = {}
    for adapter in adapters:
        home = index.get(previous[adapter.name]) if adapter.name in previous else None
        if home is not None and engines[home].limits.max_lora_rank >= adapter.rank:
            stays[adapter.name] = home
            group.held[home] += 1
    homes: dict[str, EngineId] = {}
    for _, ranked in groupby(adapters, key=lambda a: a.rank):
        same_rank = list(ranked)
        leaves = [a for a in same_rank if a.name not in stays]
        # Where the bound has no room for all, those leave that rank the engine lowest.
        keeps = [a for a in same_rank if a.name in stays]
        keeps.sort(key=lambda a: (-int(group.scores(a.name)[stays[a.name]]), a.name))
        for adapter in keeps:
            if group.keep(stays[adapter.name]):
                homes[adapter.name] = engines[stays[adapter.name]].engine
            else:
                leaves.append(adapter)
        for adapter in sorted(leaves, key=lambda a: a.name):
            homes[adapter.name] = engines[group.take(adapter)].engine
    return homes


class _Group:
    """The engines of one base model while their adapters are placed.

    `load` counts adapters placed, `held` those of lower rank that want to stay where they are.
    """

    def __init__(self, adapters: Sequence[AdapterSpec], engines: Sequence[EngineState]) -> None:
        self._rank_max = np.array([e.limits.max_lora_rank for e in engines])
        self._identities = np.array([stable_hash(e.engine) for e in engines], np.uint64)
        self._bound = bound((a.rank for a in adapters), (e.limits.max_lora_rank for e in engines))
        self.load = np.zeros(len(engines), np.int64)
        self.held = np.zeros(len(engines), np.int64)

    def scores(self, name: str) -> npt.NDArray[np.uint64]:
        """How much each engine wants an adapter; the highest wins."""
        return rendezvous(self._identities, stable_hash(name))

    def keep(self, index: int) -> bool:
        """Turn a held place into a taken one, if the bound allows it."""
        self.held[index] -= 1
        if self.load[index] >= self._bound:
            return False
        self.load[index] += 1
        return True

    def take(self, adapter: AdapterSpec) -> int:
        """Take the best engine with room; places held by lower ranks only where none is free."""
        fits = self._rank_max >= adapter.rank
        free = fits & (self.load + self.held < self._bound)
        if not free.any():
            free = fits & (self.load < self._bound)
        allowed = np.flatnonzero(free)
        index = int(allowed[np.argmax(self.scores(adapter.name)[allowed])])
        self.load[index] += 1
        return index


def _retired(
    engine: EngineState, adapters: Mapping[str, AdapterSpec], revision_floor: int
) -> tuple[EngineAdapter, ...]:
    if engine.status not in (EngineStatus.READY, EngineStatus.DRAINING):
        return ()
    retired = []
    for registered in sorted(set(engine.registered)):
        if not is_managed(registered):
            continue
        name, _, revision = registered.rpartition("~")
        declared = adapters.get(name)
        # A name that is not declared was withdrawn only if the floor says so: without a trace of
        # a withdrawal it is the desired state that was lost. A revision above the declared one is
        # news that this view has not seen yet.
        last_retired = revision_floor if declared is None else declared.revision - 1
        if int(revision) <= last_retired:
            retired.append(registered)
    return tuple(retired[:UNLOADS_PER_ENGINE_MAX])
