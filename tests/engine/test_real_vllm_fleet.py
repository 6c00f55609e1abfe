"""A whole node: two real engines with Axiom's extension, a real agent, a real bus, and a reader of
reports. Whatever requests, loads, unloads and deaths do, at every quiet point the reader's view is
what the engines hold. How late it is otherwise, and how often a replay without the extension would
have been wrong, is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.agent_process import BASE_MODEL, NODE, agent_server, write_settings
from tests.engine.fleet_parts import (
    Copies,
    Errors,
    Lags,
    Tap,
    copies_in,
    copies_told,
    own_word,
    quantile,
    unix_ms,
)
from tests.engine.real_engine import RealEngine, real_engine
from tests.eventually import eventually
from tests.owner import TestOwner, task_owner
from tests.servers import ChildServer, free_port, nats_server, running

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec, ResidencySource
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import BASE, EngineAdapter, EngineId, GatewayId, RegionId, engine_id
from axiom_common.runtime.logging import Log
from axiom_common.runtime.priority import go_first
from axiom_common.state.region_view import RegionView
from axiom_common.wire import keys, subjects
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import EnsureReply, EnsureRequest, decode, encode
from axiom_gateway.inflight import InFlightPublisher
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.poller import Poller
from axiom_node_agent.state import EngineBook

pytestmark = pytest.mark.engine

CLOCK = SystemClock()
GATEWAY = GatewayId("g1")
ADAPTERS, FOLDERS = 8, 5
ROUNDS, CLIENTS, REQUESTS = 10, 5, 12
AGENT_DIES, ENGINE_DIES = 3, 6
"""In the middle of these rounds."""
HANG_UP = aiohttp.ClientTimeout(total=0.05)
WAIT = aiohttp.ClientTimeout(total=120)
QUIET_S = 60.0
READY_S = 120.0
LAG_BAR_MS = 20.0
PACED, REST_S = 120, 0.15


@dataclass
class Place:
    """One engine, what it tells, what is made of it, and a replay that hears nothing of that."""

    id: EngineId
    port: int
    sockets: Path
    real: RealEngine
    book: EngineBook
    stack: contextlib.ExitStack
    dying: bool = False
    tiers: Lags = field(default_factory=Lags)
    orders: Lags = field(default_factory=Lags)
    replay: Errors = field(default_factory=Errors)

    def truth(self, copies: Copies, at_ms: float) -> None:
        self.orders.truth(copies, at_ms)
        self.tiers.truth(frozenset(copies), at_ms)

    def shown(self, engine: EngineState) -> None:
        copies, now_ms = copies_told(engine), unix_ms()
        self.orders.view(copies, now_ms)
        self.tiers.view(frozenset(copies), now_ms)

    def measure(self, on: bool) -> None:
        self.orders.switch(off=not on)
        self.tiers.switch(off=not on)


class Fleet:
    """The node with all around it. `counts` are the requests in flight, as a gateway knows them."""

    def __init__(
        self,
        places: list[Place],
        agent: ChildServer,
        region: RegionId,
        bus: NatsBus,
        http: aiohttp.ClientSession,
    ) -> None:
        self.places = places
        self.agent = agent
        self.region = region
        self.bus = bus
        self.http = http
        self.view = RegionView(region)
        self.counts: Counter[tuple[EngineId, EngineAdapter]] = Counter()
        self.used: set[tuple[EngineId, EngineAdapter]] = set()
        self.done: Counter[str] = Counter()

    async def hear(self, subject: str, payload: bytes) -> None:
        self.view.apply(decode_node_report(subject, payload), CLOCK.now_ms())
        for place in self.places:
            if (state := self.state(place)) is not None:
                place.shown(state)

    def state(self, place: Place) -> EngineState | None:
        """The engine in the view."""
        node = self.view.node(NODE)
        engines = node.engines if node else ()
        return next((e for e in engines if e.engine == place.id), None)

    def vector(self) -> dict[tuple[EngineId, EngineAdapter], int]:
        """What a gateway tells each 50 ms; the replays hear it as well."""
        used, self.used = self.used, set()
        now = {key: count for key, count in self.counts.items() if count}
        for place in self.places:
            counts = {adapter: n for (id_, adapter), n in now.items() if id_ == place.id}
            told = {adapter for id_, adapter in used if id_ == place.id}
            place.book.in_flight(counts, CLOCK.now_ms(), told=told)
        return now

    async def ready(self) -> None:
        """Until the view has all engines ready, by their own word."""

        def told() -> bool:
            states = [self.state(place) for place in self.places]
            return all(
                state is not None
                and state.status is EngineStatus.READY
                and {r.source for r in state.residents} <= {ResidencySource.EXTENSION}
                for state in states
            )

        await eventually(told, within_s=READY_S)

    async def quiet(self) -> None:
        """Nothing is in flight, and the view becomes what the engines say when asked."""
        assert not +self.counts
        for place in self.places:
            await self._agrees(place)
            place.measure(on=True)

    async def _agrees(self, place: Place) -> None:
        truth: Copies = ()
        shown: Copies = ()
        deadline_ms = CLOCK.now_ms() + QUIET_S * 1e3
        while CLOCK.now_ms() < deadline_ms:
            truth = await asyncio.to_thread(own_word, place.real.url)
            state = self.state(place)
            shown = copies_told(state) if state else ()
            if truth == shown:
                break
            await asyncio.sleep(0.05)
        assert shown == truth, f"{place.id}: the view and the engine"
        place.book.names.doubted()
        polls = place.book.samples + 2
        await eventually(lambda: place.book.samples > polls, within_s=QUIET_S)
        place.replay.compare(truth, copies_in(place.book.lru))


class Crowd:
    """Clients of one round; each goes to both engines."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.chance = random.Random(seed)

    async def one(self) -> None:
        for _ in range(REQUESTS):
            kind = self.chance.choice(
                ["answer", "answer", "answer", "stream", "stream", "abort", "base", "naming"]
            )
            place = self.chance.choice(self.fleet.places)
            spec = self.spec(self.chance.randrange(ADAPTERS), place)
            # An engine that is dead refuses, or cuts what it had begun.
            with contextlib.suppress(aiohttp.ClientError):
                await getattr(self, kind)(place, spec)
            self.fleet.done[kind] += 1

    async def answer(self, place: Place, spec: AdapterSpec) -> None:
        adapter = await self._usable(place, spec)
        await self._ask(place, adapter, max_tokens=self.chance.choice([1, 4, 16]))

    async def stream(self, place: Place, spec: AdapterSpec) -> None:
        adapter = await self._usable(place, spec)
        await self._ask(place, adapter, max_tokens=8, stream=True)

    async def abort(self, place: Place, spec: AdapterSpec) -> None:
        adapter = await self._usable(place, spec)
        with contextlib.suppress(TimeoutError):
            await self._ask(place, adapter, timeout=HANG_UP, max_tokens=400, ignore_eos=True)

    async def base(self, place: Place, spec: AdapterSpec) -> None:
        await self._ask(place, BASE, max_tokens=4)

    async def naming(self, place: Place, spec: AdapterSpec) -> None:
        """Somebody loads or unloads by hand."""
        call = self.chance.choice(["load", "unload"])
        body = {"lora_name": spec.engine_name, "lora_path": spec.path}
        url = f"{place.real.url}/v1/{call}_lora_adapter"
        async with self.fleet.http.post(url, json=body) as response:
            await response.read()

    async def _ask(
        self,
        place: Place,
        adapter: EngineAdapter,
        *,
        timeout: aiohttp.ClientTimeout = WAIT,
        **fields: object,
    ) -> None:
        key = (place.id, adapter)
        self.fleet.counts[key] += 1
        self.fleet.used.add(key)
        body = {"model": adapter or BASE_MODEL, "prompt": "a few words", **fields}
        try:
            async with self.fleet.http.post(
                f"{place.real.url}/v1/completions", json=body, timeout=timeout
            ) as response:
                await response.read()
                # It may have been unloaded by hand since, or be half dead.
                expected = (200, 404, 500) if place.dying else (200, 404)
                assert response.status in expected, await response.text()
        finally:
            self.fleet.counts[key] -= 1

    async def _usable(self, place: Place, spec: AdapterSpec) -> EngineAdapter:
        """The adapter once the agent says that it may be used; without it, the base model."""
        request = EnsureRequest(
            engine=place.id, adapter=spec, deadline_ms=10_000.0, gateway=GATEWAY
        )
        subject = subjects.node_ensure(self.fleet.region, NODE)
        try:
            answer = await self.fleet.bus.request(subject, encode(request), timeout_ms=11_000.0)
        except UnavailableError:
            return BASE
        outcome = decode(answer, EnsureReply).result.outcome
        if outcome is EnsureOutcome.REFUSED:
            return BASE
        self.fleet.done[outcome] += 1
        book, name, now_ms = place.book, spec.engine_name, CLOCK.now_ms()
        if outcome is EnsureOutcome.RESIDENT and name not in book.registered:
            if name not in book.loads:
                book.load_accepted(spec, now_ms)
                book.load_started(name, now_ms)
                book.load_ended(name, None, now_ms)
        else:
            book.granted(spec, now_ms)
        return name

    def spec(self, number: int, place: Place) -> AdapterSpec:
        return AdapterSpec(
            name=f"fl-{number}",
            base_model=BASE_MODEL,
            revision=1,
            path=str(place.real.model / f"ad{number % FOLDERS}"),
            rank=8,
        )


@pytest.fixture
def places(pytestconfig: pytest.Config) -> Iterator[list[Place]]:
    """Two engines."""
    python, model = pytestconfig.getoption("engine_python"), pytestconfig.getoption("engine_model")
    with tempfile.TemporaryDirectory(prefix="fl") as folder, contextlib.ExitStack() as all_engines:
        found = []
        for name in ("e1", "e2"):
            sockets, stack = Path(folder, name), contextlib.ExitStack()
            sockets.mkdir()
            all_engines.push(stack)
            port, id_ = free_port(), engine_id(NODE, name)
            real = stack.enter_context(
                real_engine(python.absolute(), model.absolute(), port=port, sockets=sockets)
            )
            declared = EngineState(
                engine=id_,
                url=real.url,
                base_model=BASE_MODEL,
                served_name="",
                status=EngineStatus.STARTING,
                limits=EngineLimits(hbm_slots=2, host_slots=4, max_lora_rank=8),
            )
            book = EngineBook(declared, lambda: None)
            found.append(Place(id_, port, sockets, real, book, stack))
        yield found


@pytest.fixture
def first_nats(tmp_path: Path, places: list[Place]) -> Iterator[str]:
    """A NATS server. It and this process, which stand for other hosts, do not wait for the engines
    that keep this one busy."""
    with running(nats_server(tmp_path / "nats")) as server:
        assert server.pid is not None
        go_first(server.pid)
        before, session = os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/autogroup")
        go_first()
        try:
            yield server.url
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, before)
            with contextlib.suppress(OSError):
                session.write_text("0")


@pytest.fixture
async def fleet(
    tmp_path: Path, region: RegionId, first_nats: str, places: list[Place]
) -> AsyncIterator[Fleet]:
    write_settings(
        tmp_path,
        region,
        first_nats,
        *(
            {
                "url": place.real.url,
                "base_model": BASE_MODEL,
                "extension_socket": str(place.real.agent_socket),
            }
            for place in places
        ),
    )
    agent = agent_server(tmp_path)
    timeout = aiohttp.ClientTimeout(total=120)
    async with task_owner() as owner, aiohttp.ClientSession(timeout=timeout) as http:
        connection = NatsConnection(first_nats, name="test", clock=CLOCK)
        await connection.start(owner)
        bus, registry = NatsBus(connection), NatsRegistry(connection)
        fleet = Fleet(places, agent, region, bus, http)
        await bus.subscribe(subjects.all_node_reports(region), fleet.hear)
        publisher = InFlightPublisher(
            bus,
            CLOCK,
            await registry.bucket(keys.incarnation_bucket(region), lasting=True),
            region=region,
            gateway=GATEWAY,
            read=fleet.vector,
            applied=lambda: 0,
        )
        owner.create_task(publisher.run(), name="vectors")
        taps = [Tap(place.real.tap, place.truth) for place in places]
        replays = [_replay(owner, place) for place in places]
        agent.start()
        try:
            yield fleet
        finally:
            agent.stop()
        for tap in taps:
            tap.close()
        for driver, polling in replays:
            polling.cancel()
            await driver.close()
        await bus.close()
        await connection.close()


def _replay(owner: TestOwner, place: Place) -> tuple[VllmEngine, asyncio.Task[None]]:
    """An agent's polls for the book that hears nothing of the extension."""
    driver = VllmEngine(place.real.url)
    poller = Poller(
        place.book,
        driver,
        CLOCK,
        AgentMetrics(),
        Log("replay", CLOCK),
        poll_ms=250.0,
        names_ms=2_000.0,
        on_restart=lambda: None,
    )
    return driver, owner.create_task(poller.run(), name=f"poll {place.id}")


async def _agent_dies(fleet: Fleet) -> None:
    for place in fleet.places:
        place.measure(on=False)
    fleet.agent.kill()
    await asyncio.sleep(0.3)
    fleet.agent.start()


async def _engine_dies(fleet: Fleet, pytestconfig: pytest.Config) -> None:
    place = fleet.places[0]
    place.measure(on=False)
    place.dying = True
    place.real.kill()
    await asyncio.sleep(0.3)
    python, model = pytestconfig.getoption("engine_python"), pytestconfig.getoption("engine_model")
    starting = real_engine(
        python.absolute(), model.absolute(), port=place.port, sockets=place.sockets
    )
    place.real = await asyncio.to_thread(place.stack.enter_context, starting)
    place.dying = False


@pytest.mark.timeout(900)
async def test_at_every_quiet_point_the_view_is_what_the_engines_hold(
    fleet: Fleet, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    await fleet.ready()
    await fleet.quiet()
    for number in range(ROUNDS):
        crowd = Crowd(fleet, seed=number)
        async with asyncio.TaskGroup() as clients:
            for client in range(CLIENTS):
                clients.create_task(crowd.one(), name=f"client {client}")
            await asyncio.sleep(0.3)
            if number == AGENT_DIES:
                await _agent_dies(fleet)
            if number == ENGINE_DIES:
                await _engine_dies(fleet, pytestconfig)
        await fleet.ready()
        await fleet.quiet()
    busy = _lags(fleet)
    await _one_at_a_time(fleet)
    await fleet.quiet()
    paced = _lags(fleet)
    asked = sum(fleet.done[kind] for kind in ("answer", "stream", "abort", "base"))
    assert asked >= 500
    with capsys.disabled():
        print(f"\n{asked} requests; done: {dict(fleet.done)}")
        for what, lags in (("all at once", busy), ("one at a time", paced)):
            print("\n".join(f"{what}: {line}" for line in lags))
        print(_errors(fleet))


async def _one_at_a_time(fleet: Fleet) -> None:
    """Changes that come alone: the fabric's own lag, with no queue for the machine's cores."""
    crowd = Crowd(fleet, seed=ROUNDS)
    for number in range(PACED):
        place = fleet.places[number % len(fleet.places)]
        await crowd.answer(place, crowd.spec(number // len(fleet.places) % 3, place))
        await asyncio.sleep(REST_S)


def _lags(fleet: Fleet) -> list[str]:
    places, lines = fleet.places, []
    for what, lags in (
        ("tiers", [lag for place in places for lag in place.tiers.taken()]),
        ("tiers and order", [lag for place in places for lag in place.orders.taken()]),
    ):
        within = sum(lag <= LAG_BAR_MS for lag in lags) / len(lags)
        lines.append(
            f"lag of the view, {what}: {len(lags)} changes, p50 {quantile(lags, 0.5):.1f} ms,"
            f" p99 {quantile(lags, 0.99):.1f} ms, max {max(lags):.1f} ms,"
            f" {within:.1%} within {LAG_BAR_MS:.0f} ms"
        )
    return lines


def _errors(fleet: Fleet) -> str:
    lines = []
    for place in fleet.places:
        e = place.replay
        lines.append(
            f"inferred, {place.id}: {e.wrong_adapters} of {e.adapters} adapters in the wrong tier,"
            f" at {e.wrong_points} of {e.points} quiet points;"
            f" {e.wrong_orders} more points with another order"
        )
    return "\n".join(lines)
