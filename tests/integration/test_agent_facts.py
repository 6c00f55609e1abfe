"""Facts from an engine's KV events to who listens on the bus: real ZeroMQ, HTTP and NATS.

What a listener credits is held to what the engine's cache holds, through losses and restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from tests.eventually import eventually
from tests.fact_listener import FactListener
from tests.kv_parts import SCRIPTS, EngineCache, kinds, trained_byte_level
from tests.kv_publisher import Publisher, publishing
from tests.owner import TestOwner, task_owner

from axiom_common.drivers.kv_event_feed import KvEventSource
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.model.kv_events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent
from axiom_common.model.prefix import FactsState, PrefixScope, chain
from axiom_common.runtime.logging import Log
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactRequest, encode
from axiom_node_agent import kv_mirror
from axiom_node_agent.fact_teller import FactTeller
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.settings import EngineSettings

NODE, ENGINE = NodeId("n1"), EngineId("n1.e1")
CLOCK = SystemClock()
KIND = kinds()[0]
BLOCK = 16
TEXT = SCRIPTS[0] * 12
"""Of four whole chunks; 1,056 bytes."""
OTHER = SCRIPTS[3] * 12
INCARNATIONS = count(1)


def message(events: Sequence[KvEvent]) -> bytes:
    """As vLLM writes them."""
    return msgspec.msgpack.encode([0.0, [wire_event(event) for event in events], 0])


def wire_event(event: KvEvent) -> dict[str, object]:
    match event:
        case BlocksStored():
            return {
                "type": "BlockStored",
                "block_hashes": event.hashes,
                "parent_block_hash": event.parent,
                "token_ids": event.tokens,
                "block_size": event.block_size,
                "medium": event.medium,
                "lora_name": event.adapter,
                "extra_keys": event.keys,
                "group_idx": event.group,
                "kv_cache_spec_kind": event.attention,
            }
        case BlocksRemoved():
            return {"type": "BlockRemoved", "block_hashes": event.hashes, "medium": event.medium}
        case BlocksCleared():
            return {"type": "AllBlocksCleared"}


@dataclass
class Stage:
    """An engine with its cache, an agent's teller, and who listens."""

    owner: TestOwner
    bus: NatsBus
    region: RegionId
    settings: EngineSettings
    folder: Path
    engine: Publisher
    told: dict[str, list[KvEventSource]]
    cache: EngineCache
    listener: FactListener
    teller: FactTeller
    telling: asyncio.Task[None]

    def credit(self, text: str, salt: str | None = None) -> int:
        """Tokens of a prompt that the engine is said to hold in HBM."""
        scope = PrefixScope(base_model="base", revision=KIND.vocabulary.revision, cache_salt=salt)
        return self.listener.credit(chain(scope, KIND.vocabulary.normalised(text)))

    async def serve(self, text: str, *, is_lost: bool = False, salt: str | None = None) -> None:
        await self.publish(self.cache.serve(text, salt=salt), is_lost=is_lost)

    async def publish(self, events: Sequence[KvEvent], *, is_lost: bool = False) -> None:
        await self.engine.publish(message(events), is_lost=is_lost)

    async def credits(self, text: str, least: int, most: int | None = None) -> None:
        """Soon it is credited with `least` tokens, at most `most`, and never above the truth."""
        depth = self.cache.depth(text)
        most = depth if most is None else most
        await eventually(lambda: least <= self.credit(text) <= most, within_s=15.0)
        assert self.credit(text) <= depth

    async def ask(self, asker: str) -> None:
        request = FactRequest(asker=asker, engines=(ENGINE, EngineId("n1.other")))
        await self.bus.publish(subjects.node_facts_wanted(self.region, NODE), encode(request))

    async def restart_agent(self) -> None:
        """Its end is a clean one; another incarnation begins."""
        await self.end_agent()
        self.teller, self.telling = await start_teller(self)

    async def new_life(self) -> None:
        """Wait until the agent told something as what it is now."""
        now = self.teller._incarnation()
        await eventually(
            lambda: (
                self.listener.reports[-1].incarnation == now and self.state() is FactsState.TOLD
            ),
            within_s=15.0,
        )

    async def end_agent(self) -> None:
        self.telling.cancel()
        await asyncio.gather(self.telling, return_exceptions=True)
        await self.teller.stop()

    def state(self) -> FactsState:
        return self.teller.states()[ENGINE][0]


async def start_teller(stage: Stage) -> tuple[FactTeller, asyncio.Task[None]]:
    incarnation = next(INCARNATIONS)
    teller = FactTeller(
        stage.region,
        NODE,
        stage.folder,
        stage.bus,
        CLOCK,
        AgentMetrics(),
        Log("test", CLOCK),
        incarnation=lambda: incarnation,
    )
    await teller.have([stage.settings])
    return teller, stage.owner.create_task(teller.run(), name="tell facts")


@asynccontextmanager
async def stage(nats_url: str, region: RegionId, folder: Path) -> AsyncIterator[Stage]:
    (folder / "tokenizer.json").write_text(trained_byte_level())
    async with task_owner() as owner, publishing(owner) as engine:
        told = {"sources": [engine.source]}
        async with http_engine(told) as url:
            connection = NatsConnection(nats_url, name="test", clock=CLOCK)
            await connection.start(owner)
            bus = NatsBus(connection)
            listener = FactListener()
            await bus.subscribe(subjects.all_node_facts(region), listener.hear)
            settings = EngineSettings(name="e1", url=url, base_model="base", tokenizer=folder)
            it = Stage(
                owner, bus, region, settings, folder, engine, told,
                EngineCache(KIND.tokenizer, BLOCK), listener, *[None, None],  # type: ignore[list-item]
            )  # fmt: skip
            it.teller, it.telling = await start_teller(it)
            await bus.subscribe(
                subjects.node_facts_wanted(region, NODE), lambda s, p: it.teller.wanted(s, p)
            )
            yield it
            await it.end_agent()
            await bus.close()
            await connection.close()


@asynccontextmanager
async def http_engine(told: dict[str, list[KvEventSource]]) -> AsyncIterator[str]:
    """Says where events come from; nothing there: 404, as a vLLM without them."""

    async def sources(request: web.Request) -> web.Response:
        if not told["sources"]:
            raise web.HTTPNotFound
        named = {
            str(n): {"endpoint": s.endpoint, "replay_endpoint": s.replay_endpoint}
            for n, s in enumerate(told["sources"])
        }
        return web.json_response(named)

    app = web.Application()
    app.router.add_get("/kv_event_sources", sources)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def it(
    nats_url: str, region: RegionId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(kv_mirror, "LOOK_MS", 100.0)
    monkeypatch.setattr(kv_mirror, "LOOK_MS_MAX", 200.0)
    async with stage(nats_url, region, tmp_path) as it:
        yield it


async def test_what_an_engine_holds_is_told_and_withdrawn_and_lost_messages_are_mended(
    it: Stage,
) -> None:
    await it.serve(TEXT)
    least = it.cache.depth(TEXT) - 160
    assert least > 0
    await it.credits(TEXT, least)
    # Another tenant's cache is another one.
    assert it.credit(TEXT, "salt") == 0
    await it.publish([BlocksRemoved(hashes=[it.cache.copies.pop(1)], medium="GPU")], is_lost=True)
    await it.serve(TEXT + "more", is_lost=True)
    await it.serve(OTHER)
    await it.credits(OTHER, 1)
    await it.credits(TEXT, least)
    await it.publish(it.cache.clear())
    await it.credits(TEXT, 0)
    await it.credits(OTHER, 0)


async def test_a_message_lost_on_the_bus_shows_and_two_askers_get_one_snapshot(it: Stage) -> None:
    await it.credits(TEXT, 0)
    await eventually(lambda: it.listener.reports)
    it.listener.deaf = True
    await it.serve(TEXT)
    await eventually(lambda: it.teller.states()[ENGINE][1] > 0)
    told = it.teller._metrics.fact_messages.labels("changes")._value
    await eventually(lambda: told.get() >= 2)
    it.listener.deaf = False
    await eventually(lambda: it.listener.hearer.stream.lacks, within_s=10.0)
    await it.ask("g1")
    await it.ask("g2")
    await it.credits(TEXT, 1)
    assert it.listener.hearer.stream.whole
    snapshots = [r for r in it.listener.reports if r.kind == "snapshot"]
    assert [(r.part, r.parts) for r in snapshots] == [(0, 1)]


async def test_a_new_life_of_the_engine_voids_what_the_old_one_held(it: Stage) -> None:
    await it.serve(TEXT)
    await it.credits(TEXT, 1)
    it.engine.restart()
    it.cache = EngineCache(KIND.tokenizer, BLOCK)
    await it.serve(OTHER)
    await it.credits(OTHER, 1)
    await it.credits(TEXT, 0)


async def test_a_new_life_of_the_agent_knows_what_the_engine_does_not_tell_again(it: Stage) -> None:
    await it.serve(TEXT)
    await it.serve(OTHER)
    await it.credits(OTHER, 1)
    held = it.credit(TEXT)
    assert held
    it.engine.forget_all_but(1)
    await it.restart_agent()
    await it.new_life()
    await it.credits(TEXT, held)
    # It goes on where the one before it ended: nothing was void.
    assert [r.cleared for r in it.listener.reports if r.seq == 1] == [True, True]
    assert it.teller._metrics.kv_losses.labels("restarted")._value.get() == 0


async def test_what_an_agent_knew_counts_once_the_engine_confirms_it(it: Stage) -> None:
    """While the agent is away the engine lives anew, and then is slow to say so."""
    await it.serve(TEXT)
    await it.serve(OTHER)
    await it.credits(OTHER, 1)
    await it.end_agent()
    it.engine.restart()
    it.cache = EngineCache(KIND.tokenizer, BLOCK)
    it.engine.answers = False
    asked = len(it.engine.asked)
    it.teller, it.telling = await start_teller(it)
    await eventually(lambda: len(it.engine.asked) > asked, within_s=15.0)
    assert it.teller.states()[ENGINE][1] > 0
    assert it.state() is FactsState.STARTING
    it.engine.answers = True
    for _ in range(3):
        await it.serve(OTHER)
        await it.publish([BlocksCleared()])
        it.cache.clear()
    await it.serve(OTHER)
    await it.new_life()
    await it.credits(OTHER, 1)
    await it.credits(TEXT, 0)


async def test_no_facts_where_they_would_say_nothing_and_again_when_they_do(it: Stage) -> None:
    await it.serve(TEXT)
    await it.credits(TEXT, 1)
    [source] = it.told["sources"]
    it.told["sources"] = [source, source]
    await eventually(lambda: it.teller.faults() == [f"several-ranks:{ENGINE}"])
    await it.credits(TEXT, 0, most=0)
    it.told["sources"] = []
    await eventually(lambda: it.state() is FactsState.NO_EVENTS)
    it.told["sources"] = [source]
    await it.credits(TEXT, 1)
    assert it.teller.faults() == []


async def test_an_engine_that_loses_its_tokenizer_is_told_of_no_more(it: Stage) -> None:
    await it.serve(TEXT)
    await it.credits(TEXT, 1)
    await it.teller.have([it.settings.model_copy(update={"tokenizer": None})])
    await it.credits(TEXT, 0, most=0)
    bad = it.folder / "bad.json"
    bad.write_text("{}")
    await it.teller.have([it.settings.model_copy(update={"tokenizer": bad})])
    await eventually(lambda: it.teller.faults() == [f"tokenizer-refused:{ENGINE}"])
    await it.teller.have([it.settings])
    await it.credits(TEXT, 1)
