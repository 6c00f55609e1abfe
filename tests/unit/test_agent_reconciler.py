"""Plans: which one holds, and what it does to an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import BASE_MODEL, ENGINE, name, names, spec

from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import PlanStatus
from axiom_common.model.ids import EngineAdapter, NodeId, RegionId
from axiom_common.model.placement import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import AdapterLife
from axiom_node_agent.engine_view import EngineView
from axiom_node_agent.reconciler import DRAIN_MS, PlanBook, Steps, judged, next_steps

NOW_MS = 10_000.0
IDLE = EngineView(base_model=BASE_MODEL, hbm_slots=2, max_lora_rank=16)


def plan(revision: int, fence: int) -> Plan:
    return Plan(
        region=RegionId("r"), node=NodeId("n1"), revision=revision, fence=fence, reason="test"
    )


def view(**changes: object) -> EngineView:
    return replace(IDLE, **changes)  # type: ignore[arg-type]


def drained(*texts: str, for_ms: float = DRAIN_MS) -> dict[EngineAdapter, AdapterLife]:
    life = AdapterLife(state=AdapterState.DRAINING, since_ms=NOW_MS - for_ms)
    return {name(text): life for text in texts}


@pytest.mark.parametrize(
    ("revision", "fence", "reason"),
    [
        (5, 3, None),
        (6, 3, None),
        (6, 4, None),
        (5, 4, None),
        (4, 3, Reason.LOWER_REVISION),
        (4, 4, Reason.LOWER_REVISION),
        (6, 2, Reason.LOWER_FENCE),
        (4, 2, Reason.LOWER_FENCE),
    ],
)
def test_which_plan_holds(revision: int, fence: int, reason: Reason | None) -> None:
    held = judged(PlanBook(), plan(5, 3))
    assert held.plan == plan(5, 3)
    seen = judged(held, plan(revision, fence))
    assert seen.status == PlanStatus(
        revision=revision, fence=fence, accepted=reason is None, reason=reason
    )
    assert seen.plan == (plan(revision, fence) if reason is None else held.plan)


def test_the_fence_is_remembered_from_refused_plans_as_well() -> None:
    refused = judged(judged(PlanBook(), plan(5, 3)), plan(4, 9))
    assert refused.fence_max == 9
    assert judged(refused, plan(6, 8)).status == PlanStatus(
        revision=6, fence=8, accepted=False, reason=Reason.LOWER_FENCE
    )


LOADS = EnginePlan(engine=ENGINE, load=(spec("a"), spec("b"), spec("c")))
UNLOADS = EnginePlan(engine=ENGINE, unload=(name("x"), EngineAdapter("by-hand")))


@pytest.mark.parametrize(
    ("seen", "loaded"),
    [
        (view(), "a"),
        (view(registered=names("a"), held=names("a"), slots_taken=1), "b"),
        (view(on_their_way=names("a")), "b"),
        (view(on_their_way=names("x", "y")), None),
        (view(slots_taken=2), None),
        (view(registered=names("a"), slots_taken=1), "b"),
        (view(registered=names("a", "b"), held=names("a"), slots_taken=1), None),
        (view(registered=names("y"), busy=names("y"), held=names(), hbm_slots=1), None),
        (view(ready=False), None),
        (view(max_lora_rank=4), None),
        (
            view(
                lives={
                    name("a"): AdapterLife(
                        state=AdapterState.FAILED, failures=1, retry_at_ms=NOW_MS + 1
                    )
                }
            ),
            "b",
        ),
    ],
    ids=[
        "the first of the list",
        "the next one when that is there",
        "not what is on its way",
        "not more than there are slots for",
        "nothing is evicted for a plan",
        "a registered name is loaded by its first request",
        "the third of two slots waits for demand",
        "not into a slot that a request on its way needs",
        "not ready",
        "rank too large",
        "not what failed just now",
    ],
)
def test_what_a_plan_loads(seen: EngineView, loaded: str | None) -> None:
    steps = next_steps(LOADS, seen, NOW_MS)
    assert (steps.load.name if steps.load else None) == loaded
    assert steps.unload is None


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        (view(), Steps()),
        (view(registered=names("x")), Steps(unload=name("x"), draining=(name("x"),))),
        (
            view(registered=names("x"), lives=drained("x")),
            Steps(unload=name("x"), draining=(name("x"),)),
        ),
        (
            view(registered=names("x"), lives=drained("x", for_ms=DRAIN_MS - 1)),
            Steps(draining=(name("x"),)),
        ),
        (
            view(
                registered=names("x"),
                held=names("x"),
                lives={name("x"): AdapterLife(state=AdapterState.RESIDENT)},
            ),
            Steps(draining=(name("x"),)),
        ),
        (
            view(registered=names("x"), lives=drained("x"), busy=names("x")),
            Steps(draining=(name("x"),)),
        ),
        (view(registered=names("x"), on_their_way=names("x")), Steps()),
        (view(registered=frozenset({EngineAdapter("by-hand")})), Steps()),
    ],
    ids=[
        "it is gone",
        "registered and held nowhere: nobody uses it unasked",
        "drained",
        "gateways may not have heard yet",
        "held: gateways hear first",
        "a request is in flight",
        "just being loaded",
        "people's own names stay",
    ],
)
def test_what_a_plan_unloads(seen: EngineView, steps: Steps) -> None:
    assert next_steps(UNLOADS, seen, NOW_MS) == steps


def test_unloads_come_before_loads_and_what_is_wanted_is_not_unloaded() -> None:
    both = EnginePlan(engine=ENGINE, load=(spec("a"),), unload=(name("a"), name("x")))
    seen = view(registered=names("a", "x"), lives=drained("a", "x"))
    assert next_steps(both, seen, NOW_MS) == Steps(unload=name("x"), draining=(name("x"),))


def test_no_plan_does_nothing() -> None:
    assert next_steps(None, view(registered=names("x")), NOW_MS) == Steps()
    assert PlanBook().engine(ENGINE) is None
