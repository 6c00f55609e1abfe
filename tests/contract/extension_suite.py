"""Axiom's extension in an engine, real or simulated: it pushes what the engine holds, and does as
asked."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.contract.engine_suite import HBM_SLOTS, HOST_SLOTS
from tests.contract.vllm_client import COMPLETIONS, Answer, VllmClient
from tests.eventually import eventually

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.drivers.vllm_extension import ExtensionListener
from axiom_common.drivers.vllm_extension_fold import AdapterEvent, Heard
from axiom_common.drivers.vllm_extension_messages import AdapterEventKind
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.ports.engine import EngineResidency
from axiom_common.ports.engine_extension import EngineWord

NAMES = tuple(EngineAdapter(f"ext-{letter}~1") for letter in "abcdef")
FOLDERS = 5
ROUNDS, AT_ONCE, REQUESTS_OF_ONE = 8, 6, 8
STATE = "/axiom/v1/state"
HANG_UP = aiohttp.ClientTimeout(total=0.05)


@dataclass(frozen=True)
class Telling:
    """An engine whose extension tells at `socket`. `folder` holds adapters ad0 .. ad4; `busy` are
    the fields of a request that runs for seconds."""

    url: str
    folder: str
    socket: Path
    busy: Mapping[str, Any]


class Ear:
    """A listening agent beside a client that makes things happen."""

    def __init__(self, client: VllmClient, engine: VllmEngine, telling: Telling) -> None:
        self.client = client
        self.engine = engine
        self.clock = SystemClock()
        self._busy = telling.busy
        self.events: list[AdapterEvent] = []
        self.gaps = 0
        self.listener = ExtensionListener(telling.socket, self.clock, self._heard)

    def _heard(self, heard: Heard) -> None:
        self.events += heard.events
        self.gaps += heard.gap

    @property
    def word(self) -> EngineWord:
        word = self.listener.fold.word(self.clock.now_ms())
        assert word is not None
        return word

    @property
    def told(self) -> EngineResidency:
        [rank] = self.word.ranks
        return rank.residency

    async def ask_whole(self) -> Answer:
        answer = await self.client.get(STATE)
        self.listener.fold.hear_state(answer.text.encode(), self.clock.now_ms())
        return answer

    async def agrees(self) -> None:
        """What was pushed becomes what the engine holds, its own order included."""
        judge = await self.client.held()
        try:
            await eventually(lambda: self.told == judge, within_s=1.0)
        except AssertionError:
            raise AssertionError(f"pushed {self.told}, held {judge}") from None

    async def in_flight_is(self, counts: dict[EngineAdapter, int]) -> None:
        """The pushed counts become these."""
        try:
            await eventually(lambda: self.word.in_flight == counts, within_s=1.0)
        except AssertionError:
            raise AssertionError(f"pushed {self.word.in_flight}, not {counts}") from None

    async def names_agree(self) -> None:
        """The pushed names become those that the server lists."""
        listed = (await self.engine.models()).adapters
        await eventually(lambda: self.word.registered == listed, within_s=1.0)

    async def call(self, call: str, **arguments: Any) -> Answer:
        return await self.client.post(f"/axiom/v1/{call}", arguments)

    async def does(self, call: str, *, changed: bool = True, **arguments: Any) -> None:
        answer = await self.call(call, **arguments)
        assert answer.body == {"v": 1, "done": True, "changed": changed}, answer.text

    async def refuses(self, call: str, reason: str, status: int, **arguments: Any) -> None:
        answer = await self.call(call, **arguments)
        assert (answer.status, answer.body["reason"]) == (status, reason), answer.text

    @contextlib.asynccontextmanager
    async def running(self, model: str) -> AsyncIterator[None]:
        """A request that keeps the engine busy for seconds; hung up at the end."""
        async with self.client.stream(COMPLETIONS, model=model, **self._busy) as events:
            await anext(events)
            yield

    async def use(self, name: EngineAdapter) -> None:
        await self.client.complete(model=name, prompt="x", max_tokens=1)


class Crowd:
    """Clients that use, load, unload, hang up and ask for nonsense, all at once."""

    def __init__(self, client: VllmClient, seed: int) -> None:
        self.client = client
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    async def one(self) -> None:
        for _ in range(REQUESTS_OF_ONE):
            kind = self.chance.choice(["answer", "answer", "stream", "abort", "naming", "refusal"])
            name = self.chance.choice(NAMES)
            await getattr(self, kind)(name)
            self.done[kind] += 1

    async def answer(self, name: EngineAdapter) -> None:
        body = {"model": self.chance.choice([name, "tiny"]), "prompt": "x", "max_tokens": 2}
        assert (await self.client.post(COMPLETIONS, body)).status in (200, 404)

    async def stream(self, name: EngineAdapter) -> None:
        body = {"model": name, "prompt": "x", "max_tokens": 4, "stream": True}
        assert (await self.client.post(COMPLETIONS, body)).status in (200, 404)

    async def abort(self, name: EngineAdapter) -> None:
        body = {"model": name, "prompt": "x", "max_tokens": 500, "ignore_eos": True}
        with contextlib.suppress(TimeoutError):
            await self.client.post(COMPLETIONS, body, timeout=HANG_UP)

    async def naming(self, name: EngineAdapter) -> None:
        path = self.chance.choice(["/v1/load_lora_adapter", "/v1/unload_lora_adapter"])
        body = {"lora_name": name, "lora_path": self.client.path(NAMES.index(name))}
        await self.client.post(path, body)

    async def refusal(self, name: EngineAdapter) -> None:
        bad = self.chance.choice(
            [{"model": name, "max_tokens": -3}, {"model": 5}, [], {"model": "?"}]
        )
        assert (await self.client.post(COMPLETIONS, bad)).status >= 400


class ExtensionSuite:
    """Inherit and give the fixture `telling`."""

    @pytest.fixture
    async def ear(self, telling: Telling) -> AsyncIterator[Ear]:
        """Listening, knowing the whole; the first HOST_SLOTS names are loaded and all there is."""
        driver = VllmEngine(telling.url)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            client = VllmClient(
                telling.url,
                session,
                base="tiny",
                path=lambda n: f"{telling.folder}/ad{n % FOLDERS}",
            )
            await client.unload(*NAMES)
            ear = Ear(client, driver, telling)
            ear.listener.open()
            for number, name in enumerate(NAMES[:HOST_SLOTS]):
                await client.load(name, number)
            await ear.ask_whole()
            await eventually(lambda: not ear.listener.fold.needs_whole(ear.clock.now_ms()))
            yield ear
            await client.unload(*NAMES)
            ear.listener.close()
        await driver.close()

    async def test_the_pushed_state_is_the_engines_own(self, ear: Ear) -> None:
        crowd = Crowd(ear.client, seed=7)
        for _ in range(ROUNDS):
            async with asyncio.TaskGroup() as clients:
                for number in range(AT_ONCE):
                    clients.create_task(crowd.one(), name=f"client {number}")
            await ear.in_flight_is({})
            await ear.agrees()
            await ear.names_agree()
        assert crowd.done.total() == ROUNDS * AT_ONCE * REQUESTS_OF_ONE
        assert min(crowd.done.values()) > 20
        assert {event.kind for event in ear.events} == set(AdapterEventKind)
        assert ear.gaps == 0
        assert ear.listener.malformed == 0

    async def test_requests_in_flight_are_exact(self, ear: Ear) -> None:
        first, second = NAMES[:2]
        client = ear.client
        async with ear.running(first), ear.running(second), ear.running("tiny"):
            await ear.in_flight_is({first: 1, second: 1, BASE: 1})
            async with ear.running(first):
                await ear.in_flight_is({first: 2, second: 1, BASE: 1})
            # Hung up: over at once, long before its 900 tokens.
            await ear.in_flight_is({first: 1, second: 1, BASE: 1})
            await client.events(COMPLETIONS, model=second, prompt="x", max_tokens=3)
            await ear.in_flight_is({first: 1, second: 1, BASE: 1})
        await ear.in_flight_is({})

    async def test_a_request_that_waits_for_a_slot_is_in_flight_and_what_runs_is_in_order(
        self, ear: Ear
    ) -> None:
        first, second, third = NAMES[:3]
        async with ear.running(first), ear.running(second):
            body = {"model": third, "prompt": "x", "max_tokens": 1}
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(ear.client.post(COMPLETIONS, body), name="waits")
                await eventually(lambda: ear.word.in_flight.get(third) == 1)
                assert set(ear.told.hbm) == {first, second}
                waiting.cancel()
            await ear.in_flight_is({first: 1, second: 1})
            await ear.agrees()

    async def test_a_load_to_host_takes_no_slot(self, ear: Ear) -> None:
        new = NAMES[HOST_SLOTS]
        before = ear.told
        await ear.does("load_to_host", name=new, path=ear.client.path(HOST_SLOTS))
        await ear.agrees()
        assert ear.told.hbm == before.hbm
        assert ear.told.host == (*before.host[1:], new)
        assert ear.events[-1].kind is AdapterEventKind.LOADED
        assert ear.events[-1].took_ms > 0
        await ear.does("load_to_host", changed=False, name=new)
        await ear.use(new)
        await ear.agrees()
        assert ear.told.hbm == (before.hbm[1], new)

    async def test_a_load_to_host_is_refused_for_what_it_says(self, ear: Ear) -> None:
        new = NAMES[HOST_SLOTS]
        before = ear.told
        await ear.refuses("load_to_host", "unknown-name", 404, name=new)
        await ear.refuses("load_to_host", "load-failed", 422, name=new, path="/nowhere/at/all")
        await ear.refuses("load_to_host", "name-taken", 409, name=NAMES[0], path="/elsewhere")
        await ear.refuses("load_to_host", "name-taken", 409, name="tiny", path="/elsewhere")
        await ear.refuses("load_to_host", "bad-request", 400)
        await ear.agrees()
        assert ear.told == before
        assert new not in (await ear.engine.models()).adapters

    async def test_a_slot_is_freed_when_nobody_uses_it(self, ear: Ear) -> None:
        idle, busy = NAMES[:2]
        await ear.use(idle)
        async with ear.running(busy):
            await ear.refuses("free_slot", "in-use", 409, name=busy)
            await ear.refuses("drop", "in-use", 409, name=busy)
            await ear.does("free_slot", name=idle)
            await ear.agrees()
            assert ear.told.hbm == (busy,)
            assert idle in ear.told.host
        await ear.does("free_slot", changed=False, name=idle)
        await ear.refuses("free_slot", "unknown-name", 404, name="nobody")
        assert (await ear.client.complete(model=idle, prompt="x", max_tokens=1))["choices"]
        await ear.agrees()
        assert ear.told.hbm == (busy, idle)

    async def test_a_drop_forgets_both_copies_and_a_nameless_one_by_its_number(
        self, ear: Ear
    ) -> None:
        dropped, unloaded = NAMES[:2]
        await ear.does("drop", name=dropped)
        await ear.agrees()
        assert dropped not in ear.told.host
        number = (await ear.client.residency())[2][unloaded]
        await ear.client.unload(unloaded)
        await eventually(lambda: f"({number})" in ear.told.host, within_s=1.0)
        await ear.does("drop", id=number)
        await ear.agrees()
        assert len(ear.told.host) == HOST_SLOTS - 2
        assert (await ear.client.complete(model=dropped, prompt="x", max_tokens=1))["choices"]

    async def test_a_pinned_adapter_stays_while_others_come_and_go(self, ear: Ear) -> None:
        pinned, *others = NAMES[:HOST_SLOTS]
        await ear.use(pinned)
        await ear.does("pin", name=pinned)
        await ear.does("pin", changed=False, name=pinned)
        await eventually(lambda: ear.word.ranks[0].pinned == {pinned}, within_s=1.0)
        for number, name in enumerate(NAMES[HOST_SLOTS:], HOST_SLOTS):
            await ear.client.load(name, number)
        for name in (*others, *NAMES[HOST_SLOTS:], *others):
            await ear.use(name)
            await ear.agrees()
            assert pinned in ear.told.hbm
        await ear.refuses("free_slot", "pinned", 409, name=pinned)
        await ear.refuses("drop", "pinned", 409, name=pinned)
        # A batch that needs every slot gets it.
        async with ear.running(others[0]), ear.running(others[1]):
            await eventually(lambda: set(ear.told.hbm) == set(others[:2]))
            assert pinned in ear.told.host
        await ear.does("unpin", name=pinned)
        for name in (*others, *NAMES[HOST_SLOTS:]):
            await ear.use(name)
        await ear.agrees()
        assert pinned not in ear.told.host

    async def test_pins_leave_room_to_change(self, ear: Ear) -> None:
        for name in NAMES[: HOST_SLOTS - 1]:
            await ear.does("pin", name=name)
        await ear.refuses("pin", "no-room", 409, name=NAMES[HOST_SLOTS - 1])
        for name in NAMES[: HOST_SLOTS - 1]:
            await ear.does("unpin", name=name)
        await ear.agrees()

    async def test_an_agent_that_was_away_hears_the_whole(self, ear: Ear) -> None:
        ear.listener.close()
        for name in NAMES[:HBM_SLOTS]:
            await ear.use(name)
        ear.listener.fold.forget()
        ear.listener.open()
        # By the next step and the next beat, without being asked.
        await ear.use(NAMES[0])
        await eventually(lambda: ear.listener.fold.word(ear.clock.now_ms()) is not None)
        await eventually(lambda: not ear.listener.fold.needs_whole(ear.clock.now_ms()))
        await ear.agrees()
        async with ear.running(NAMES[0]):
            await ear.in_flight_is({NAMES[0]: 1})

    async def test_the_state_is_told_on_request(self, ear: Ear) -> None:
        await ear.use(NAMES[1])
        answer = await ear.ask_whole()
        assert (answer.status, answer.body["supported"]) == (200, True)
        assert answer.body["version"].startswith("0.32.")
        slots, host, numbers = await ear.client.residency()
        residency = answer.body["residency"]
        assert (set(residency["slots"]), residency["host"]) == (set(slots), host)
        assert {
            n: entry["id"] for n, entry in answer.body["names"]["registered"].items()
        } == numbers
        assert answer.body["requests"]["adapters"] == {}
        assert (await ear.client.get("/axiom/v1/nothing")).status == 404
        await ear.refuses("pin", "bad-request", 400)
