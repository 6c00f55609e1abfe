"""A region for tests of the scheduler: fakes in virtual time, nodes that report, schedulers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tests.cache_parts import put_state
from tests.engine_parts import engine_state
from tests.owner import TestOwner, task_owner

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import (
    EngineLimits,
    NodeState,
    PlanStatus,
)
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.ports.bus import Bus
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import NodeReport, PlanRecord, ReportKind, decode, encode
from axiom_scheduler.app import SchedulerApp
from axiom_scheduler.settings import SchedulerSettings

REGION = RegionId("eu")
BASE = "llama"
BEAT_MS = 250.0


def adapter(name: str, *, revision: int = 1, rank: int = 8) -> AdapterSpec:
    return AdapterSpec(name=name, base_model=BASE, revision=revision, path=f"/{name}", rank=rank)


def node_state(
    name: str, *, engines: int = 1, region: RegionId = REGION, incarnation: int = 1
) -> NodeState:
    return NodeState(
        region=region,
        node=NodeId(name),
        incarnation=incarnation,
        seq=1,
        engines=tuple(
            engine_state(
                f"{name}.e{index}",
                base_model=BASE,
                served_name=BASE,
                limits=EngineLimits(hbm_slots=4, host_slots=8, max_lora_rank=64),
            )
            for index in range(engines)
        ),
    )


def plans_in(entries: dict[str, bytes]) -> dict[str, Plan]:
    """Plans by node."""
    return {key.partition(".")[2]: decode(v, PlanRecord).plan for key, v in entries.items()}


@dataclass
class Reporter:
    """Stands for an agent: tells its node's state on every beat."""

    bus: Bus
    state: NodeState
    quiet: bool = False

    async def beat(self) -> None:
        if self.quiet:
            return
        self.state = state = replace(self.state, seq=self.state.seq + 1)
        report = NodeReport(
            kind=ReportKind.FULL,
            region=state.region,
            node=state.node,
            incarnation=state.incarnation,
            seq=state.seq,
            engines=state.engines,
            plan=state.plan,
        )
        await self.bus.publish(subjects.node_report(state.region, state.node), encode(report))

    def acknowledge(self, plan: Plan) -> None:
        status = PlanStatus(revision=plan.revision, fence=plan.fence, accepted=True)
        self.state = replace(self.state, plan=status)


@dataclass
class FakeRegion:
    """All on fakes; nothing happens but in `run`."""

    owner: TestOwner
    clock: FakeClock
    registry: FakeRegistry
    cache: FakeShadowCache
    hub: FakeHub
    desired: DesiredStore
    plan_bucket: FakeBucket
    reporters: list[Reporter] = field(default_factory=list)

    def node(self, name: str, **shape: int) -> Reporter:
        reporter = Reporter(FakeBus(self.owner, self.hub), node_state(name, **shape))
        self.reporters.append(reporter)
        return reporter

    async def cached(self, state: NodeState) -> None:
        await put_state(self.cache, state)

    async def scheduler(self, name: str, *, bus: FakeBus | None = None) -> SchedulerApp:
        app = SchedulerApp(
            SchedulerSettings(region=REGION),
            holder=name,
            bus=bus or FakeBus(self.owner, self.hub),
            registry=self.registry,
            cache=self.cache,
            clock=self.clock,
        )
        await app.start(self.owner)
        return app

    async def run(self, duration_ms: float) -> None:
        """Let time pass, with a beat of each node each `BEAT_MS`."""
        for _ in range(int(duration_ms / BEAT_MS)):
            for reporter in self.reporters:
                await reporter.beat()
            await self.clock.advance(BEAT_MS)

    async def plans(self) -> dict[str, Plan]:
        entries = await self.plan_bucket.list()
        return plans_in({e.key: e.value for e in entries if e.value is not None})

    async def homes(self) -> dict[str, str]:
        """Adapter -> engine, over all plans; fails where an adapter has two homes."""
        homes: dict[str, str] = {}
        for plan in (await self.plans()).values():
            for engine in plan.engines:
                for spec in engine.load:
                    assert spec.name not in homes
                    homes[spec.name] = engine.engine
        return homes


def kill(app: SchedulerApp) -> None:
    """End an app as kill -9 would: it gives nothing back."""
    for task in app._tasks:
        task.cancel()


@asynccontextmanager
async def fake_region() -> AsyncIterator[FakeRegion]:
    async with task_owner() as owner:
        clock = FakeClock()
        registry = FakeRegistry(owner, clock)
        yield FakeRegion(
            owner=owner,
            clock=clock,
            registry=registry,
            cache=FakeShadowCache(REGION, clock),
            hub=FakeHub(),
            desired=DesiredStore(await registry.bucket(keys.DESIRED_BUCKET)),
            plan_bucket=await registry.bucket(keys.PLAN_BUCKET),
        )
