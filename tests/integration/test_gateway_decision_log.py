"""The stream of decisions: what a gateway tells of its requests, and that none waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.decided_parts import decided
from tests.eventually import eventually
from tests.gateway_region import BASE_MODEL, REGION, Gateway, Region, region_of, served
from tests.owner import task_owner

from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_journal import NatsJournal
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.decision import Term
from axiom_common.model.ids import BASE, GatewayId, RegionId
from axiom_common.model.outcome import Ending, Outcome
from axiom_common.policy.profile import AXIOM
from axiom_common.runtime.logging import Log
from axiom_common.testing.journal import FakeJournal
from axiom_common.wire import keys, subjects
from axiom_common.wire.bounds import ATTEMPTS_MAX
from axiom_common.wire.schemas import DecisionReport, decode
from axiom_gateway.decision_log import DecisionPublisher, LogCounts
from axiom_gateway.decisions import Asked, DecisionRecord, RequestRecord

OUTCOME = Outcome(
    ending=Ending.SERVED,
    status=200,
    reason=None,
    engine=None,
    retries=0,
    held_ms=0.0,
    load_ms=None,
    total_ms=1.0,
    ttft_ms=None,
    tpot_ms=None,
)


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=2) as region:
        yield region


@pytest.fixture
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        yield gateway


def told(region: Region) -> list[DecisionReport]:
    """What is in the journal, read as its readers do."""
    return [decode(payload, DecisionReport) for _, payload in region.journal.messages]


def record(number: int, *attempts: int) -> RequestRecord:
    decisions = [
        DecisionRecord(
            at_ms=0.0,
            took_ms=0.1,
            attempt=attempt,
            excluded=(),
            weights=AXIOM.weight_of_each,
            decision=decided(),
        )
        for attempt in attempts or (1,)
    ]
    asked = Asked(BASE_MODEL, BASE, 0, 0, 12)
    return RequestRecord(f"d-{number}", asked, decisions, OUTCOME)


def publisher(journal: FakeJournal | NatsJournal, *, queued_max: int = 8) -> DecisionPublisher:
    clock = SystemClock()
    return DecisionPublisher(
        journal,
        clock,
        Log("test", clock),
        region=REGION,
        gateway=GatewayId("gw"),
        per_s=1_000.0,
        queued_max=queued_max,
    )


async def test_each_request_is_told_with_its_best_engines_and_its_end(
    region: Region, gateway: Gateway
) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.fail_requests = 1
    failed = await gateway.ask(BASE_MODEL)
    served_answer = await gateway.ask(BASE_MODEL, stream=True)
    await eventually(lambda: len(region.journal.messages) == 2)
    first, second = told(region)
    assert [subject for subject, _ in region.journal.messages] == [
        subjects.gateway_decision(REGION, GatewayId("gw"))
    ] * 2
    assert first.id == failed.headers["x-axiom-decision-id"]
    assert [one.attempt for one in first.attempts] == [1, 2]
    assert first.attempts[1].after_ms >= first.attempts[0].after_ms == 0.0
    assert (first.outcome.ending, first.outcome.retries) == (Ending.REFUSED, 1)
    assert second.id == served_answer.headers["x-axiom-decision-id"]
    assert (second.outcome.ending, second.outcome.engine) == (Ending.SERVED, served_answer.engine)
    assert (second.share, second.base_model, second.adapter) == (1.0, BASE_MODEL, "")
    kept = gateway.app.telling.record_of(second.id)
    assert kept is not None
    assert second.outcome == kept.outcome
    (attempt,) = second.attempts
    assert attempt.decision == kept.decisions[0].decision.whole()
    assert attempt.decision.winner is not None
    assert len(attempt.decision.runners_up) == 1
    for one in (attempt.decision.winner, *attempt.decision.runners_up):
        parts = zip(second.weights, one.terms_ms, strict=True)
        assert sum(weight * ms for weight, ms in parts) == pytest.approx(one.cost_ms, abs=1e-3)
    assert len(second.weights) == len(Term)
    assert second.age_ms > 0.0
    await eventually(lambda: gateway.counted("decisions_told_total") == 2)


async def test_requests_are_served_while_the_journal_is_away_and_the_loss_is_counted(
    region: Region, gateway: Gateway
) -> None:
    region.journal.disconnect()
    for _ in range(3):
        assert (await gateway.ask(BASE_MODEL)).status == 200
    await eventually(lambda: gateway.counted("decisions_dropped_total") == 3)
    region.journal.reconnect()
    assert (await gateway.ask(BASE_MODEL)).status == 200
    await eventually(lambda: gateway.counted("decisions_told_total") == 1)


async def test_under_load_a_sample_is_told_and_the_rest_counted(region: Region) -> None:
    async with served(region, decisions_per_s=1.0) as gateway:
        answers = await asyncio.gather(*(gateway.ask(BASE_MODEL, tokens=1) for _ in range(40)))
        assert {answer.status for answer in answers} == {200}

        def counted() -> float:
            return gateway.counted("decisions_told_total") + gateway.counted(
                "decisions_sampled_out_total"
            )

        await eventually(lambda: counted() == 40)
        assert 0 < gateway.counted("decisions_told_total") < 40
        assert len(region.journal.messages) == gateway.counted("decisions_told_total")
        assert gateway.counted("decisions_dropped_total") == 0


async def test_a_full_queue_drops_what_comes_and_takes_again_once_there_is_room() -> None:
    journal = FakeJournal()
    telling = publisher(journal, queued_max=2)
    for number in range(5):
        telling.offer(record(number), number)
    assert telling.counts == LogCounts(sent=0, sampled_out=0, dropped=3)
    async with task_owner() as owner:
        task = owner.create_task(telling.run(), name="tell")
        await eventually(lambda: telling.counts.sent == 2)
        telling.offer(record(6), 6)
        await eventually(lambda: telling.counts.sent == 3)
        task.cancel()
    assert telling.counts.dropped == 3


async def test_of_many_attempts_the_last_are_told() -> None:
    journal = FakeJournal()
    telling = publisher(journal)
    telling.offer(record(1, *range(1, 40)), 1)
    async with task_owner() as owner:
        task = owner.create_task(telling.run(), name="tell")
        await eventually(lambda: telling.counts.sent == 1)
        task.cancel()
    report = decode(journal.messages[0][1], DecisionReport)
    assert [one.attempt for one in report.attempts] == list(range(40 - ATTEMPTS_MAX, 40))


async def test_a_real_stream_keeps_what_is_told(nats_url: str) -> None:
    name = RegionId("decision-log")
    clock = SystemClock()
    async with task_owner() as owner:
        connection = NatsConnection(nats_url, name="gateway.gw", clock=clock)
        assert await connection.start(owner)
        journal = NatsJournal(
            connection,
            clock,
            keys.decision_stream(name),
            subject=subjects.all_decisions(REGION),
            bytes_max=1 << 20,
            age_ms=60_000.0,
            message_bytes_max=1 << 16,
        )
        telling = publisher(journal)
        telling.offer(record(1), 1)
        task = owner.create_task(telling.run(), name="tell")
        await eventually(lambda: telling.counts.sent == 1)
        jetstream = connection.session().client.jetstream()
        stream = keys.decision_stream(name)

        async def kept() -> int:
            return (await jetstream.stream_info(stream)).state.messages

        async with asyncio.timeout(5):
            while not await kept():
                await asyncio.sleep(0.01)
        message = await jetstream.get_last_msg(
            stream, subjects.gateway_decision(REGION, GatewayId("gw"))
        )
        assert decode(message.data or b"", DecisionReport).id == "d-1"
        await jetstream.delete_stream(stream)
        task.cancel()
        await connection.close()
