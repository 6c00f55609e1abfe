"""This gateway's vector on the bus: what goes out, when, and what peers make of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.owner import TestOwner, task_owner

from axiom_common.model.ids import BASE, EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.runtime.ops import ORDERS_STALE
from axiom_common.state.inflight_vectors import EXPIRED_MS, InFlightVectors
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeRegistry
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import InFlightReport, ReportKind, decode
from axiom_gateway.inflight import (
    DELTA_EVERY_MS,
    EMPTY_TIMES,
    FULL_EVERY_MS,
    InFlightPublisher,
)

REGION = RegionId("r")
NODE, OTHER = NodeId("n"), NodeId("o")
A, B, C = EngineId("n.a"), EngineId("n.b"), EngineId("o.c")
BOT = EngineAdapter("bot~1")


@pytest.fixture
async def owner() -> AsyncIterator[TestOwner]:
    async with task_owner() as owner:
        yield owner


class Agent:
    """What a node's agent hears of this gateway, and makes of it."""

    def __init__(self, setting: Setting, node: NodeId) -> None:
        self._setting = setting
        self.node = node
        self.heard: list[InFlightReport] = []
        self.folded = InFlightVectors()
        self.deaf = False

    async def hear(self, subject: str, payload: bytes) -> None:
        if self.deaf:
            return
        report = decode(payload, InFlightReport)
        assert subject == subjects.node_inflight(REGION, self.node, report.gateway)
        self.heard.append(report)
        self.folded.apply(
            report.gateway,
            incarnation=report.incarnation,
            seq=report.seq,
            full=report.kind is ReportKind.FULL,
            counts=[(c.engine, c.adapter, c.count) for c in report.counts],
            now_ms=self._setting.clock.now_ms(),
        )


class Setting:
    """A publisher, and a peer that folds what it hears."""

    def __init__(self, owner: TestOwner) -> None:
        self.owner = owner
        self.clock = FakeClock()
        self.registry = FakeRegistry(owner, self.clock)
        hub = FakeHub()
        self.bus, self.peer = FakeBus(owner, hub), FakeBus(owner, hub)
        self.vector: dict[tuple[EngineId, EngineAdapter], int] = {}
        self.applied = 0
        self.heard: list[InFlightReport] = []
        self.folded = InFlightVectors()
        self.agents = {node: Agent(self, node) for node in (NODE, OTHER)}

    async def start(self) -> InFlightPublisher:
        await self.peer.subscribe(subjects.all_inflight(REGION), self._hear)
        for node, agent in self.agents.items():
            await self.peer.subscribe(subjects.all_inflight_on(REGION, node), agent.hear)
        publisher = InFlightPublisher(
            self.bus,
            self.clock,
            await self.registry.bucket(keys.incarnation_bucket(REGION)),
            region=REGION,
            gateway=GatewayId("g"),
            read=lambda: self.vector,
            applied=lambda: self.applied,
        )
        self.owner.create_task(publisher.run(), name="publisher")
        await self.clock.advance(1)
        return publisher

    async def _hear(self, _: str, payload: bytes) -> None:
        report = decode(payload, InFlightReport)
        self.heard.append(report)
        self.folded.apply(
            report.gateway,
            incarnation=report.incarnation,
            seq=report.seq,
            full=report.kind is ReportKind.FULL,
            counts=[(c.engine, c.adapter, c.count) for c in report.counts],
            now_ms=self.clock.now_ms(),
            applied=report.applied,
            left=report.kind is ReportKind.LEFT,
        )


async def test_a_change_is_told_within_50_ms_and_as_the_change_alone(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1, (B, BOT): 2}
    await setting.start()
    assert setting.folded.of(B) == {BOT: 2}
    setting.vector = {(A, BASE): 1, (B, BASE): 1}
    await setting.clock.advance(DELTA_EVERY_MS)
    assert [(r.kind, len(r.counts)) for r in setting.heard] == [
        (ReportKind.FULL, 2),
        (ReportKind.DELTA, 2),
    ]
    assert (setting.folded.of(A), setting.folded.of(B)) == ({BASE: 1}, {BASE: 1})


async def test_a_burst_of_changes_is_one_message(owner: TestOwner) -> None:
    setting = Setting(owner)
    publisher = await setting.start()
    for count in range(1, 20):
        setting.vector = {(A, BASE): count}
        publisher.used(A, BASE)
    await setting.clock.advance(DELTA_EVERY_MS)
    assert len(setting.heard) == 2
    assert setting.folded.of(A) == {BASE: 19}


async def test_all_is_told_each_second_though_nothing_changes(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1}
    await setting.start()
    await setting.clock.advance(3 * FULL_EVERY_MS)
    assert [report.kind for report in setting.heard] == [ReportKind.FULL] * 4
    seqs = [report.seq for report in setting.heard]
    assert seqs == sorted(set(seqs)), "of the same vector each is newer than the one before"


async def test_a_lost_change_is_healed_within_a_second(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    setting.bus.disconnect()
    setting.vector = {(A, BASE): 1}
    await setting.clock.advance(DELTA_EVERY_MS)
    await setting.bus.reconnect()
    assert setting.folded.of(A) == {}
    await setting.clock.advance(FULL_EVERY_MS)
    assert setting.folded.of(A) == {BASE: 1}


async def test_a_use_that_is_over_before_the_next_message_is_told_all_the_same(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    publisher = await setting.start()
    setting.heard.clear()
    publisher.used(A, BOT)
    await setting.clock.advance(2 * FULL_EVERY_MS)
    assert [(c.engine, c.adapter, c.count) for r in setting.heard for c in r.counts] == [
        (A, BOT, 0)
    ]
    assert setting.heard[0].kind is ReportKind.DELTA


async def test_nothing_is_told_before_the_registry_gave_an_incarnation(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.registry.disconnect()
    await setting.start()
    await setting.clock.advance(FULL_EVERY_MS)
    assert setting.heard == []
    setting.registry.reconnect()
    await setting.clock.advance(FULL_EVERY_MS)
    assert setting.heard[0].incarnation >= 1


async def test_each_start_has_a_higher_incarnation(owner: TestOwner) -> None:
    setting = Setting(owner)
    await setting.start()
    await setting.start()
    assert len({report.incarnation for report in setting.heard}) == 2


async def test_a_node_hears_of_its_own_engines_alone(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1, (B, BOT): 2, (C, BOT): 3}
    await setting.start()
    node, other = setting.agents[NODE], setting.agents[OTHER]
    assert (node.folded.of(A), node.folded.of(B), node.folded.of(C)) == ({BASE: 1}, {BOT: 2}, {})
    assert (other.folded.of(A), other.folded.of(C)) == ({}, {BOT: 3})
    setting.vector = {(A, BASE): 1, (B, BOT): 5, (C, BOT): 3}
    await setting.clock.advance(DELTA_EVERY_MS)
    assert [(c.engine, c.count) for c in node.heard[-1].counts] == [(B, 5)]
    assert len(other.heard) == 1


async def test_what_a_node_missed_is_repaired_by_the_whole_each_second(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1}
    await setting.start()
    agent = setting.agents[NODE]
    agent.deaf = True
    setting.vector = {(A, BASE): 4, (B, BASE): 1}
    await setting.clock.advance(2 * DELTA_EVERY_MS)
    agent.deaf = False
    assert agent.folded.of(A) == {BASE: 1}
    await setting.clock.advance(FULL_EVERY_MS)
    assert (agent.folded.of(A), agent.folded.of(B)) == ({BASE: 4}, {BASE: 1})


async def test_a_node_with_nothing_left_hears_so_three_times_and_then_nothing(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1}
    await setting.start()
    agent = setting.agents[NODE]
    setting.vector = {}
    await setting.clock.advance(DELTA_EVERY_MS)
    assert agent.folded.of(A) == {}
    agent.heard.clear()
    await setting.clock.advance(10 * FULL_EVERY_MS)
    assert [(r.kind, r.counts) for r in agent.heard] == [(ReportKind.FULL, ())] * EMPTY_TIMES
    setting.vector = {(A, BASE): 1}
    await setting.clock.advance(DELTA_EVERY_MS)
    assert agent.folded.of(A) == {BASE: 1}


async def test_a_short_use_of_a_quiet_node_is_told_to_it(owner: TestOwner) -> None:
    setting = Setting(owner)
    publisher = await setting.start()
    publisher.used(C, BOT)
    await setting.clock.advance(DELTA_EVERY_MS)
    [report] = setting.agents[OTHER].heard
    assert [(c.engine, c.adapter, c.count) for c in report.counts] == [(C, BOT, 0)]
    assert setting.agents[NODE].heard == []


async def test_many_nodes_have_their_turns(
    owner: TestOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiom_gateway.inflight.NODES_A_TICK_MAX", 1)
    setting = Setting(owner)
    setting.vector = {(A, BASE): 1, (C, BASE): 1}
    await setting.start()
    await setting.clock.advance(DELTA_EVERY_MS)
    assert setting.agents[NODE].folded.of(A) == setting.agents[OTHER].folded.of(C) == {BASE: 1}


async def test_what_was_taken_over_is_told_within_50_ms_though_no_count_changes(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    await setting.start()
    assert setting.folded.unconfirmed(1) == ("g",)
    setting.applied = 7
    await setting.clock.advance(DELTA_EVERY_MS)
    assert (setting.heard[-1].kind, setting.heard[-1].applied) == (ReportKind.DELTA, 7)
    assert setting.folded.unconfirmed(7) == ()
    assert setting.folded.unconfirmed(8) == ("g",)
    told = len(setting.heard)
    await setting.clock.advance(3 * DELTA_EVERY_MS)
    assert len(setting.heard) == told


async def test_nodes_are_not_told_what_is_taken_over(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.vector, setting.applied = {(A, BASE): 1}, 7
    await setting.start()
    assert {report.applied for report in setting.agents[NODE].heard} == {None}


async def test_peers_are_known_to_hear_before_it_begins_and_hear_the_goodbye(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    setting.bus.disconnect()
    setting.vector = {(A, BASE): 1}
    publisher = await setting.start()
    await setting.clock.advance(FULL_EVERY_MS)
    assert not publisher.begun.is_set()
    await setting.bus.reconnect()
    await setting.clock.advance(FULL_EVERY_MS)
    assert publisher.begun.is_set()
    assert setting.folded.of(A) == {BASE: 1}
    await publisher.say_goodbye()
    await setting.clock.advance(0)
    assert setting.heard[-1].kind is ReportKind.LEFT
    assert (setting.folded.of(A), setting.folded.gateways) == ({}, 0)
    assert setting.folded.unconfirmed(99) == ()


async def test_who_is_cut_off_for_as_long_as_peers_wait_says_so_until_they_hear_it(
    owner: TestOwner,
) -> None:
    setting = Setting(owner)
    publisher = await setting.start()
    await setting.clock.advance(EXPIRED_MS)
    assert publisher.degraded() == ()
    setting.bus.disconnect()
    await setting.clock.advance(EXPIRED_MS - FULL_EVERY_MS - DELTA_EVERY_MS)
    assert publisher.degraded() == ()
    await setting.clock.advance(FULL_EVERY_MS + 2 * DELTA_EVERY_MS)
    assert publisher.degraded() == (ORDERS_STALE,)
    # Never later than peers cease to wait.
    setting.folded.expire(setting.clock.now_ms())
    assert setting.folded.unconfirmed(1) == ("g",)
    await setting.bus.reconnect()
    await setting.clock.advance(FULL_EVERY_MS)
    assert publisher.degraded() == ()


async def test_who_was_never_heard_is_not_waited_for_and_says_so(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.bus.disconnect()
    publisher = await setting.start()
    assert publisher.degraded() == (ORDERS_STALE,)


async def test_who_never_spoke_says_no_goodbye(owner: TestOwner) -> None:
    setting = Setting(owner)
    setting.bus.disconnect()
    publisher = await setting.start()
    await publisher.say_goodbye()
