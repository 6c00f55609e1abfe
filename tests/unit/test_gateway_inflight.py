"""This gateway's vector on the bus: what goes out, when, and what peers make of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.owner import TestOwner, task_owner

from axiom_common.model.ids import BASE, EngineAdapter, EngineId, GatewayId, RegionId
from axiom_common.state.inflight_vectors import InFlightVectors
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeRegistry
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import InFlightReport, ReportKind, decode
from axiom_gateway.inflight import DELTA_EVERY_MS, FULL_EVERY_MS, InFlightPublisher

REGION = RegionId("r")
A, B = EngineId("n.a"), EngineId("n.b")
BOT = EngineAdapter("bot~1")


@pytest.fixture
async def owner() -> AsyncIterator[TestOwner]:
    async with task_owner() as owner:
        yield owner


class Setting:
    """A publisher, and a peer that folds what it hears."""

    def __init__(self, owner: TestOwner) -> None:
        self.owner = owner
        self.clock = FakeClock()
        self.registry = FakeRegistry(owner, self.clock)
        hub = FakeHub()
        self.bus, self.peer = FakeBus(owner, hub), FakeBus(owner, hub)
        self.vector: dict[tuple[EngineId, EngineAdapter], int] = {}
        self.heard: list[InFlightReport] = []
        self.folded = InFlightVectors()

    async def start(self) -> InFlightPublisher:
        await self.peer.subscribe(subjects.all_inflight(REGION), self._hear)
        publisher = InFlightPublisher(
            self.bus,
            self.clock,
            await self.registry.bucket(keys.incarnation_bucket(REGION)),
            region=REGION,
            gateway=GatewayId("g"),
            read=lambda: self.vector,
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
    assert [report.seq for report in setting.heard] == [1, 2, 3, 4]


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
