"""Plans and settings over the admin API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from tests.admin_parts import REGION, VIEW, Api, admin_api, problem
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import WireError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import NodeState, PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import SCHEDULER_AWAY
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeRegistry
from axiom_common.wire import keys
from axiom_common.wire.schemas import Lease, PlanRecord, encode
from axiom_gateway.admin import AdminParts
from axiom_gateway.admin_config import add_config, shown_settings
from axiom_gateway.admin_plan import PlanDesk, add_plan
from axiom_gateway.plan_feed import AWAY_MS, PlanFeed
from axiom_gateway.settings import GatewaySettings

SQL = AdapterSpec(name="sql", base_model="llama", revision=3, path="/p", rank=16)
NODES = tuple(
    NodeState(
        region=REGION,
        node=NodeId(name),
        incarnation=1,
        seq=1,
        engines=(),
        plan=PlanStatus(revision=revision, fence=2, accepted=True),
    )
    for name, revision in (("n1", 7), ("n2", 6), ("n3", 7), ("planless", 0))
)


def plan_of(node: str) -> Plan:
    return Plan(
        region=REGION,
        node=NodeId(node),
        revision=7,
        fence=2,
        reason="an adapter was declared",
        engines=(
            EnginePlan(engine=EngineId(f"{node}.a"), load=(SQL,), unload=(EngineAdapter("old~1"),)),
        ),
    )


@dataclass(frozen=True)
class Planned:
    """The admin API over a plan feed; `leases` holds the scheduler's."""

    api: Api
    feed: PlanFeed
    plans: Bucket
    leases: Bucket
    bus: FakeBus


@asynccontextmanager
async def planned(clock: Clock | None = None) -> AsyncIterator[Planned]:
    async with task_owner() as owner:
        registry = FakeRegistry(owner, SystemClock())
        plans = await registry.bucket(keys.PLAN_BUCKET)
        leases = await registry.bucket(keys.lease_bucket(REGION))
        bus = FakeBus(owner, FakeHub())
        clock = clock or SystemClock()
        feed = await PlanFeed.of(registry, bus, clock, Log("test", clock), REGION)
        await leases.put(keys.SCHEDULER_LEASE, encode(Lease(holder="s", fence=1)))
        for node in ("n1", "n2", "n3"):
            record = encode(PlanRecord(plan=plan_of(node)))
            await plans.put(keys.plan_key(REGION, NodeId(node)), record)

        def more(parts: AdminParts) -> AdminParts:
            desk = PlanDesk(feed=feed, nodes=parts.watches.nodes)
            settings = GatewaySettings(redis_url="redis://user:hunter2@cache:6379", gateway="gw")
            routes = (partial(add_plan, desk=desk), partial(add_config, settings=settings))
            return replace(parts, more=routes)

        for name, job in feed.jobs().items():
            owner.create_task(job, name=name)
        await eventually(lambda: feed.plan(NodeId("n3")) is not None and not feed.staleness_ms())
        async with admin_api(lambda: VIEW, *NODES, registry=registry, more=more) as api:
            yield Planned(api, feed, plans, leases, bus)


async def test_a_plan_tells_homes_and_what_the_agent_made_of_it() -> None:
    async with planned() as at:
        api = at.api
        got = (await api.client.get("/plan/n2")).json()
        assert got["engines"] == [{"engine": "n2.a", "homes": ["sql~3"], "retire": ["old~1"]}]
        assert (got["revision"], got["seen"]["revision"], got["staleness_ms"]) == (7, 6, 0.0)


async def test_plans_come_in_pages_with_those_without_left_out() -> None:
    async with planned() as at:
        api = at.api
        first = (await api.client.get("/plan", params={"limit": 2})).json()
        rest = (await api.client.get("/plan", params={"limit": 2, "cursor": first["next"]})).json()
        assert [one["node"] for one in (*first["items"], *rest["items"])] == ["n1", "n2", "n3"]
        assert rest["next"] is None
        asked = {"filter": "engines.homes=sql~3", "sort": "-node", "limit": "1"}
        newest = (await api.client.get("/plan", params=asked)).json()
        assert ([one["node"] for one in newest["items"]], newest["next"] is None) == (["n3"], False)


async def test_no_plan_and_no_node_are_not_found() -> None:
    async with planned() as at:
        api = at.api
        for node in ("planless", "nobody"):
            answer = await api.client.get(f"/plan/{node}")
            assert problem(answer).code == "not-found"


async def test_while_the_registry_is_away_plans_are_those_told_last_with_their_age() -> None:
    async with planned() as at:
        at.api.away()
        at.bus.disconnect()
        await eventually(lambda: at.feed.staleness_ms() > 0.0)
        for node in ("n1", "n2"):
            old = (await at.api.client.get(f"/plan/{node}")).json()
            assert (old["revision"], old["staleness_ms"] > 0) == (7, True)
        page = (await at.api.client.get("/plan")).json()
        assert (len(page["items"]), page["staleness_ms"] > 0) == (3, True)
        # Whether a scheduler leads is not known now.
        assert at.feed.degraded() == ()
        await at.api.back()
        await at.bus.reconnect()
        await eventually(lambda: not at.feed.staleness_ms())


async def test_without_a_scheduler_plans_grow_old_and_its_absence_has_a_name() -> None:
    clock = FakeClock()
    async with planned(clock) as at:
        await clock.advance(60_000.0)
        assert (at.feed.staleness_ms(), at.feed.degraded()) == (0.0, ())
        await at.leases.delete(keys.SCHEDULER_LEASE)

        await clock.advance(1_000.0)
        assert at.feed.staleness_ms() == 1_000.0
        assert at.feed.degraded() == ()
        await clock.advance(AWAY_MS)
        assert at.feed.degraded() == (SCHEDULER_AWAY,)
        assert (await at.api.client.get("/plan/n1")).json()["staleness_ms"] >= AWAY_MS
        await at.leases.put(keys.SCHEDULER_LEASE, encode(Lease(holder="other", fence=2)))
        await eventually(lambda: not at.feed.degraded())
        assert at.feed.staleness_ms() == 0.0


async def test_a_plan_that_changes_or_is_withdrawn_is_shown_so() -> None:
    async with planned() as at:
        key = keys.plan_key(REGION, NodeId("n1"))
        await at.plans.put(key, encode(PlanRecord(plan=replace(plan_of("n1"), revision=8))))
        elsewhere = keys.plan_key(RegionId("other"), NodeId("n2"))
        await at.plans.put(elsewhere, encode(PlanRecord(plan=replace(plan_of("n2"), revision=9))))
        await at.plans.delete(keys.plan_key(REGION, NodeId("n3")))
        await eventually(lambda: at.feed.plan(NodeId("n3")) is None)
        page = (await at.api.client.get("/plan")).json()
        assert [(one["node"], one["revision"]) for one in page["items"]] == [("n1", 8), ("n2", 7)]


async def test_a_plan_that_does_not_parse_is_said_to_be_so() -> None:
    async with planned() as at:
        await at.plans.put(keys.plan_key(REGION, NodeId("n1")), b"garbage")
        await eventually(lambda: _is_garbage(at.feed, "n1"))
        assert problem(await at.api.client.get("/plan/n1")).code == "invalid-message"


def _is_garbage(feed: PlanFeed, node: str) -> bool:
    try:
        feed.plan(NodeId(node))
    except WireError:
        return True
    return False


async def test_settings_are_told_without_secrets() -> None:
    async with planned() as at:
        api = at.api
        answer = await api.client.get("/config")
        told = answer.json()
        assert "hunter2" not in answer.text
        assert told["settings"]["redis_url"] == "redis://cache:6379"
        assert told["settings"]["gateway"] == told["gateway"] == "gw"


def test_users_are_cut_out_of_every_url() -> None:
    settings = GatewaySettings(
        nats_url="nats://a:b@h1:4222,nats://c:d@h2:4222",
        redis_url="redis+cluster://u:p@h1:1,h2:2",
        otlp_endpoint="http://x:y@collector:4318",
    )
    told = shown_settings(settings)
    assert told["nats_url"] == "nats://h1:4222,nats://h2:4222"
    assert told["redis_url"] == "redis+cluster://h1:1,h2:2"
    assert told["otlp_endpoint"] == "http://collector:4318"
    assert told["admin_key_file"] is None
