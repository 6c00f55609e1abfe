"""Plans: which one holds, and what it does to an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import BASE_MODEL, ENGINE, name, names, paths, spec

from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import PlanStatus
from axiom_common.model.ids import EngineAdapter, NodeId, RegionId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import AdapterLife
from axiom_node_agent.engine_view import EngineView
from axiom_node_agent.reconciler import DRAIN_MS, PlanBook, Steps, judged, next_steps

NOW_MS = 10_000.0
IDLE = EngineView(base_model=BASE_MODEL, hbm_slots=2, max_lora_rank=16, names_max=8)


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
        (4, 4, None),
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


def test_the_fence_outlives_a_plan_that_was_withdrawn() -> None:
    withdrawn = PlanBook(fence_max=judged(PlanBook(), plan(5, 9)).fence_max)
    assert judged(withdrawn, plan(6, 8)).status == PlanStatus(
        revision=6, fence=8, accepted=False, reason=Reason.LOWER_FENCE
    )


def steps(
    wanted: EnginePlan,
    seen: EngineView,
    *,
    spared: frozenset[EngineAdapter] = frozenset(),
    may_unload: bool = True,
) -> Steps:
    return next_steps(wanted, seen, NOW_MS, spared=spared, may_unload=may_unload)


NOTHING = EnginePlan(engine=ENGINE)
LOADS = EnginePlan(engine=ENGINE, load=(spec("a"), spec("b"), spec("c")))
UNLOADS = EnginePlan(engine=ENGINE, unload=(name("x"), EngineAdapter("by-hand")))


@pytest.mark.parametrize(
    ("seen", "loaded"),
    [
        (view(), "a"),
        (view(registered=paths("a"), held=names("a"), slots_taken=1), "b"),
        (view(on_their_way=names("a")), "b"),
        (view(on_their_way=names("x", "y")), None),
        (view(slots_taken=2), None),
        (view(registered=paths("a"), slots_taken=1), "b"),
        (view(registered=paths("a", "b"), held=names("a"), slots_taken=1), None),
        (view(registered=paths("y"), busy=names("y"), held=names(), hbm_slots=1), None),
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
    found = steps(LOADS, seen)
    assert (found.load.name if found.load else None) == loaded
    assert found.unload is None


DRAINING = Steps(draining=(name("x"),))
UNLOAD = Steps(unload=name("x"), draining=(name("x"),))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view(), Steps()),
        (view(registered=paths("x")), DRAINING),
        (view(registered=paths("x"), lives=drained("x")), UNLOAD),
        (view(registered=paths("x"), lives=drained("x", for_ms=DRAIN_MS - 1)), DRAINING),
        (
            view(
                registered=paths("x"),
                held=names("x"),
                lives={name("x"): AdapterLife(state=AdapterState.RESIDENT)},
            ),
            DRAINING,
        ),
        (view(registered=paths("x"), lives=drained("x"), busy=names("x")), DRAINING),
        (view(registered=paths("x"), on_their_way=names("x")), Steps()),
        (view(registered={EngineAdapter("by-hand"): ""}), Steps()),
        (view(ready=False, registered=paths("x"), lives=drained("x")), Steps()),
    ],
    ids=[
        "it is gone",
        "registered and held nowhere: gateways hear first",
        "drained",
        "gateways may not have heard yet",
        "held: gateways hear first",
        "a request is in flight",
        "just being loaded",
        "people's own names stay",
        "not ready",
    ],
)
def test_what_a_plan_unloads(seen: EngineView, expected: Steps) -> None:
    assert steps(UNLOADS, seen) == expected


def test_what_may_not_be_unloaded_now_drains_and_what_is_spared_does_not() -> None:
    seen = view(registered=paths("x"), lives=drained("x"))
    assert steps(UNLOADS, seen, may_unload=False) == DRAINING
    assert steps(UNLOADS, seen, spared=names("x")) == Steps()


def test_unloads_come_before_loads_and_what_is_wanted_is_not_unloaded() -> None:
    both = EnginePlan(engine=ENGINE, load=(spec("a"),), unload=(name("a"), name("x")))
    seen = view(registered=paths("a", "x"), lives=drained("a", "x"))
    assert steps(both, seen) == UNLOAD


def test_a_wanted_name_that_stands_for_other_weights_goes_first() -> None:
    seen = view(registered={name("a"): "/elsewhere"}, lives=drained("a"))
    assert steps(LOADS, seen) == Steps(unload=name("a"), draining=(name("a"),))
    same = view(registered={name("a"): spec("a").path + "/", name("b"): "", name("c"): ""})
    assert steps(LOADS, same) == Steps()


@pytest.mark.parametrize(
    ("changes", "leaving"),
    [
        ({"names_max": 5}, ""),
        ({"names_max": 4}, "a"),
        ({"names_max": 2}, "abc"),
        ({"names_max": 3, "copied": names("a")}, "bc"),
        ({"names_max": 3, "busy": names("a", "b")}, "cd"),
        ({"names_max": 3, "on_their_way": names("b")}, "ac"),
        ({"names_max": 3, "hbm_slots": 0}, ""),
    ],
    ids=["fits", "one", "three", "not a copied one", "not used ones", "nor loading", "no slots"],
)
def test_of_too_many_names_the_oldest_idle_ones_go(
    changes: dict[str, object], leaving: str
) -> None:
    seen = view(registered={EngineAdapter("by-hand"): "", **paths(*"abcd")}, **changes)
    assert steps(NOTHING, seen).draining == tuple(name(text) for text in leaving)


def test_what_the_plan_wants_is_never_one_name_too_many() -> None:
    seen = view(registered=paths(*"abcx"), names_max=3)
    assert steps(LOADS, seen).draining == (name("x"),)


def test_a_node_without_a_plan_wants_nothing() -> None:
    assert PlanBook().engine(ENGINE) == NOTHING
    assert steps(NOTHING, view(registered=paths("x"), names_max=1)) == Steps()
