"""The whole agent on fakes: what it tells and answers, and what it shows when parts are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import Counter
from tests.agent_parts import name, spec
from tests.eventually import eventually
from tests.owner import TestOwner, task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import EngineStatus, GpuState, HostState, NodeState
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import (
    EngineAdapter,
    EngineId,
    GatewayId,
    NodeId,
    RegionId,
    engine_id,
)
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import EngineSample
from axiom_common.ports.registry import Entry
from axiom_common.state.hearing import TICK_MS
from axiom_common.state.inflight_vectors import SILENT_MS
from axiom_common.state.region_view import NodeBeat, Outcome, RegionView
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock, settle
from axiom_common.testing.engine import FakeEngine
from axiom_common.testing.gpus import FakeGpus
from axiom_common.testing.host import FakeHost
from axiom_common.testing.registry import FakeRegistry
from axiom_common.wire import keys, subjects
from axiom_common.wire.bounds import REGISTERED_MAX
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import (
    EnsureReply,
    EnsureRequest,
    InFlightCount,
    InFlightReport,
    NodeReport,
    PlanRecord,
    ReportKind,
    ResyncRequest,
    decode,
    encode,
)
from axiom_node_agent.app import FIRST_POLL_MS, UNLOAD_REST_MS, AgentApp
from axiom_node_agent.incarnation import LOOK_MS
from axiom_node_agent.leases import VECTOR_DELAY_MS
from axiom_node_agent.loader import RECONCILE_MS
from axiom_node_agent.node_engines import EngineLink
from axiom_node_agent.report import OWN_NAMES_MAX
from axiom_node_agent.reporter import GATHER_MS, WHOLE_GAP_MS
from axiom_node_agent.settings import AgentSettings

REGION, NODE, GATEWAY = RegionId("r"), NodeId("n1"), GatewayId("g1")
E1, E2 = EngineId("n1.e1"), EngineId("n1.e2")
CLOCK = SystemClock()
NAME_CHARS = 300
"""With two engines full of such names a report is above its bound, with one it is below."""


@dataclass
class Bench:
    """An agent, its surroundings, all that it told, and what others make of that."""

    owner: TestOwner
    app: AgentApp
    agent_bus: FakeBus
    bus: FakeBus
    registry: FakeRegistry
    gpus: FakeGpus
    engines: dict[EngineId, FakeEngine]
    superseded: asyncio.Event
    reports: list[NodeReport] = field(default_factory=list)
    beats: list[NodeBeat] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    view: RegionView = field(default_factory=lambda: RegionView(REGION))

    @property
    def last(self) -> NodeReport:
        return self.reports[-1]

    @property
    def state(self) -> NodeState:
        """What a reader who heard all of it knows."""
        state = self.view.node(NODE)
        assert state is not None
        return state

    async def hear(self, subject: str, payload: bytes) -> None:
        report = decode_node_report(subject, payload)
        assert self.view.apply(report, 0.0).outcome in (Outcome.APPLIED, Outcome.LEFT)
        self.seqs.append(report.seq)
        if isinstance(report, NodeBeat):
            self.beats.append(report)
        else:
            self.reports.append(decode(payload, NodeReport))

    async def heard(self, wanted: Callable[[NodeState], object]) -> NodeState:
        """What is known once it fits."""
        await eventually(lambda: len(self.view) and wanted(self.state))
        return self.state

    async def next_beat(self) -> None:
        """Until the agent had time to tell what it knows now."""
        beats = len(self.beats)
        await eventually(lambda: len(self.beats) > beats + 1)

    async def ensure(
        self, text: str, *, engine: EngineId = E1, in_flight: tuple[InFlightCount, ...] = ()
    ) -> EnsureResult:
        request = EnsureRequest(
            engine=engine,
            adapter=spec(text),
            deadline_ms=2_000.0,
            gateway=GATEWAY,
            in_flight=in_flight,
        )
        subject = subjects.node_ensure(REGION, NODE)
        answer = await self.bus.request(subject, encode(request), timeout_ms=3_000.0)
        return decode(answer, EnsureReply).result

    async def tell(self, report: InFlightReport) -> None:
        subject = subjects.node_inflight(REGION, NODE, report.gateway)
        await self.bus.publish(subject, encode(report))

    async def plan(self, revision: int, *, fence: int = 1, engines: tuple[EnginePlan, ...]) -> None:
        plan = Plan(
            region=REGION,
            node=NODE,
            revision=revision,
            fence=fence,
            reason="test",
            engines=engines,
        )
        bucket = await self.registry.bucket(keys.PLAN_BUCKET)
        await bucket.put(keys.plan_key(REGION, NODE), encode(PlanRecord(plan=plan)))


@asynccontextmanager
async def bench(
    *,
    beat_ms: float = 100.0,
    registry_up: bool = True,
    clock: Clock = CLOCK,
    engines: dict[EngineId, FakeEngine] | None = None,
) -> AsyncIterator[Bench]:
    settings = AgentSettings(
        region=REGION,
        node=NODE,
        beat_ms=beat_ms,
        poll_ms=20.0,
        names_ms=100.0,
        engines=[
            {"name": "e1", "url": "http://127.0.0.1:1", "hbm_slots": 2, "host_slots": 4},
            {"name": "e2", "url": "http://127.0.0.1:2", "hbm_slots": 2, "host_slots": 4},
        ],
    )
    async with task_owner() as owner:
        hub = FakeHub()
        registry = FakeRegistry(owner, clock)
        if not registry_up:
            registry.disconnect()
        engines = engines or {E1: FakeEngine(), E2: FakeEngine()}
        superseded = asyncio.Event()
        gpus = FakeGpus(GpuState(index=0, temperature_c=50.0), GpuState(index=1, throttle=8))
        agent_bus, bus = FakeBus(owner, hub), FakeBus(owner, hub)
        app = AgentApp(
            settings,
            bus=agent_bus,
            registry=registry,
            connect=lambda engine: EngineLink(engine=engines[engine_id(NODE, engine.name)]),
            gpus=gpus,
            host=FakeHost(),
            clock=clock,
            life="this one",
            on_superseded=superseded.set,
        )
        at = Bench(owner, app, agent_bus, bus, registry, gpus, engines, superseded)
        await bus.subscribe(subjects.all_node_reports(REGION), at.hear)
        await app.start(owner)
        yield at
        await app.stop()


async def ready(at: Bench) -> None:
    await at.heard(lambda r: {e.status for e in r.engines} == {EngineStatus.READY})


async def test_the_first_word_is_whole_and_figures_come_on_the_beat_numbered_without_holes() -> (
    None
):
    async with bench(beat_ms=30.0) as at:
        await ready(at)
        samples = [engine.sample for engine in at.state.engines]
        await eventually(lambda: len(at.beats) >= 5)
        assert at.seqs == list(range(1, at.seqs[-1] + 1))
        assert [r.kind for r in at.reports if r.seq == 1] == [ReportKind.FULL]
        assert {b.incarnation for b in at.beats} == {1}
        assert [e.engine for e in at.state.engines] == [E1, E2]
        assert [g.temperature_c for g in at.state.gpus] == [50.0, None]
        assert at.state.host == HostState(memory_total_bytes=1 << 40, adapter_cache_bytes=0)
        assert all(e.sample > old for e, old in zip(at.state.engines, samples, strict=True))
        assert {b.gpus for b in at.beats} == {None}, "they are as they were"
        at.gpus.lose(0)
        lost = await at.heard(lambda s: s.gpus and s.gpus[0].temperature_c is None)
        assert lost.gpus[1].throttle == 8
        assert at.last.kind is ReportKind.DELTA, "that can't wait"


async def test_all_is_told_whole_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axiom_node_agent.reporter.FULL_EVERY_MS", 200.0)
    async with bench(beat_ms=20.0) as at:
        await ready(at)
        at.reports.clear()
        at.beats.clear()
        began_ms = CLOCK.now_ms()
        await eventually(lambda: len(at.reports) >= 3)
        assert CLOCK.now_ms() - began_ms >= 200.0, "not each time there is something to tell"
        assert {r.kind for r in at.reports} == {ReportKind.FULL}
        assert {len(r.engines) for r in at.reports} == {2}
        assert at.beats


async def test_last_words_say_that_no_more_will_come() -> None:
    async with bench() as at:
        await ready(at)
        await at.app.stop()
        await eventually(lambda: at.last.kind is ReportKind.LEFT)
        assert at.last.seq == at.seqs[-1] == max(at.seqs)


async def test_a_change_is_told_at_once_with_the_changed_engine_alone() -> None:
    async with bench(beat_ms=60_000.0) as at:
        await ready(at)
        seq = at.last.seq
        assert await at.ensure("a") == EnsureResult(outcome=EnsureOutcome.RESIDENT)
        await eventually(lambda: AdapterState.RESIDENT in _states(at.last))
        assert at.beats == []
        assert {r.kind for r in at.reports if r.seq > seq} == {ReportKind.DELTA}
        assert [e.engine for e in at.last.engines] == [E1]
        assert at.last.engines[0].registered == (name("a"),)


def _states(report: NodeReport) -> list[AdapterState]:
    return [resident.state for engine in report.engines for resident in engine.residents]


async def test_askers_of_the_same_moment_share_one_whole_state() -> None:
    async with bench(beat_ms=60_000.0) as at:
        await ready(at)
        at.reports.clear()
        began_ms = CLOCK.now_ms()
        for asker in range(40):
            request = encode(ResyncRequest(asker=f"g{asker}"))
            await at.bus.publish(subjects.node_resync(REGION, NODE), request)
            await asyncio.sleep(0.002)
        await eventually(lambda: at.reports)
        took_ms = CLOCK.now_ms() - began_ms
        assert {r.kind for r in at.reports} == {ReportKind.FULL}
        assert len(at.reports) <= took_ms / WHOLE_GAP_MS + 1


async def test_who_keeps_asking_does_not_put_the_others_off() -> None:
    async with bench(beat_ms=60_000.0) as at:
        await ready(at)
        at.reports.clear()
        request = encode(ResyncRequest(asker="g"))
        began_ms = CLOCK.now_ms()
        while len(at.reports) < 2 and CLOCK.now_ms() - began_ms < 20 * WHOLE_GAP_MS:
            await at.bus.publish(subjects.node_resync(REGION, NODE), request)
            await asyncio.sleep(GATHER_MS / 2e3)
        assert [r.kind for r in at.reports] == [ReportKind.FULL] * 2


async def test_without_the_bus_polling_goes_on_and_the_next_word_is_whole() -> None:
    async with bench(beat_ms=60_000.0) as at:
        await ready(at)
        at.agent_bus.disconnect()
        assert "nats-away" in at.app.readiness().degraded
        at.reports.clear()
        at.engines[E1].down = True
        await eventually(lambda: at.app.books[E1].status is EngineStatus.UNREACHABLE)
        assert at.reports == []
        await at.agent_bus.reconnect()
        await eventually(lambda: ReportKind.FULL in {r.kind for r in at.reports})
        assert at.last.kind is ReportKind.FULL
        assert at.last.engines[0].status is EngineStatus.UNREACHABLE


async def test_a_message_that_was_not_taken_leaves_no_hole_and_a_whole_one_comes() -> None:
    """The bench fails where a report leaves a gap for who heard all that the bus took."""
    async with bench(beat_ms=100.0) as at:
        await ready(at)
        failures = at.app.metrics.report_failures
        at.agent_bus.disconnect()
        at.engines[E1].down = True
        await eventually(lambda: _value(failures) >= 1)
        at.reports.clear()
        at.agent_bus._connected = True
        at.engines[E2].down = True
        await at.heard(lambda s: {e.status for e in s.engines} == {EngineStatus.UNREACHABLE})
        await eventually(lambda: ReportKind.FULL in {r.kind for r in at.reports})


def _value(counter: Counter) -> float:
    return next(sample.value for sample in counter.collect()[0].samples)


async def test_a_gateway_that_falls_silent_holds_nothing() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(100.0)
        await at.ensure("a")
        await at.tell(_vector(1, InFlightCount(engine=E1, adapter=name("a"), count=1)))
        await eventually(lambda: at.app.books[E1].counts)
        await clock.advance(SILENT_MS - 100.0)
        assert at.app.books[E1].counts == {name("a"): 1}
        await clock.advance(1_000.0)
        assert at.app.books[E1].counts == {}


async def test_without_the_registry_it_waits_polling_and_takes_its_incarnation_later() -> None:
    async with bench(registry_up=False) as at:
        await eventually(lambda: at.app.books[E1].status is EngineStatus.READY)
        await eventually(lambda: "registry-away" in at.app.readiness().degraded)
        assert not at.app.readiness().ready
        assert at.reports == []
        at.registry.reconnect()
        await eventually(lambda: at.reports)
        assert at.app.readiness().ready
        assert at.app.readiness().degraded == ()


class SlowEngine(FakeEngine):
    """Answers no scrape before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def sample(self) -> EngineSample:
        await self.answers.wait()
        return await super().sample()


async def test_the_first_word_is_the_whole_truth() -> None:
    slow, down = SlowEngine(), FakeEngine(down=True)
    await slow.load(name("a"), spec("a").path)
    async with bench(engines={E1: slow, E2: down}) as at:
        await eventually(lambda: at.app.books[E2].status is EngineStatus.UNREACHABLE)
        await asyncio.sleep(0.2)
        assert at.reports == []
        slow.answers.set()
        await eventually(lambda: at.reports)
        first = at.reports[0]
        assert (first.kind, first.seq) == (ReportKind.FULL, 1)
        assert [e.status for e in first.engines] == [EngineStatus.READY, EngineStatus.UNREACHABLE]
        assert [r.adapter for r in first.engines[0].residents] == [name("a")]


async def test_an_engine_that_never_answers_does_not_keep_the_others_from_being_told() -> None:
    async with bench(engines={E1: SlowEngine(), E2: FakeEngine()}) as at:
        await eventually(lambda: at.reports, within_s=2 * FIRST_POLL_MS / 1e3)
        statuses = [e.status for e in at.reports[0].engines]
        assert statuses == [EngineStatus.STARTING, EngineStatus.READY]


async def test_another_agent_under_the_same_name_ends_this_one() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(10 * LOOK_MS)
        assert not at.superseded.is_set()
        bucket = await at.registry.bucket(keys.incarnation_bucket(REGION))
        await bucket.put(NodeId("n2"), b"somebody else's")
        await clock.advance(LOOK_MS)
        assert not at.superseded.is_set()
        await bucket.put(NODE, b"the other one")
        await clock.advance(LOOK_MS)
        assert at.superseded.is_set()


async def test_a_registry_that_lost_its_store_is_told_a_new_incarnation() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(LOOK_MS)
        await eventually(lambda: at.reports)
        first = at.last.incarnation
        at.registry.wipe()
        await clock.advance(LOOK_MS)
        await eventually(lambda: at.last.incarnation > first)
        renewed = next(r for r in at.reports if r.incarnation > first)
        assert (renewed.kind, renewed.seq) == (ReportKind.FULL, 1)
        bucket = await at.registry.bucket(keys.incarnation_bucket(REGION))
        stored = await bucket.get(NODE)
        assert stored is not None
        assert stored.revision == renewed.incarnation
        assert not at.superseded.is_set()


async def test_a_registry_that_lost_the_last_write_alone_is_no_other_agent() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(LOOK_MS)
        bucket = await at.registry.bucket(keys.incarnation_bucket(REGION))
        bucket._entries[NODE] = Entry(NODE, b"a former life", 0)
        await clock.advance(LOOK_MS)
        assert not at.superseded.is_set()
        assert bucket._entries[NODE].value == b"this one"


async def test_an_unreachable_engine_is_told_and_its_return_as_a_new_process_too() -> None:
    async with bench() as at:
        await ready(at)
        await at.ensure("a")
        at.engines[E1].down = True
        down = await at.heard(lambda r: r.engines[0].status is EngineStatus.UNREACHABLE)
        assert down.engines[0].residents, "unknown is not absent"
        assert f"engine-unreachable:{E1}" in at.app.readiness().degraded
        at.engines[E1].restart()
        back = await at.heard(lambda r: r.engines[0].status is EngineStatus.READY)
        assert back.engines[0].residents == ()
        assert back.engines[0].registered == ()


async def test_an_unknown_engine_is_refused() -> None:
    async with bench() as at:
        await ready(at)
        assert await at.ensure("a", engine=EngineId("n1.e9")) == EnsureResult(
            outcome=EnsureOutcome.REFUSED, reason=Reason.UNKNOWN_ENGINE
        )


async def test_what_does_not_parse_is_counted_and_who_asked_is_told_at_once() -> None:
    async with bench() as at:
        await ready(at)
        for payload in (b"\x00", b"", encode(ResyncRequest(asker="g"))):
            with pytest.raises(UnavailableError, match="failed"):
                await at.bus.request(subjects.node_ensure(REGION, NODE), payload, timeout_ms=9e3)
        assert len(at.agent_bus.errors) == 3
        own, other = (subjects.node_inflight(REGION, NODE, GatewayId(g)) for g in (GATEWAY, "g2"))
        count = InFlightCount(engine=E1, adapter=name("a"), count=1)
        await at.bus.publish(own, b"nonsense")
        await at.bus.publish(other, encode(_vector(1, count)))
        await eventually(lambda: len(at.agent_bus.errors) == 5)
        assert at.app.books[E1].counts == {}


async def test_the_askers_own_counts_decide_which_slots_are_idle() -> None:
    async with bench() as at:
        await ready(at)
        await at.ensure("a")
        await at.ensure("b")
        busy = tuple(InFlightCount(engine=E1, adapter=name(text), count=1) for text in "ab")
        await _forget_leases(at)
        assert await at.ensure("c", in_flight=busy) == EnsureResult(
            outcome=EnsureOutcome.REFUSED, reason=Reason.NO_IDLE_SLOT
        )
        assert await at.ensure("c", in_flight=busy[:1]) == EnsureResult(
            outcome=EnsureOutcome.RESIDENT
        )
        assert {copy.adapter for copy in at.app.books[E1].lru.hbm} == {name("a"), name("c")}


async def _forget_leases(at: Bench) -> None:
    at.app.books[E1].leases.held(CLOCK.now_ms() + 10_000.0)


async def test_vectors_hold_an_adapter_against_the_plan_until_they_drop_it() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(UNLOAD_REST_MS)
        await at.ensure("a")
        await _forget_leases(at)
        await at.tell(_vector(1, InFlightCount(engine=E1, adapter=name("a"), count=1)))
        await at.plan(1, engines=(EnginePlan(engine=E1, unload=(name("a"),)),))
        life = at.app.books[E1].lives
        await eventually(lambda: life[name("a")].state is AdapterState.DRAINING)
        for seq in range(2, 8):
            await at.tell(_vector(seq, InFlightCount(engine=E1, adapter=name("a"), count=1)))
            await clock.advance(500.0)
            await asyncio.sleep(RECONCILE_MS / 4e3)
        assert at.engines[E1].unloads == []
        await at.tell(_vector(8))
        await eventually(lambda: at.engines[E1].unloads == [name("a")])


async def test_a_time_without_hearing_holds_what_was_heard_before_it() -> None:
    """Requests run while the agent is away from the bus: nothing they use is taken meanwhile."""
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(UNLOAD_REST_MS)
        for text in "ab":
            await at.ensure(text)
        await at.tell(_vector(1, InFlightCount(engine=E1, adapter=name("a"), count=1)))
        await eventually(lambda: at.app.books[E1].counts)
        await at.plan(1, engines=(EnginePlan(engine=E1, unload=(name("a"), name("b"))),))
        at.agent_bus.disconnect()
        await clock.advance(3 * SILENT_MS)
        await asyncio.sleep(1.5 * RECONCILE_MS / 1e3)
        assert at.engines[E1].unloads == []
        await at.agent_bus.reconnect()
        await clock.advance(SILENT_MS - TICK_MS)
        assert at.app.books[E1].counts == {name("a"): 1}
        await clock.advance(2 * TICK_MS)
        assert at.app.books[E1].counts == {}, "it could have spoken and did not"


def _vector(seq: int, *counts: InFlightCount) -> InFlightReport:
    return InFlightReport(
        kind=ReportKind.FULL, region=REGION, gateway=GATEWAY, incarnation=1, seq=seq, counts=counts
    )


async def test_a_use_between_two_vectors_ends_its_lease() -> None:
    clock = FakeClock()
    async with bench(clock=clock) as at:
        await clock.advance(100.0)
        await at.ensure("a")
        held = at.app.books[E1].leases.held
        await clock.advance(VECTOR_DELAY_MS)
        assert held(clock.now_ms()) == {name("a")}
        await at.tell(_vector(1, InFlightCount(engine=E1, adapter=name("a"), count=0)))
        await settle()
        assert held(clock.now_ms()) == frozenset()


async def test_a_report_too_large_to_send_is_sent_with_less() -> None:
    engines = {E1: FakeEngine(), E2: FakeEngine()}
    for engine in engines.values():
        for number in range(REGISTERED_MAX):
            await engine.load(EngineAdapter(f"{number}".rjust(NAME_CHARS, "x")), "somewhere")
    async with bench(engines=engines, beat_ms=60_000.0) as at:
        await eventually(lambda: at.reports)
        [full] = at.reports
        assert {e.status for e in full.engines} == {EngineStatus.READY}
        assert {len(e.registered) for e in full.engines} == {OWN_NAMES_MAX}
        assert all(len(e.residents) == 4 for e in full.engines)
        assert _value(at.app.metrics.reports_reduced) >= 1
        await at.engines[E1].unload(full.engines[0].registered[0])
        await eventually(lambda: len(at.reports) > 1)
        delta = at.reports[1]
        assert delta.kind is ReportKind.DELTA
        assert len(delta.engines[0].registered) == REGISTERED_MAX - 1, "alone it fits"


async def test_a_plan_is_carried_out_and_a_lower_fence_refused_for_all_to_see() -> None:
    async with bench() as at:
        await ready(at)
        await at.plan(7, fence=2, engines=(EnginePlan(engine=E2, load=(spec("a"),)),))
        await at.heard(lambda r: r.plan and r.plan.accepted and r.plan.revision == 7)
        await eventually(lambda: at.engines[E2].loads == [name("a")])
        await at.plan(8, fence=1, engines=(EnginePlan(engine=E2, load=(spec("b"),)),))
        refused = await at.heard(lambda r: r.plan and not r.plan.accepted)
        assert refused.plan is not None
        assert refused.plan.reason is Reason.LOWER_FENCE
        assert "plan-refused:lower-fence" in at.app.readiness().degraded
        bucket = await at.registry.bucket(keys.PLAN_BUCKET)
        at.registry.wipe()
        await at.next_beat()
        assert at.state.plan is not None, "nobody withdrew it"
        await bucket.put(keys.plan_key(REGION, NODE), b"")
        await bucket.delete(keys.plan_key(REGION, NODE))
        await at.heard(lambda s: s.plan is None)
        await at.plan(9, fence=1, engines=())
        await at.heard(lambda r: r.plan and r.plan.reason is Reason.LOWER_FENCE)
        assert at.engines[E2].loads == [name("a")]


async def test_a_plan_that_does_not_parse_or_is_for_others_is_ignored() -> None:
    async with bench() as at:
        await ready(at)
        bucket = await at.registry.bucket(keys.PLAN_BUCKET)
        await bucket.put(keys.plan_key(REGION, NODE), b"nonsense")
        await bucket.put(keys.plan_key(REGION, NodeId("n2")), b"nonsense")
        await at.plan(1, engines=())
        await at.heard(lambda r: r.plan and r.plan.revision == 1)
        invalid = at.app.metrics.registry.get_sample_value(
            "axiom_node_agent_invalid_messages_total", {"kind": "plan"}
        )
        assert invalid == 1
