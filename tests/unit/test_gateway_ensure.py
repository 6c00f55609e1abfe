"""Asking an agent for an adapter: once for all who want it, and whoever goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.owner import TestOwner, task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import BASE, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.reason import Reason
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.wire import subjects
from axiom_common.wire.schemas import EnsureReply, EnsureRequest, InFlightCount, decode, encode
from axiom_gateway import ensure
from axiom_gateway.ensure import ASKED_MAX, Ensurer
from axiom_gateway.metrics import GatewayMetrics

REGION = RegionId("r")
ENGINE = EngineId("n.e")
BOT = AdapterSpec(name="bot", base_model="base", revision=2, path="/bot", rank=8)
OWN = (InFlightCount(engine=ENGINE, adapter=BASE, count=3),)


@pytest.fixture
async def owner() -> AsyncIterator[TestOwner]:
    async with task_owner() as owner:
        yield owner


class Agent:
    """Answers when told to, with what it is told."""

    def __init__(self) -> None:
        self.asked: list[EnsureRequest] = []
        self.heard = True
        self.go_on = asyncio.Event()
        self.answer = encode(EnsureReply(result=EnsureResult(outcome=EnsureOutcome.RESIDENT)))
        self.first_answers: list[bytes] = []
        self.answers_from = 1
        """Questions before this one are never answered."""

    async def respond(self, _: str, payload: bytes) -> bytes:
        self.asked.append(decode(payload, EnsureRequest))
        number = len(self.asked)
        await self.go_on.wait()
        if number < self.answers_from:
            await asyncio.Event().wait()
        return self.first_answers.pop() if self.first_answers else self.answer


async def start(
    owner: TestOwner, *, deadline_ms: float = 1000.0
) -> tuple[Ensurer, Agent, FakeBus, GatewayMetrics]:
    agent, hub, metrics = Agent(), FakeHub(), GatewayMetrics()
    bus, theirs = FakeBus(owner, hub), FakeBus(owner, hub)
    await theirs.respond(subjects.node_ensure(REGION, NodeId("n")), agent.respond)
    ensurer = Ensurer(
        bus,
        owner,
        SystemClock(),
        metrics,
        region=REGION,
        gateway=GatewayId("g"),
        in_flight=lambda engine: OWN if engine == ENGINE else (),
        may_load=lambda _: agent.heard,
        deadline_ms=deadline_ms,
    )
    return ensurer, agent, bus, metrics


def counted(metrics: GatewayMetrics, outcome: str) -> float | None:
    return metrics.registry.get_sample_value("axiom_gateway_ensures_total", {"outcome": outcome})


async def test_all_who_want_the_same_load_wait_for_one_answer(owner: TestOwner) -> None:
    ensurer, agent, _, metrics = await start(owner)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ensurer.ensure(ENGINE, BOT), name=str(n)) for n in range(5)]
        await asyncio.wait_for(_asked(agent), 1)
        agent.go_on.set()
    assert [task.result() for task in asking] == [EnsureResult(outcome=EnsureOutcome.RESIDENT)] * 5
    assert len(agent.asked) == 1
    assert agent.asked[0].adapter == BOT
    assert (agent.asked[0].gateway, agent.asked[0].in_flight) == ("g", OWN)
    assert counted(metrics, "resident") == 1


async def test_one_asker_that_goes_away_does_not_take_the_load_with_it(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ensurer.ensure(ENGINE, BOT), name="first")
        second = group.create_task(ensurer.ensure(ENGINE, BOT), name="second")
        await asyncio.wait_for(_asked(agent), 1)
        first.cancel()
        agent.go_on.set()
    assert second.result() == EnsureResult(outcome=EnsureOutcome.RESIDENT)


async def test_a_later_wish_asks_again(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner)
    agent.go_on.set()
    await ensurer.ensure(ENGINE, BOT)
    await ensurer.ensure(ENGINE, BOT)
    assert len(agent.asked) == 2


async def test_a_refusal_is_an_answer(owner: TestOwner) -> None:
    ensurer, agent, _, metrics = await start(owner)
    refusal = EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.NO_IDLE_SLOT)
    agent.answer = encode(EnsureReply(result=refusal))
    agent.go_on.set()
    assert await ensurer.ensure(ENGINE, BOT) == refusal
    assert counted(metrics, "refused") == 1


async def test_no_bus_no_agent_and_nonsense_are_no_answer(owner: TestOwner) -> None:
    ensurer, agent, bus, metrics = await start(owner)
    agent.answer = b"nonsense"
    agent.go_on.set()
    assert await ensurer.ensure(ENGINE, BOT) is None
    assert await ensurer.ensure(EngineId("elsewhere.e"), BOT) is None
    bus.disconnect()
    assert await ensurer.ensure(ENGINE, BOT) is None
    assert counted(metrics, "unanswered") == 3
    assert metrics.registry.get_sample_value("axiom_gateway_invalid_messages_total") == 1


async def test_an_agent_that_is_not_heard_is_not_asked(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner)
    agent.heard = False
    assert await ensurer.ensure(ENGINE, BOT) is None
    assert agent.asked == []


async def test_an_agent_that_falls_silent_keeps_nobody_waiting(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner, deadline_ms=3_600_000.0)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ensurer.ensure(ENGINE, BOT), name="waiting")
        await asyncio.wait_for(_asked(agent), 1)
        agent.heard = False
        assert await asyncio.wait_for(waiting, 5) is None
    agent.go_on.set()


async def test_who_asks_when_the_agent_is_back_waits_for_no_old_answer(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner, deadline_ms=3_600_000.0)
    waiting = asyncio.ensure_future(ensurer.ensure(ENGINE, BOT))
    await asyncio.wait_for(_asked(agent), 1)
    agent.heard = False
    assert await asyncio.wait_for(waiting, 5) is None
    agent.heard = True
    agent.go_on.set()
    again = await asyncio.wait_for(ensurer.ensure(ENGINE, BOT), 1)
    assert again == EnsureResult(outcome=EnsureOutcome.RESIDENT)
    assert len(agent.asked) == 2


async def test_a_lost_answer_costs_one_question(
    owner: TestOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was killed while it loaded, and its next life is heard before anybody noticed."""
    monkeypatch.setattr(ensure, "ASK_MS", 50.0)
    monkeypatch.setattr(ensure, "REPLY_MARGIN_MS", 10.0)
    ensurer, agent, _, metrics = await start(owner, deadline_ms=3_600_000.0)
    waiting = asyncio.ensure_future(ensurer.ensure(ENGINE, BOT))
    await asyncio.wait_for(_asked(agent), 1)
    agent.answers_from = 2
    agent.go_on.set()
    assert await asyncio.wait_for(waiting, 5) == EnsureResult(outcome=EnsureOutcome.RESIDENT)
    assert all(request.deadline_ms == 50.0 for request in agent.asked)
    assert counted(metrics, "resident") == 1


async def test_a_load_that_takes_longer_than_one_question_is_asked_for_again(
    owner: TestOwner,
) -> None:
    ensurer, agent, _, _ = await start(owner, deadline_ms=3_600_000.0)
    late = EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.DEADLINE_EXCEEDED)
    agent.first_answers = [encode(EnsureReply(result=late))] * 3
    agent.go_on.set()
    assert await ensurer.ensure(ENGINE, BOT) == EnsureResult(outcome=EnsureOutcome.RESIDENT)
    assert len(agent.asked) == 4


async def test_the_questions_end_with_the_deadline(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner, deadline_ms=5_000.0)
    late = EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.DEADLINE_EXCEEDED)
    agent.answer = encode(EnsureReply(result=late))
    agent.go_on.set()
    assert await ensurer.ensure(ENGINE, BOT) == late
    assert [request.deadline_ms for request in agent.asked] == [2_000.0, 2_000.0, 1_000.0]


async def test_loads_asked_for_at_a_time_are_bounded(owner: TestOwner) -> None:
    ensurer, agent, _, _ = await start(owner)
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(ensurer.ensure(EngineId(f"n.e{n}"), BOT), name=str(n))
            for n in range(ASKED_MAX)
        ]
        await asyncio.sleep(0)
        refusal = await ensurer.ensure(EngineId("n.more"), BOT)
        assert refusal == EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.TOO_MANY_LOADS)
        agent.go_on.set()
    assert all(task.result() is not None for task in asking)


async def _asked(agent: Agent) -> None:
    while not agent.asked:
        await asyncio.sleep(0)
