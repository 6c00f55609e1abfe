"""Whole schedulers on fakes, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from tests.cache_parts import put
from tests.scheduler_region import REGION, FakeRegion, Reporter, adapter, fake_region, kill

from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.engine import PlanStatus
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.model.reason import Reason
from axiom_common.ports.registry import Entry
from axiom_common.runtime.desired_store import WHATEVER
from axiom_common.testing.bus import FakeBus
from axiom_common.testing.registry import FakeBucket
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import Lease, PlanRecord, decode, encode
from axiom_scheduler.app import SchedulerApp

SETTLED_MS = 3_000.0
TAKEN_OVER_MS = 4_000.0
"""Time to live of the lease, a retry and a placement."""


CORDON = EngineOrder(region=REGION, engine=EngineId("n1.e0"), kind=OrderKind.CORDON)


async def declare(region: FakeRegion, *names: str) -> None:
    for name in names:
        await region.desired.put(adapter(name))


def metric(app: SchedulerApp, name: str, **labels: str) -> float:
    registry: CollectorRegistry = app.metrics.registry
    return registry.get_sample_value(f"axiom_scheduler_{name}", labels) or 0.0


async def test_declared_adapters_get_one_home_each_and_agents_acknowledge() -> None:
    async with fake_region() as region:
        agents = [region.node("n1", engines=2), region.node("n2", engines=2)]
        names = [f"a{i}" for i in range(8)]
        await declare(region, *names)
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        homes = await region.homes()
        assert sorted(homes) == names
        assert set(Counter(homes.values()).values()) == {2}
        assert metric(app, "plans_unacknowledged_count") == 2
        plans = await region.plans()
        for agent in agents:
            agent.acknowledge(plans[agent.state.node])
        await region.run(1_000)
        assert metric(app, "plans_unacknowledged_count") == 0
        assert app.readiness().facts["leads"]


async def test_a_plan_is_written_only_when_its_content_changes() -> None:
    async with fake_region() as region:
        region.node("n1")
        region.node("n2")
        await declare(region, "a", "b")
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        before = await region.plans()
        agent = region.reporters[0]
        agent.state = replace(
            agent.state, engines=tuple(replace(e, running=5) for e in agent.state.engines)
        )
        await region.run(10_000)
        assert await region.plans() == before
        home = (await region.homes())["a"].partition(".")[0]
        await region.desired.put(replace(adapter("a"), rank=16), if_version=WHATEVER)
        await region.run(1_000)
        after = await region.plans()
        changed = {node for node in after if after[node] != before[node]}
        assert changed == {home}
        assert after[home].revision == before[home].revision + 1
        assert after[home].reason == "adds a~2; drops a~1"


async def test_what_is_no_longer_declared_is_retired_where_it_is_registered() -> None:
    async with fake_region() as region:
        agent = region.node("n1")
        await declare(region, "a", "b")
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        (engine,) = agent.state.engines
        registered = tuple(EngineAdapter(name) for name in ("a~1", "b~1", "by-hand"))
        agent.state = replace(agent.state, engines=(replace(engine, registered=registered),))
        await region.run(1_000)
        assert [e.unload for e in (await region.plans())["n1"].engines] == [()]
        await region.desired.delete(AdapterSpec, "b")
        await region.run(1_000)
        (wanted,) = (await region.plans())["n1"].engines
        assert [a.name for a in wanted.load] == ["a"]
        assert wanted.unload == ("b~1",)


def registered(agent: Reporter, *names: str) -> None:
    """Make all engines of a node answer to these names."""
    names_ = tuple(EngineAdapter(name) for name in names)
    engines = tuple(replace(e, registered=names_) for e in agent.state.engines)
    agent.state = replace(agent.state, engines=engines)


async def unloads(region: FakeRegion) -> set[str]:
    return {n for p in (await region.plans()).values() for e in p.engines for n in e.unload}


async def test_what_the_registry_lost_is_declared_again_and_nothing_is_unloaded() -> None:
    async with fake_region() as region:
        agent = region.node("n1")
        await declare(region, "a", "b")
        await region.desired.put(BaseModelSpec(name="llama"))
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        registered(agent, "a~1", "b~1")
        await region.run(1_000)
        await region.desired.put(CORDON)
        await region.run(1_000)
        before, (plan,) = await region.desired.all(AdapterSpec), (await region.plans()).values()
        region.registry.wipe()
        assert await region.plans() == {}
        await region.run(TAKEN_OVER_MS)
        assert [s.value for s in await region.desired.all(AdapterSpec)] == [s.value for s in before]
        assert len(await region.desired.all(BaseModelSpec)) == 1
        assert [s.value for s in await region.desired.all(EngineOrder)] == [CORDON]
        (after,) = (await region.plans()).values()
        assert after.engines == plan.engines
        assert after.fence > plan.fence
        assert app.readiness().degraded == ()


async def test_a_scheduler_that_finds_nothing_declared_unloads_nothing() -> None:
    """Started after the registry's store was lost: nobody ever withdrew what engines still hold."""
    async with fake_region() as region:
        agent = region.node("n1")
        registered(agent, "a~1", "b~2")
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        assert "n1" in await region.plans()
        assert await unloads(region) == set()
        await declare(region, "b")
        await region.desired.delete(AdapterSpec, "b")
        await region.run(1_000)
        assert await unloads(region) == {"a~1"}


async def test_nothing_is_planned_before_all_that_is_declared_was_told() -> None:
    async with fake_region() as region:
        agent = region.node("n1")
        registered(agent, "a~1", "b~1")
        await declare(region, "a", "b")
        bucket = await region.registry.bucket(keys.DESIRED_BUCKET)
        told = asyncio.Event()

        async def slowly() -> AsyncIterator[Entry | None]:
            number = 0
            async for entry in FakeBucket.watch(bucket):
                number += 1
                if number == 2:
                    await told.wait()
                yield entry

        bucket.watch = slowly  # type: ignore[method-assign]
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        assert app.readiness().facts["leads"]
        assert (app.readiness().ready, await region.plans()) == (False, {})
        told.set()
        await region.run(1_000)
        assert sorted(await region.homes()) == ["a", "b"]


async def test_of_two_schedulers_exactly_one_writes() -> None:
    async with fake_region() as region:
        region.node("n1")
        await declare(region, "a")
        apps = [await region.scheduler("s1"), await region.scheduler("s2")]
        await region.run(10_000)
        assert sorted(metric(app, "plans_written_total") for app in apps) == [0, 1]
        assert [app.readiness().facts["leads"] for app in apps].count(True) == 1
        assert sum(metric(app, "leaders_count") for app in apps) == 1


async def test_when_the_leader_dies_the_other_takes_over_with_a_higher_fence() -> None:
    async with fake_region() as region:
        region.node("n1")
        region.node("n2")
        await declare(region, *(f"a{i}" for i in range(6)))
        first = await region.scheduler("s1")
        await region.run(SETTLED_MS)
        second = await region.scheduler("s2")
        await region.run(SETTLED_MS)
        before, homes = await region.plans(), await region.homes()
        kill(first)
        await region.run(TAKEN_OVER_MS)
        after = await region.plans()
        assert second.readiness().facts["leads"]
        assert await region.homes() == homes
        for node, plan in after.items():
            assert plan.fence > before[node].fence
            assert plan.revision == before[node].revision + 1
            assert plan.reason == "new leader"


async def test_a_leader_that_stops_gives_the_lease_back() -> None:
    async with fake_region() as region:
        first = await region.scheduler("s1")
        await region.run(1_000)
        second = await region.scheduler("s2")
        await region.run(1_000)
        await first.stop()
        await region.run(500)
        assert second.readiness().facts["leads"]


async def test_the_lease_tells_holder_and_fence() -> None:
    async with fake_region() as region:
        app = await region.scheduler("s1")
        await region.run(2_000)
        bucket = await region.registry.bucket(keys.lease_bucket(REGION))
        entry = await bucket.get(keys.SCHEDULER_LEASE)
        assert entry is not None
        lease = decode(entry.value or b"", Lease)
        assert (lease.holder, lease.fence) == ("s1", app.readiness().facts["fence"])


async def test_without_the_registry_nobody_leads_and_the_last_plan_stands() -> None:
    async with fake_region() as region:
        region.node("n1")
        await declare(region, "a")
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        before = await region.plans()
        region.registry.disconnect()
        await region.run(5_000)
        assert not app.readiness().facts["leads"]
        assert "registry-away" in app.readiness().degraded
        region.registry.reconnect()
        assert await region.plans() == before
        await declare(region, "b")
        await region.run(TAKEN_OVER_MS)
        assert sorted(await region.homes()) == ["a", "b"]
        assert app.readiness().degraded == ()


async def test_a_dead_node_loses_its_adapters_then_its_plan_and_no_other_adapter_moves() -> None:
    async with fake_region() as region:
        region.node("n1")
        region.node("n2")
        lost = region.node("n3")
        await declare(region, *(f"a{i}" for i in range(9)))
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        before = await region.homes()
        lost.quiet = True
        await region.run(7_000)
        after = await region.homes()
        assert sorted(after) == sorted(before)
        moved = {name for name in before if before[name] != after[name]}
        assert moved == {name for name, home in before.items() if home == "n3.e0"}
        assert "n3" in await region.plans()
        await region.run(30_000)
        assert sorted(await region.plans()) == ["n1", "n2"]


async def test_while_the_bus_is_away_no_node_is_forgotten_and_no_plan_deleted() -> None:
    async with fake_region() as region:
        region.node("n1")
        lost = region.node("n2")
        await declare(region, *(f"a{i}" for i in range(6)))
        bus = FakeBus(region.owner, region.hub)
        app = await region.scheduler("s", bus=bus)
        await region.run(SETTLED_MS)
        before = await region.plans()
        bus.disconnect()
        await region.run(40_000)
        assert app.readiness().facts["leads"]
        assert app.readiness().degraded == ("nats-away", "liveness-frozen")
        assert app.readiness().facts["nodes"] == 2
        lost.quiet = True
        await bus.reconnect()
        await region.run(4_000)
        assert await region.plans() == before
        assert app.readiness().degraded == ()
        await region.run(40_000)
        assert sorted(await region.plans()) == ["n1"]


async def test_a_scheduler_that_starts_while_the_bus_is_away_takes_no_node_for_lost() -> None:
    async with fake_region() as region:
        region.node("n1")
        await declare(region, "a", "b")
        first = await region.scheduler("s1")
        await region.run(SETTLED_MS)
        before = await region.homes()
        kill(first)
        bus = FakeBus(region.owner, region.hub)
        bus.disconnect()
        second = await region.scheduler("s2", bus=bus)
        await region.run(60_000)
        assert second.readiness().facts["leads"]
        assert await region.homes() == before
        await bus.reconnect()
        await region.run(SETTLED_MS)
        assert await region.homes() == before


async def test_a_node_that_comes_back_is_planned_again_above_what_it_saw() -> None:
    async with fake_region() as region:
        region.node("n1")
        agent = region.node("n2")
        await declare(region, "a", "b")
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        last = (await region.plans())["n2"]
        agent.acknowledge(replace(last, revision=last.revision + 3))
        await region.run(500)
        agent.quiet = True
        await region.run(40_000)
        assert "n2" not in await region.plans()
        agent.quiet = False
        agent.state = replace(agent.state, incarnation=2, seq=1)
        await region.run(1_000)
        assert (await region.plans())["n2"].revision > last.revision + 3
        assert set((await region.homes()).values()) == {"n1.e0", "n2.e0"}


async def test_when_too_many_nodes_fall_silent_at_once_nothing_moves() -> None:
    async with fake_region() as region:
        for name in ("n1", "n2", "n3", "n4"):
            region.node(name)
        await declare(region, *(f"a{i}" for i in range(8)))
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        before = await region.homes()
        for agent in region.reporters[:3]:
            agent.quiet = True
        await region.run(20_000)
        assert await region.homes() == before
        assert "liveness-frozen" in app.readiness().degraded


async def test_a_new_scheduler_does_not_take_nodes_for_lost_that_it_has_not_heard_yet() -> None:
    async with fake_region() as region:
        region.node("n1")
        late = region.node("n2")
        await declare(region, *(f"a{i}" for i in range(6)))
        first = await region.scheduler("s1")
        await region.run(SETTLED_MS)
        homes = await region.homes()
        await first.stop()
        late.quiet = True
        await region.scheduler("s2")
        await region.run(1_500)
        assert await region.homes() == homes
        late.quiet = False
        await region.run(5_000)
        assert await region.homes() == homes


async def test_the_shadow_cache_makes_a_new_scheduler_know_all_nodes_at_once() -> None:
    async with fake_region() as region:
        region.node("n1")
        silent = region.node("n2")
        await declare(region, *(f"a{i}" for i in range(6)))
        first = await region.scheduler("s1")
        await region.run(SETTLED_MS)
        homes = await region.homes()
        await region.cached(replace(silent.state, seq=silent.state.seq))
        kill(first)
        silent.quiet = True
        region.cache.away = True
        second = await region.scheduler("s2")
        await region.run(1_000)
        assert "redis-away" in second.readiness().degraded
        region.cache.away = False
        await region.run(TAKEN_OVER_MS)
        assert "redis-away" not in second.readiness().degraded
        assert await region.homes() == homes


async def test_plans_of_nodes_that_never_show_up_are_deleted_and_other_regions_left_alone() -> None:
    async with fake_region() as region:
        region.node("n1")
        for key_region, node in ((REGION, "ghost"), ("us", "n9")):
            plan = Plan(region=key_region, node=NodeId(node), revision=4, fence=0, reason="old")
            await region.plan_bucket.put(f"{key_region}.{node}", encode(PlanRecord(plan=plan)))
        await region.scheduler("s")
        await region.run(20_000)
        assert "ghost" in await region.plans()
        await region.run(15_000)
        assert sorted(await region.plans()) == ["n1", "n9"]


async def test_what_does_not_parse_is_counted_and_dropped() -> None:
    async with fake_region() as region:
        agent = region.node("n1")
        await put(region.cache, NodeId("n2"), 1, 1, b"garbage")
        app = await region.scheduler("s")
        for payload in (b"garbage", encode(Lease(holder="s", fence=1))):
            await agent.bus.publish(subjects.node_report(REGION, NodeId("n1")), payload)
        await region.run(1_000)
        assert metric(app, "invalid_messages_total", kind="report") == 2
        assert metric(app, "invalid_messages_total", kind="record") == 1
        assert app.readiness().facts["nodes"] == 1


async def test_a_plan_that_does_not_parse_is_written_over() -> None:
    async with fake_region() as region:
        region.node("n1")
        await declare(region, "a")
        await region.plan_bucket.put(keys.plan_key(REGION, NodeId("n1")), b"garbage")
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        assert await region.homes() == {"a": "n1.e0"}


async def test_why_adapters_have_no_home_and_agents_refuse_is_told() -> None:
    async with fake_region() as region:
        agent = region.node("n1")
        await region.desired.put(adapter("wide", rank=128))
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        assert metric(app, "adapters_unplaced_count", reason="rank-too-large") == 1
        assert app.readiness().facts["unplaced"] == 1
        plan = (await region.plans())["n1"]
        agent.state = replace(
            agent.state,
            plan=PlanStatus(
                revision=plan.revision,
                fence=plan.fence,
                accepted=False,
                reason=Reason.LOWER_FENCE,
            ),
        )
        await region.run(1_000)
        assert metric(app, "plans_refused_count", reason="lower-fence") == 1
        assert metric(app, "plans_unacknowledged_count") == 1


def order(engine: str, kind: OrderKind, region: RegionId = REGION) -> EngineOrder:
    return EngineOrder(region=region, engine=EngineId(engine), kind=kind)


async def test_a_drained_engine_loses_its_homes_a_cordoned_one_keeps_them() -> None:
    async with fake_region() as region:
        for name in ("n1", "n2", "n3"):
            region.node(name)
        names = [f"a{i}" for i in range(6)]
        await declare(region, *names)
        await region.scheduler("s")
        await region.run(SETTLED_MS)
        before = await region.homes()
        assert set(Counter(before.values()).values()) == {2}
        for given in (
            order("n1.e0", OrderKind.CORDON),
            order("n2.e0", OrderKind.DRAIN, RegionId("us")),
        ):
            await region.desired.put(given)
        await region.run(1_000)
        assert await region.homes() == before
        await region.desired.put(order("n1.e0", OrderKind.DRAIN), if_version=WHATEVER)
        await region.run(1_000)
        drained = await region.homes()
        assert sorted(drained) == names
        assert Counter(drained.values()) == {"n2.e0": 3, "n3.e0": 3}
        stayed = {name: home for name, home in before.items() if home != "n1.e0"}
        assert stayed.items() <= drained.items()
        await region.desired.delete(EngineOrder, order("n1.e0", OrderKind.DRAIN).name)
        await region.run(1_000)
        released = await region.homes()
        assert set(Counter(released.values()).values()) == {2}
        moved = [name for name in names if released[name] != drained[name]]
        assert len(moved) == 2


async def test_who_takes_over_knows_the_orders_before_its_first_plan() -> None:
    async with fake_region() as region:
        for name in ("n1", "n2"):
            region.node(name)
        await declare(region, "a", "b", "c", "d")
        await region.desired.put(order("n1.e0", OrderKind.DRAIN))
        first = await region.scheduler("first")
        await region.run(SETTLED_MS)
        plans = await region.plans()
        assert set((await region.homes()).values()) == {"n2.e0"}
        kill(first)
        await region.scheduler("second")
        seen = set()
        for _ in range(int((TAKEN_OVER_MS + SETTLED_MS) / 250)):
            await region.run(250)
            seen |= set((await region.homes()).values())
        assert seen == {"n2.e0"}
        after = await region.plans()
        assert {p.fence for p in after.values()} != {p.fence for p in plans.values()}


async def test_with_every_engine_drained_adapters_have_no_home() -> None:
    async with fake_region() as region:
        region.node("n1")
        await declare(region, "a")
        app = await region.scheduler("s")
        await region.run(SETTLED_MS)
        await region.desired.put(order("n1.e0", OrderKind.DRAIN))
        await region.run(1_000)
        assert await region.homes() == {}
        assert metric(app, "adapters_unplaced_count", reason=Reason.NOT_READY) == 1
