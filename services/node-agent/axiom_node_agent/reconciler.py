"""Plans: which one holds, and what is to be done on an engine right now. Pure.

A plan makes what is idle ready for what is expected; it never takes anything from a request. So it
loads into free slots only: on a stock engine a load activates at once and would evict.

Three kinds of names are unloaded: those that the plan retires, those that stand for other weights
than the plan's, and the oldest of those without a copy where the engine answers to too many names.
All of them must be of Axiom's own form, and go in two steps: first they are draining, for gateways
to hear and to ask before they send more; then, with no request in flight, they are unloaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from axiom_common.model.adapter import AdapterSpec, AdapterState, is_managed
from axiom_common.model.engine import PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_node_agent.admission import unfit
from axiom_node_agent.engine_view import EngineView

DRAIN_MS = 300.0
"""From the report that says `draining` to the unload: requests that were on their way by then show
in the gateways' vectors, which come each 50 ms."""


@dataclass(frozen=True, slots=True)
class PlanBook:
    """The plan that holds, what to tell of the last one seen, and the highest fence of all."""

    plan: Plan | None = None
    status: PlanStatus | None = None
    fence_max: int = 0

    def engine(self, engine: EngineId) -> EnginePlan:
        """What the plan that holds wants of one engine; without one, nothing."""
        engines = self.plan.engines if self.plan else ()
        nothing = EnginePlan(engine=engine)
        return next((wanted for wanted in engines if wanted.engine == engine), nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What to do on an engine now: at most one load or one unload; `draining` names are to go."""

    load: AdapterSpec | None = None
    unload: EngineAdapter | None = None
    draining: tuple[EngineAdapter, ...] = ()


def judged(book: PlanBook, plan: Plan) -> PlanBook:
    """After a plan was seen: it holds from now on, or is refused and the one before stays.

    | fence | revision | |
    | --- | --- | --- |
    | below the highest seen | any | refused: lower-fence |
    | that of the plan that holds | below its revision | refused: lower-revision |
    | that of the plan that holds | same or above | holds |
    | above that of the plan that holds | any: a new leader may have lost count | holds |
    """
    reason = None
    if plan.fence < book.fence_max:
        reason = Reason.LOWER_FENCE
    elif book.plan is not None and _order(plan) < _order(book.plan):
        reason = Reason.LOWER_REVISION
    status = PlanStatus(
        revision=plan.revision, fence=plan.fence, accepted=reason is None, reason=reason
    )
    return PlanBook(
        plan=plan if reason is None else book.plan,
        status=status,
        fence_max=max(book.fence_max, plan.fence),
    )


def _order(plan: Plan) -> tuple[int, int]:
    return plan.fence, plan.revision


def next_steps(
    wanted: EnginePlan,
    view: EngineView,
    now_ms: float,
    *,
    spared: AbstractSet[EngineAdapter],
    may_unload: bool,
) -> Steps:
    """What brings the engine nearer to the plan without touching a request. Unloads come first:
    they make room.

    `spared` are names that the plan may not unload any more: it did so once, or a gateway asked for
    them since. `may_unload` is False while requests may be in flight that nobody told of.
    """
    if not view.ready:
        return Steps()
    leaving = (*_retired(wanted, view, spared), *_superfluous(wanted, view))
    draining = tuple(dict.fromkeys(leaving))
    for name in draining if may_unload else ():
        if name not in view.busy and _is_drained(name, view, now_ms):
            return Steps(unload=name, draining=draining)
    return Steps(load=_load(wanted, view, now_ms), draining=draining)


def _retired(
    wanted: EnginePlan, view: EngineView, spared: AbstractSet[EngineAdapter]
) -> list[EngineAdapter]:
    kept = {spec.engine_name for spec in wanted.load if not view.has_other_weights(spec)}
    other = (spec.engine_name for spec in wanted.load if view.has_other_weights(spec))
    return [
        name
        for name in dict.fromkeys((*wanted.unload, *other))
        if is_managed(name)
        and name in view.registered
        and name not in kept | spared | view.on_their_way
    ]


def _superfluous(wanted: EnginePlan, view: EngineView) -> list[EngineAdapter]:
    surplus = len(view.registered) - view.names_max
    if surplus <= 0 or view.hbm_slots == 0:
        return []
    kept = {spec.engine_name for spec in wanted.load}
    used = kept | view.copied | view.busy | view.on_their_way
    idle = (name for name in view.registered if is_managed(name) and name not in used)
    return list(itertools.islice(idle, surplus))


def _is_drained(name: EngineAdapter, view: EngineView, now_ms: float) -> bool:
    life = view.life(name)
    return life.state is AdapterState.DRAINING and now_ms - life.since_ms >= DRAIN_MS


def _load(wanted: EnginePlan, view: EngineView, now_ms: float) -> AdapterSpec | None:
    if view.free_slots <= 0:
        return None
    for spec in wanted.load[: view.hbm_slots]:
        name = spec.engine_name
        if name in view.registered or name in view.on_their_way:
            continue
        if view.life(name).retry_in_ms(now_ms) > 0 or unfit(view, spec) is not None:
            continue
        if view.idle_slots(name) <= 0:
            continue
        return spec
    return None
