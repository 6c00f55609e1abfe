"""How the region reaches a gateway: bootstrap, order, gaps, silence."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.cache_parts import put_state
from tests.engine_parts import engine_state
from tests.owner import TestOwner, task_owner
from tests.watched_nodes import all_seen

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineFigures, EngineState, LoadFailure, NodeState
from axiom_common.model.ids import (
    EngineAdapter,
    EngineId,
    GatewayId,
    NodeId,
    RegionId,
    engine_id,
)
from axiom_common.model.reason import Reason
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.profile import BUILT_IN
from axiom_common.runtime.logging import Log
from axiom_common.state.flapping import STEADY_MS, STUMBLES
from axiom_common.state.hearing import RECOVERY_MS
from axiom_common.state.liveness import DEAD_MS, SUSPECT_MS
from axiom_common.state.region_view import EngineBeat, NodeBeat
from axiom_common.state.resyncs import EVERY_MS
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock, settle
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import subjects
from axiom_common.wire.schemas import (
    NodeReport,
    ReportKind,
    ResyncRequest,
    decode,
    encode,
)
from axiom_gateway.engine_facts import FRESH_MS, STALE_MS
from axiom_gateway.feed import (
    CACHE_RETRY_MS,
    FORGET_MS,
    LEFT_MS,
    RegionFeed,
)
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.state import GatewayState

REGION, NODE = RegionId("r"), NodeId("n")


@pytest.fixture
async def owner() -> AsyncIterator[TestOwner]:
    async with task_owner() as owner:
        yield owner


class Setting:
    """A feed on fakes, and agents that tell it what a test wants."""

    def __init__(self, owner: TestOwner) -> None:
        self.owner = owner
        self.clock = FakeClock(1000.0)
        hub = FakeHub()
        self.bus, self.agents = FakeBus(owner, hub), FakeBus(owner, hub)
        self.cache = FakeShadowCache(REGION, self.clock)
        self.metrics = GatewayMetrics()
        self.state = GatewayState(self.clock, BUILT_IN)
        self.resyncs: list[str] = []
        self.feed = RegionFeed(
            self.state,
            self.bus,
            self.cache,
            self.clock,
            self.metrics,
            Log("test", self.clock),
            region=REGION,
            gateway=GatewayId("gw"),
        )

    async def start(self) -> None:
        async def asked(subject: str, payload: bytes) -> None:
            assert decode(payload, ResyncRequest).asker == "gw"
            self.resyncs.append(subject)

        await self.agents.subscribe(f"{subjects.PREFIX}.node.resync.{REGION}.*", asked)
        await self.feed.start()
        self.owner.create_task(self.feed.bootstrap(), name="bootstrap")
        self.owner.create_task(self.feed.ask(), name="ask")

    async def tell(
        self,
        seq: int,
        *,
        running: int,
        node: NodeId = NODE,
        incarnation: int = 1,
        kind: ReportKind = ReportKind.FULL,
        **changes: object,
    ) -> None:
        report = NodeReport(
            kind=kind,
            region=REGION,
            node=node,
            incarnation=incarnation,
            seq=seq,
            engines=(state_of(node, running, **changes),),
        )
        await self.agents.publish(subjects.node_report(REGION, node), encode(report))
        await settle()

    async def beat(self, seq: int, *, running: int, base: int = 1) -> None:
        """A beat with a new sample."""
        figures = EngineFigures(running=running, sample=seq)
        beat = NodeBeat(REGION, NODE, 1, seq, base, (EngineBeat(engine(NODE), figures),))
        await self.agents.publish(subjects.node_report(REGION, NODE), encode(beat))
        await settle()

    def row(self, node: NodeId = NODE) -> EngineRow:
        row = self.state.engines[engine(node)].row
        assert row is not None
        return row

    async def store(self, seq: int, *, running: int) -> None:
        state = NodeState(
            region=REGION, node=NODE, incarnation=1, seq=seq, engines=(state_of(NODE, running),)
        )
        await put_state(self.cache, state, ttl_ms=10**9)

    async def pass_ms(self, duration_ms: float) -> None:
        """Let time pass in steps of the sweep."""
        passed_ms = 0.0
        while passed_ms < duration_ms:
            await self.clock.advance(250.0)
            await self.feed.sweep()
            self.state.sweep()
            await settle()
            passed_ms += 250.0

    def running(self, node: NodeId = NODE) -> int | None:
        state = self.state.engine(engine(node))
        return state.running if state else None


def engine(node: NodeId) -> EngineId:
    return engine_id(node, "e")


def state_of(node: NodeId, running: int, **changes: object) -> EngineState:
    return engine_state(engine(node), running=running, **changes)


@pytest.mark.parametrize(("stored", "told", "expected"), [(5, 4, 5), (5, 6, 6)])
async def test_of_cache_and_bus_the_newer_one_counts(
    owner: TestOwner, stored: int, told: int, expected: int
) -> None:
    setting = Setting(owner)
    await setting.store(stored, running=stored)
    setting.cache.away = True
    await setting.start()
    await setting.tell(told, running=told)
    assert setting.running() == told
    setting.cache.away = False
    await setting.clock.advance(CACHE_RETRY_MS)
    assert setting.running() == expected


async def test_what_only_the_cache_knows_is_about_to_be_stale_and_probed(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.store(1, running=1)
    assert not setting.feed.has_view()
    await setting.start()
    await settle()
    assert setting.feed.has_view()
    assert setting.state.silent_engines() == [(engine(NODE), "http://e")]
    await setting.clock.advance(FRESH_MS)
    setting.state.sweep()
    row = setting.state.engines[engine(NODE)].row
    assert row is not None
    assert row.stale
    assert setting.feed.view_age_ms() is None
    assert [seen.heard_age_ms for seen in all_seen(setting.feed)] == [None]
    await setting.tell(2, running=2)
    row = setting.state.engines[engine(NODE)].row
    assert row is not None
    assert not row.stale


async def test_a_gap_keeps_the_last_state_and_asks_until_it_is_healed(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    await setting.tell(3, running=3, kind=ReportKind.DELTA)
    assert setting.running() == 1
    assert setting.resyncs == []
    await setting.pass_ms(EVERY_MS)
    assert setting.resyncs == [subjects.node_resync(REGION, NODE)]
    await setting.pass_ms(EVERY_MS)
    assert len(setting.resyncs) == 2, "the first one may be lost"
    await setting.tell(4, running=4)
    await setting.pass_ms(2 * EVERY_MS)
    assert (setting.running(), len(setting.resyncs)) == (4, 2)


async def test_beats_bring_figures_whatever_was_lost_between_them(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    await setting.beat(9, running=2)
    assert setting.running() == 2
    row = setting.row()
    assert setting.resyncs == []
    await setting.beat(8, running=3)
    assert setting.running() == 2, "late"
    await setting.beat(10, running=3, base=2)
    assert setting.running() == 2, "of another base"
    assert setting.row() is row
    await setting.pass_ms(EVERY_MS)
    assert setting.resyncs == [subjects.node_resync(REGION, NODE)]


async def test_beats_of_a_node_that_is_not_known_lead_to_one_question(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    for seq in range(2, 6):
        await setting.beat(seq, running=1)
    assert setting.feed.view_age_ms() is None
    await setting.pass_ms(EVERY_MS / 2)
    assert setting.resyncs == [subjects.node_resync(REGION, NODE)]
    assert not setting.feed.has_view()
    await setting.tell(6, running=6)
    assert (setting.running(), setting.feed.has_view()) == (6, True)


async def test_beats_that_repeat_keep_an_engine_fresh_and_end_what_silence_began(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    for seq in range(2, 30):
        await setting.beat(seq, running=1)
        await setting.pass_ms(250.0)
        assert not setting.row().stale
    assert setting.feed.degraded() == ()
    await setting.pass_ms(DEAD_MS + 250.0)
    facts = setting.state.engines[engine(NODE)]
    assert facts.agent_dead
    assert (facts.lapsed, facts.state.running) == (True, 0)
    assert setting.row().stale
    await setting.beat(30, running=1)
    assert not facts.agent_dead
    assert (facts.lapsed, facts.state.running) == (False, 1)
    assert not setting.row().stale
    assert setting.row().loads_allowed


async def test_what_a_beat_does_not_tell_ages_on(owner: TestOwner) -> None:
    """A load goes on, and a failure is forgiven, though beats come all the time."""
    setting = Setting(owner)
    await setting.start()
    adapter = EngineAdapter("a~1")
    loading = Residency(
        adapter=adapter,
        state=AdapterState.LOADING,
        source=ResidencySource.INFERRED,
        remaining_ms=2_000.0,
    )
    failed = LoadFailure(adapter=EngineAdapter("b~1"), reason=Reason.LOAD_FAILED, retry_in_ms=600.0)
    await setting.tell(1, running=1, residents=(loading,), failures=(failed,))
    assert setting.row().failures == {failed.adapter}
    for seq in range(2, 7):
        await setting.pass_ms(250.0)
        await setting.beat(seq, running=seq)
    assert setting.row().residents[0].remaining_ms == 2_000.0 - 5 * 250.0
    assert setting.row().failures == frozenset()
    seen = setting.feed.seen_node(NODE)
    assert seen is not None
    (shown,) = seen.state.engines
    assert (shown.residents[0].age_ms, shown.residents[0].remaining_ms) == (1_250.0, 750.0)
    assert shown.failures == ()


async def test_what_an_engine_forgot_stays_forgotten_until_its_agent_tells_more(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    await setting.start()
    adapter = EngineAdapter("a~1")
    held = Residency(adapter=adapter, state=AdapterState.RESIDENT, source=ResidencySource.INFERRED)
    await setting.tell(1, running=1, residents=(held,), registered=(adapter,))
    setting.state.forgot(engine(NODE), adapter)
    await setting.beat(2, running=2)
    assert (setting.row().residents, setting.row().registered) == ((), ())
    await setting.tell(3, running=2, residents=(held,), registered=(adapter,))
    assert setting.row().residents == (held,)


async def test_who_says_that_it_ends_is_dead_at_once_and_soon_forgotten(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    await setting.tell(2, running=1, kind=ReportKind.LEFT)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["dead"]
    assert not setting.row().loads_allowed
    setting.state.probed(engine(NODE), True)
    await setting.pass_ms(2 * LEFT_MS)
    assert setting.running() is not None, "its engine serves on"
    setting.state.probed(engine(NODE), False)
    await setting.pass_ms(250.0)
    assert (setting.running(), all_seen(setting.feed)) == (None, ())
    await setting.tell(1, running=3, incarnation=2)
    assert setting.running() == 3


async def test_a_node_that_begins_anew_again_and_again_is_flapping_until_it_is_steady(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    await setting.start()
    others = [NodeId(f"other{number}") for number in range(4)]
    incarnation, flapped = 1, []

    async def pass_beat() -> None:
        for node in (NODE, *others):
            await setting.tell(
                int(setting.clock.now_ms()),
                running=1,
                node=node,
                incarnation=incarnation if node == NODE else 1,
            )
        await setting.pass_ms(500.0)

    for _ in range(STUMBLES + 1):
        await pass_beat()
        flapped.append(setting.row().flapping)
        incarnation += 1
    assert flapped == [False] * STUMBLES + [True]
    incarnation -= 1
    assert not setting.row(others[0]).flapping
    for _ in range(int(STEADY_MS / 500.0) - 2):
        await pass_beat()
        assert setting.row().flapping
    for _ in range(3):
        await pass_beat()
    assert not setting.row().flapping


async def test_a_new_life_of_an_agent_needs_a_full_report(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(7, running=7)
    await setting.tell(1, running=1, incarnation=2, kind=ReportKind.DELTA)
    assert setting.running() == 7
    await setting.tell(2, running=2, incarnation=2)
    assert setting.running() == 2
    await setting.tell(9, running=9, incarnation=1)
    assert setting.running() == 2


async def test_silence_makes_suspect_then_dead_then_forgotten(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    assert (setting.feed.degraded(), setting.state.silent_engines()) == ((), [])
    assert setting.feed.oldest_report_ms() == 0.0
    await setting.pass_ms(STALE_MS)
    assert setting.feed.degraded() == ("stale-telemetry",)
    assert setting.feed.oldest_report_ms() == STALE_MS
    assert setting.state.silent_engines() == [(engine(NODE), "http://e")]
    await setting.pass_ms(SUSPECT_MS - STALE_MS)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["suspect"]
    await setting.pass_ms(DEAD_MS - SUSPECT_MS)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["dead"]
    assert setting.state.engines[engine(NODE)].agent_dead
    setting.state.probed(engine(NODE), True)
    await setting.pass_ms(2 * FORGET_MS)
    assert setting.running() is not None
    setting.state.probed(engine(NODE), False)
    await setting.pass_ms(250.0)
    assert (setting.running(), all_seen(setting.feed), setting.feed.degraded()) == (None, (), ())


async def test_a_dead_agent_that_speaks_again_is_alive(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    await setting.pass_ms(DEAD_MS)
    await setting.tell(2, running=2)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["alive"]
    assert not setting.state.engines[engine(NODE)].agent_dead
    await setting.pass_ms(250.0)
    assert setting.state.silent_engines() == []


async def test_when_many_fall_silent_together_nobody_dies(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    nodes = [NodeId(f"n{n}") for n in range(4)]
    for node in nodes:
        await setting.tell(1, running=1, node=node)
    await setting.pass_ms(2 * DEAD_MS)
    assert "liveness-frozen" in setting.feed.degraded()
    assert not any(facts.agent_dead for facts in setting.state.engines.values())
    assert len(setting.state.silent_engines()) == len(nodes)


async def test_who_hears_nobody_knows_nothing_of_silence(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.tell(1, running=1)
    setting.bus.disconnect()
    await setting.pass_ms(10 * DEAD_MS)
    assert "nats-away" in setting.feed.degraded()
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["alive"]
    facts = setting.state.engines[engine(NODE)]
    assert not facts.agent_dead
    assert facts.row is not None
    assert not facts.row.stale
    # It is looked after all the same.
    assert setting.state.silent_engines() == [(engine(NODE), "http://e")]
    await setting.bus.reconnect()
    await setting.pass_ms(RECOVERY_MS)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["alive"]
    await setting.pass_ms(DEAD_MS + 250.0)
    assert [seen.liveness for seen in all_seen(setting.feed)] == ["dead"]


async def test_reports_on_anothers_subject_are_refused(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    report = NodeReport(
        kind=ReportKind.FULL,
        region=REGION,
        node=NODE,
        incarnation=1,
        seq=1,
        engines=(state_of(NODE, 1),),
    )
    await setting.agents.publish(subjects.node_report(REGION, NodeId("other")), encode(report))
    await settle()
    assert setting.running() is None
    assert setting.metrics.registry.get_sample_value("axiom_gateway_invalid_messages_total") == 1
