"""From a snapshot to plans, and the one writer of plans against others who write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.owner import task_owner
from tests.scheduler_region import REGION, adapter, node_state

from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import NodeState, PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.runtime.logging import Log
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.wire import keys
from axiom_common.wire.schemas import PlanRecord, encode
from axiom_scheduler.applier import Applied, Applier
from axiom_scheduler.planner import Proposal, Snapshot, homes_of, propose

N1 = NodeId("n1")
E1 = EngineId("n1.e0")


def snapshot(
    *nodes: NodeState,
    adapters: tuple[AdapterSpec, ...] = (),
    plans: tuple[Plan, ...] = (),
    silent: tuple[str, ...] = (),
    draining: tuple[str, ...] = (),
    revision_floor: int = 4,
) -> Snapshot:
    return Snapshot(
        region=REGION,
        adapters={a.name: a for a in adapters},
        revision_floor=revision_floor,
        nodes=nodes,
        silent=frozenset(NodeId(n) for n in silent),
        draining=frozenset(EngineId(e) for e in draining),
        plans={p.node: p for p in plans},
    )


def plan(
    *load: AdapterSpec, revision: int = 3, fence: int = 5, unload: tuple[str, ...] = ()
) -> Plan:
    wanted = EnginePlan(engine=E1, load=load, unload=tuple(EngineAdapter(name) for name in unload))
    return Plan(
        region=REGION,
        node=N1,
        revision=revision,
        fence=fence,
        reason="before",
        engines=(wanted,) if load or unload else (),
    )


def proposed(before: Snapshot, *, fence: int = 5) -> list[Plan]:
    return list(propose(before, fence=fence, gone=()).plans)


def test_what_stands_and_is_wanted_is_not_written_again() -> None:
    stands = plan(adapter("a"))
    assert proposed(snapshot(node_state("n1"), adapters=(adapter("a"),), plans=(stands,))) == []


def test_a_new_leader_writes_each_plan_once_under_its_fence() -> None:
    stands = plan(adapter("a"))
    before = snapshot(node_state("n1"), adapters=(adapter("a"),), plans=(stands,))
    assert proposed(before, fence=9) == [replace(stands, revision=4, fence=9, reason="new leader")]


@pytest.mark.parametrize(
    ("before", "adapters", "registered", "reason"),
    [
        (plan(), ["a"], [], "adds a~1"),
        (plan(), ["a", "b", "c", "d", "e"], [], "adds a~1, b~1, c~1 and 2 more"),
        (plan(adapter("a"), adapter("b")), ["b"], ["a~1"], "drops a~1; retires a~1"),
        (plan(adapter("a")), ["a"], ["z~4"], "retires z~4"),
        (plan(adapter("a"), unload=("z~4",)), ["a"], [], "has retired z~4"),
    ],
)
def test_a_plan_says_why_it_was_written(
    before: Plan, adapters: list[str], registered: list[str], reason: str
) -> None:
    node = node_state("n1")
    (engine,) = node.engines
    names = tuple(EngineAdapter(name) for name in registered)
    node = replace(node, engines=(replace(engine, registered=names),))
    declared = tuple(adapter(name) for name in adapters)
    (written,) = proposed(snapshot(node, adapters=declared, plans=(before,)))
    assert written.reason == reason
    assert written.revision == before.revision + 1


def test_the_first_plan_of_a_node_goes_on_where_its_agent_was() -> None:
    node = replace(node_state("n1"), plan=PlanStatus(revision=40, fence=1, accepted=True))
    (written,) = proposed(snapshot(node))
    assert (written.revision, written.reason) == (41, "first plan of this node")


def test_a_silent_node_gets_no_adapters_and_keeps_a_plan() -> None:
    nodes = (node_state("n1"), node_state("n2"))
    before = snapshot(*nodes, adapters=(adapter("a"),), plans=(plan(adapter("a")),), silent=("n1",))
    first, second = proposed(before)
    assert (first.node, first.engines) == ("n1", ())
    assert homes_of([second]) == {"a": "n2.e0"}


def test_a_draining_engine_gets_no_adapters_and_still_retires_names() -> None:
    nodes = (node_state("n1"), node_state("n2"))
    (engine,) = nodes[0].engines
    names = (EngineAdapter("a~1"), EngineAdapter("z~4"))
    nodes = (replace(nodes[0], engines=(replace(engine, registered=names),)), nodes[1])
    before = snapshot(
        *nodes, adapters=(adapter("a"),), plans=(plan(adapter("a")),), draining=("n1.e0",)
    )
    first, second = proposed(before)
    assert [(e.load, e.unload) for e in first.engines] == [((), ("z~4",))]
    assert homes_of([second]) == {"a": "n2.e0"}


def test_plans_of_nodes_that_are_gone_are_to_be_deleted() -> None:
    before = snapshot(node_state("n2"), plans=(plan(),))
    gone = [N1, NodeId("unplanned"), NodeId("n2")]
    assert propose(before, fence=5, gone=gone).gone == (N1,)


def proposal(*plans: Plan, gone: tuple[NodeId, ...] = (), fence: int = 5) -> Proposal:
    return Proposal(fence=plans[0].fence if plans else fence, plans=plans, gone=gone, unplaced={})


def always() -> bool:
    return True


@asynccontextmanager
async def appliers() -> AsyncIterator[tuple[FakeRegistry, FakeBucket, Callable[[], Applier]]]:
    async with task_owner() as owner:
        clock = FakeClock()
        registry = FakeRegistry(owner, clock)
        bucket = await registry.bucket(keys.PLAN_BUCKET)
        yield registry, bucket, lambda: Applier(bucket, region=REGION, log=Log("t", clock))


async def test_a_leader_reads_what_it_wrote() -> None:
    async with appliers() as (_, _, new):
        applier = new()
        assert await applier.apply(proposal(plan(adapter("a"))), always) is Applied.DONE
        other = new()
        await other.read()
        assert other.plans == applier.plans == {N1: plan(adapter("a"))}
        assert await other.apply(proposal(gone=(N1,)), always) is Applied.DONE
        await applier.read()
        assert (applier.plans, other.plans) == ({}, {})


async def test_a_former_leader_writes_nothing_once_the_next_has_written() -> None:
    async with appliers() as (_, bucket, new):
        former, leader = new(), new()
        await former.apply(proposal(plan(adapter("a"), fence=5)), always)
        await leader.read()
        taken_over = plan(adapter("a"), revision=4, fence=6)
        await leader.apply(proposal(taken_over), always)
        stands = await bucket.list()
        late = proposal(plan(adapter("b"), revision=4, fence=5))
        assert await former.apply(late, always) is Applied.FENCED
        assert await bucket.list() == stands


async def test_a_former_leader_does_not_delete_a_plan_of_the_next() -> None:
    async with appliers() as (_, bucket, new):
        former, leader = new(), new()
        await former.apply(proposal(plan(fence=5)), always)
        await leader.read()
        await leader.apply(proposal(plan(revision=4, fence=6)), always)
        assert await former.apply(proposal(gone=(N1,)), always) is Applied.FENCED
        assert len(await bucket.list()) == 1


async def test_what_a_higher_fence_wrote_is_not_written_over() -> None:
    async with appliers() as (_, bucket, new):
        await new().apply(proposal(plan(fence=6)), always)
        late = new()
        await late.read()
        assert await late.apply(proposal(plan(revision=4, fence=5)), always) is Applied.FENCED
        assert await late.apply(proposal(gone=(N1,), fence=5), always) is Applied.FENCED
        (entry,) = await bucket.list()
        assert entry.value == encode(PlanRecord(plan=plan(fence=6)))


async def test_a_leader_takes_over_what_a_former_one_wrote_late() -> None:
    """Its first try is a conflict, its next one stands on what it found."""
    async with appliers() as (_, _, new):
        former, leader = new(), new()
        await leader.read()
        await former.apply(proposal(plan(adapter("b"), revision=1, fence=5)), always)
        mine = proposal(plan(adapter("a"), revision=1, fence=6))
        assert await leader.apply(mine, always) is Applied.CONFLICT
        assert leader.plans == {N1: plan(adapter("b"), revision=1, fence=5)}
        again = proposal(plan(adapter("a"), revision=2, fence=6))
        assert await leader.apply(again, always) is Applied.DONE


async def test_who_does_not_lead_any_more_writes_no_further() -> None:
    async with appliers() as (_, bucket, new):
        applier = new()
        answers = iter([True, False])
        two = proposal(plan(), replace(plan(), node=NodeId("n2")), gone=())
        assert await applier.apply(two, lambda: next(answers)) is Applied.LOST
        assert [entry.key for entry in await bucket.list()] == [keys.plan_key(REGION, N1)]


async def test_a_plan_deleted_by_somebody_else_is_a_conflict_and_then_new() -> None:
    async with appliers() as (_, bucket, new):
        applier = new()
        await applier.apply(proposal(plan()), always)
        await bucket.delete(keys.plan_key(REGION, N1))
        assert await applier.apply(proposal(plan(revision=4)), always) is Applied.CONFLICT
        assert await applier.apply(proposal(plan(revision=4)), always) is Applied.DONE


async def test_plans_of_other_regions_and_what_does_not_parse_are_no_plans() -> None:
    async with appliers() as (_, bucket, new):
        await bucket.put("us.n1", encode(PlanRecord(plan=plan())))
        await bucket.put(keys.plan_key(REGION, N1), b"garbage")
        applier = new()
        await applier.read()
        assert applier.plans == {}
        assert await applier.apply(proposal(plan()), always) is Applied.DONE


async def test_a_plan_that_no_message_can_hold_is_not_written() -> None:
    async with appliers() as (_, bucket, new):
        long = tuple(replace(adapter(f"a{i}"), path="/" + "x" * 1000) for i in range(1100))
        applier = new()
        assert await applier.apply(proposal(plan(*long)), always) is Applied.DONE
        assert await bucket.list() == ()


async def test_without_the_registry_an_apply_says_so() -> None:
    async with appliers() as (registry, _, new):
        registry.disconnect()
        with pytest.raises(UnavailableError):
            await new().apply(proposal(plan()), always)
