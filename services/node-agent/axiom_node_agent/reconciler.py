"""Plans: which one holds, and what it asks of an engine right now. Pure.

A plan makes what is idle ready for what is expected; it never takes anything from a request. So it
loads into free slots only (on a stock engine a load activates at once and would evict), and it
unloads only names that Axiom gave, when no request is in flight, after gateways had time to hear
that the adapter is draining.
"""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.model.adapter import AdapterSpec, AdapterState, is_managed
from axiom_common.model.engine import PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.placement import EnginePlan, Plan
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

    def engine(self, engine: EngineId) -> EnginePlan | None:
        """What the plan that holds wants of one engine."""
        engines = self.plan.engines if self.plan else ()
        return next((wanted for wanted in engines if wanted.engine == engine), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What to do on an engine now: at most one load and one unload; `draining` are to go later."""

    load: AdapterSpec | None = None
    unload: EngineAdapter | None = None
    draining: tuple[EngineAdapter, ...] = ()


def judged(book: PlanBook, plan: Plan) -> PlanBook:
    """After a plan was seen: it holds from now on, or is refused and the one before stays.

    | fence | revision | |
    | --- | --- | --- |
    | below the highest seen | any | refused: lower-fence |
    | the highest, or above it | below the plan's that holds | refused: lower-revision |
    | the highest, or above it | same or above | holds |
    """
    reason = None
    if plan.fence < book.fence_max:
        reason = Reason.LOWER_FENCE
    elif book.plan is not None and plan.revision < book.plan.revision:
        reason = Reason.LOWER_REVISION
    status = PlanStatus(
        revision=plan.revision, fence=plan.fence, accepted=reason is None, reason=reason
    )
    return PlanBook(
        plan=plan if reason is None else book.plan,
        status=status,
        fence_max=max(book.fence_max, plan.fence),
    )


def next_steps(wanted: EnginePlan | None, view: EngineView, now_ms: float) -> Steps:
    """What brings the engine nearer to the plan without touching a request. Unloads come first:
    they make room."""
    if wanted is None or not view.ready:
        return Steps()
    unload, draining = _unload(wanted, view, now_ms)
    return Steps(
        unload=unload,
        draining=draining,
        load=_load(wanted, view, now_ms) if unload is None else None,
    )


def _unload(
    wanted: EnginePlan, view: EngineView, now_ms: float
) -> tuple[EngineAdapter | None, tuple[EngineAdapter, ...]]:
    kept = {spec.engine_name for spec in wanted.load}
    leaving = [
        name
        for name in wanted.unload
        if is_managed(name)
        and name in view.registered
        and name not in kept
        and name not in view.on_their_way
    ]
    for name in leaving:
        if name not in view.busy and _is_drained(name, view, now_ms):
            return name, tuple(leaving)
    return None, tuple(leaving)


def _is_drained(name: EngineAdapter, view: EngineView, now_ms: float) -> bool:
    life = view.life(name)
    if life.state is AdapterState.DRAINING:
        return now_ms - life.since_ms >= DRAIN_MS
    # Gateways ask before they use what is not held, so there is nobody to wait for.
    return life.state is AdapterState.ABSENT


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
