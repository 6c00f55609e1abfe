"""Placement, case by case."""

from __future__ import annotations

import pytest

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.placement import (
    LOADS_PER_NODE_MAX,
    UNLOADS_PER_ENGINE_MAX,
    bound,
    node_plans,
    place,
)


def adapter(name: str, *, rank: int = 8, base: str = "base", revision: int = 1) -> AdapterSpec:
    return AdapterSpec(name=name, base_model=base, revision=revision, path="/p", rank=rank)


def engine(
    name: str,
    *,
    base: str = "base",
    status: EngineStatus = EngineStatus.READY,
    slots: int = 4,
    host: int = 8,
    rank: int = 64,
    registered: tuple[str, ...] = (),
) -> EngineState:
    return EngineState(
        engine=EngineId(name),
        url="http://h",
        base_model=base,
        served_name=base,
        status=status,
        limits=EngineLimits(hbm_slots=slots, host_slots=host, max_lora_rank=rank),
        registered=tuple(EngineAdapter(r) for r in registered),
    )


@pytest.mark.parametrize(
    ("engines", "reason"),
    [
        ([], Reason.BASE_MISMATCH),
        ([engine("n.a", base="other")], Reason.BASE_MISMATCH),
        ([engine("n.a", slots=0)], Reason.LORA_DISABLED),
        ([engine("n.a", status=EngineStatus.STARTING)], Reason.NOT_READY),
        ([engine("n.a", status=EngineStatus.DRAINING)], Reason.NOT_READY),
        (
            [engine("n.a", status=EngineStatus.UNREACHABLE), engine("n.b", slots=0)],
            Reason.NOT_READY,
        ),
        ([engine("n.a", rank=4)], Reason.RANK_TOO_LARGE),
        (
            [engine("n.a", rank=4), engine("n.b", status=EngineStatus.STARTING)],
            Reason.RANK_TOO_LARGE,
        ),
    ],
)
def test_an_adapter_that_no_engine_can_take_has_a_reason(
    engines: list[EngineState], reason: Reason
) -> None:
    placement = place([adapter("x")], engines, {})
    assert placement.homes == {}
    assert placement.unplaced == {"x": reason}


def test_a_home_fits_in_base_model_rank_and_readiness() -> None:
    engines = [
        engine("n.small", rank=8),
        engine("n.large", rank=64),
        engine("n.other", base="other"),
        engine("n.draining", status=EngineStatus.DRAINING),
    ]
    adapters = [adapter("wide", rank=64), adapter("elsewhere", base="other")]
    assert place(adapters, engines, {}).homes == {"wide": "n.large", "elsewhere": "n.other"}


@pytest.mark.parametrize(
    ("adapter_ranks", "engine_ranks", "least"),
    [
        ([], [8], 0),
        ([8] * 24, [64] * 4, 6),
        ([8] * 25, [64] * 4, 7),
        ([64] * 6 + [8], [64, 8, 8], 6),
        ([64, 8, 8, 8], [64, 8], 2),
    ],
)
def test_the_bound_is_the_mean_unless_few_engines_take_a_rank(
    adapter_ranks: list[int], engine_ranks: list[int], least: int
) -> None:
    assert bound(adapter_ranks, engine_ranks) == least


def test_a_rank_that_fits_one_engine_only_displaces_who_can_go_elsewhere() -> None:
    engines = [engine("n.large", rank=64), engine("n.small", rank=8)]
    adapters = [adapter("a"), adapter("b"), adapter("wide1", rank=64), adapter("wide2", rank=64)]
    previous = {"a": EngineId("n.large"), "b": EngineId("n.large")}
    assert place(adapters, engines, previous).homes == {
        "wide1": "n.large",
        "wide2": "n.large",
        "a": "n.small",
        "b": "n.small",
    }


def test_a_new_revision_stays_at_home() -> None:
    engines = [engine(f"n.{e}") for e in "abcd"]
    before = place([adapter("x")], engines, {}).homes
    for home in ("n.a", "n.b", "n.c", "n.d"):
        after = place([adapter("x", revision=2)], engines, {"x": EngineId(home)}).homes
        assert after == {"x": home}
    assert before["x"] in {"n.a", "n.b", "n.c", "n.d"}


def test_a_plan_lists_what_is_at_home_by_name_and_what_fits_only() -> None:
    engines = [engine("n1.a", slots=1, host=3), engine("n2.a", slots=4, host=0)]
    adapters = {a.name: a for a in (adapter(f"x{i}") for i in range(10))}
    placement = place(adapters.values(), engines, {})
    plans = node_plans(placement, adapters, engines, revision_floor=0)
    assert sorted(plans) == ["n1", "n2"]
    for node, capacity in (("n1", 3), ("n2", 4)):
        (plan,) = plans[node]
        at_home = sorted(name for name, home in placement.homes.items() if home == plan.engine)
        assert len(at_home) == 5
        assert [a.name for a in plan.load] == at_home[:capacity]
        assert plan.unload == ()


def test_a_plan_is_bounded_whatever_the_engines_say() -> None:
    old = tuple(f"old{i:04}~1" for i in range(UNLOADS_PER_ENGINE_MAX + 5))
    engines = [engine(f"n.{i}", host=100_000, registered=old) for i in range(3)]
    adapters = {a.name: a for a in (adapter(f"x{i}") for i in range(3000))}
    placement = place(adapters.values(), engines, {})
    (plans,) = node_plans(placement, adapters, engines, revision_floor=1).values()
    assert sum(len(e.load) for e in plans) <= LOADS_PER_NODE_MAX
    assert all(e.load for e in plans)
    assert [e.unload for e in plans] == [old[:UNLOADS_PER_ENGINE_MAX]] * 3


@pytest.mark.parametrize(
    ("registered", "retired"),
    [
        ("x~1", True),
        ("x~2", False),
        ("x~3", False),
        ("gone~7", True),
        ("unheard-of~8", False),
        ("x~" + "1" * 5000, False),
        ("by-hand", False),
        ("by~hand", False),
        ("x~", False),
    ],
)
def test_managed_names_that_were_replaced_or_withdrawn_are_retired(
    registered: str, retired: bool
) -> None:
    engines = [engine("n.a", registered=(registered,))]
    adapters = {"x": adapter("x", revision=2)}
    placement = place(adapters.values(), engines, {})
    ((plan,),) = node_plans(placement, adapters, engines, revision_floor=7).values()
    assert plan.unload == ((registered,) if retired else ())


@pytest.mark.parametrize("status", list(EngineStatus))
def test_only_an_engine_that_answers_is_told_to_unload(status: EngineStatus) -> None:
    engines = [engine("n.a", status=status, registered=("gone~1",))]
    ((plan,),) = node_plans(place([], engines, {}), {}, engines, revision_floor=1).values()
    assert bool(plan.unload) == (status in (EngineStatus.READY, EngineStatus.DRAINING))
