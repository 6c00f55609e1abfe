"""Facts over a real NATS: a gateway that starts late, messages that are lost with the server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.eventually import eventually
from tests.fact_parts import FactTeller, Message
from tests.facts_gateway import ENGINE, NODE, FactsGateway, report_of
from tests.owner import TestOwner, task_owner
from tests.servers import ChildServer

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import RegionId
from axiom_common.ports.bus import Bus
from axiom_common.state.fact_ledger import Reach
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactRequest, decode, encode

LINKS = range(1, 200)
STAND_MS = 100.0


class Agent:
    """Tells changes as they come, stands now and then, and gives snapshots to who asks."""

    def __init__(self, bus: Bus, region: RegionId) -> None:
        self._bus = bus
        self._region = region
        self._random = random.Random(6)
        self.teller = FactTeller()
        self.snapshots = 0

    async def start(self, owner: TestOwner) -> None:
        wanted = subjects.node_facts_wanted(self._region, NODE)
        await self._bus.subscribe(wanted, self._on_wanted)
        owner.create_task(self._stand(), name="stands")

    async def work(self, turns: int) -> None:
        """Blocks come and go."""
        for _ in range(turns):
            for link in self._random.sample(LINKS, 5):
                self.teller.move(link, self._random.choice((Reach.NOT, Reach.HBM, Reach.HBM)))
            await self._send(*self.teller.tell())

    @property
    def holds(self) -> list[int]:
        return sorted(self.teller.holds)

    async def _send(self, *messages: Message) -> None:
        subject = subjects.node_facts(self._region, NODE)
        for message in messages:
            with suppress(UnavailableError):
                await self._bus.publish(subject, encode(report_of(message, region=self._region)))

    async def _stand(self) -> None:
        while True:
            await SystemClock().sleep_ms(STAND_MS)
            await self._send(self.teller.stand())

    async def _on_wanted(self, subject: str, payload: bytes) -> None:
        assert decode(payload, FactRequest).engines == (ENGINE,)
        self.snapshots += 1
        for part in self.teller.snapshot():
            await self._send(part)
            await self.work(1)


@pytest.fixture
async def parts(
    module_nats: ChildServer, region: RegionId
) -> AsyncIterator[tuple[Agent, FactsGateway]]:
    """An agent that has told much already when the gateway starts."""
    clock = SystemClock()
    async with task_owner() as owner:
        connections = [NatsConnection(module_nats.url, name=n, clock=clock) for n in "ab"]
        for connection in connections:
            assert await connection.start(owner)
        one, two = map(NatsBus, connections)
        agent, gateway = Agent(one, region), FactsGateway(owner, two, clock, region=region)
        await agent.start(owner)
        told: list[bytes] = []

        async def hear(subject: str, payload: bytes) -> None:
            told.append(payload)

        await two.subscribe(subjects.node_facts(region, NODE), hear)
        await agent.work(50)
        await eventually(lambda: told)
        await gateway.start()
        yield agent, gateway
        for bus, connection in zip((one, two), connections, strict=True):
            await bus.close()
            await connection.close()


def agree(agent: Agent, gateway: FactsGateway) -> bool:
    return gateway.holds(*LINKS) == agent.holds


async def test_a_gateway_that_starts_late_comes_to_what_the_agent_holds(
    parts: tuple[Agent, FactsGateway],
) -> None:
    agent, gateway = parts
    await eventually(lambda: agree(agent, gateway), within_s=20)
    assert agent.snapshots >= 1
    snapshots = agent.snapshots
    await agent.work(50)
    await eventually(lambda: agree(agent, gateway), within_s=20)
    assert agent.snapshots == snapshots


async def test_what_was_lost_with_the_server_comes_when_it_is_back(
    parts: tuple[Agent, FactsGateway], module_nats: ChildServer
) -> None:
    agent, gateway = parts
    await eventually(lambda: agree(agent, gateway), within_s=20)
    module_nats.kill()
    await agent.work(20)
    assert not agree(agent, gateway)
    module_nats.start()
    await eventually(lambda: agree(agent, gateway), within_s=30)
    assert gateway.counted("facts_lost_total") >= 1
