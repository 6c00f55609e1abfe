"""From an engine's KV events through an agent to a gateway's index: real ZeroMQ, HTTP and NATS.

At rest a gateway credits what the agent tells, and never more than the engine's cache holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.eventually import eventually
from tests.facts_gateway import FactsGateway
from tests.integration import test_agent_facts as agents
from tests.kv_parts import SCRIPTS
from tests.owner import task_owner

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.model.ids import RegionId
from axiom_common.model.prefix import PrefixScope, chain

it = agents.it
TEXTS = [SCRIPTS[0] * 12, SCRIPTS[0] * 12 + SCRIPTS[1] * 3, SCRIPTS[3] * 12]


@pytest.fixture
async def late_gateway(
    it: agents.Stage, nats_url: str, region: RegionId
) -> AsyncIterator[FactsGateway]:
    """It listens from now on."""
    async with task_owner() as owner:
        connection = NatsConnection(nats_url, name="gateway", clock=agents.CLOCK)
        assert await connection.start(owner)
        bus = NatsBus(connection)
        yield FactsGateway(
            owner,
            bus,
            agents.CLOCK,
            region=region,
            engine=agents.ENGINE,
            revision=agents.KIND.vocabulary.revision,
        )
        await bus.close()
        await connection.close()


async def agree(it: agents.Stage, gateway: FactsGateway, *, least: int) -> None:
    """Soon the gateway credits each text as the agent told it, one of them with `least` tokens."""
    scope = PrefixScope(base_model="base", revision=agents.KIND.vocabulary.revision)
    links = [chain(scope, agents.KIND.vocabulary.normalised(text)) for text in TEXTS]

    def at_rest() -> bool:
        credited = [gateway.credit(chained) for chained in links]
        told = [it.credit(text) for text in TEXTS]
        held = [it.cache.depth(text) for text in TEXTS]
        is_true = all(most >= credit for most, credit in zip(held, credited, strict=True))
        return credited == told and is_true and max(told) >= least

    await eventually(at_rest, within_s=15.0)


async def test_a_gateway_credits_what_the_engine_holds_through_losses_and_restarts(
    it: agents.Stage, late_gateway: FactsGateway
) -> None:
    gateway = late_gateway
    await it.serve(TEXTS[0])
    await it.credits(TEXTS[0], 1)
    await gateway.start()
    await agree(it, gateway, least=64)
    assert gateway.counted("snapshots_asked_total") >= 1
    await it.serve(TEXTS[1])
    await it.publish(it.cache.evict(1), is_lost=True)
    await it.serve(TEXTS[2])
    await agree(it, gateway, least=64)
    await it.restart_agent()
    await agree(it, gateway, least=64)
    await it.publish(it.cache.clear())
    await it.credits(TEXTS[0], 0)
    await agree(it, gateway, least=0)
    assert gateway.prefixes.entries == 0
