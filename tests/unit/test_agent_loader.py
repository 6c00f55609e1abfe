"""The one task that changes what an engine holds: askers, order, failures, plans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from tests.agent_parts import ENGINE, Changes, declared, name, spec
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.adapter import AdapterState
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.plan import EnginePlan
from axiom_common.model.reason import Reason
from axiom_common.ports.engine import EngineModels, EngineSample, LoadedAdapters
from axiom_common.runtime.logging import Log
from axiom_common.testing.clock import settle
from axiom_common.testing.engine import FakeEngine
from axiom_node_agent import loader as loading
from axiom_node_agent.engine_view import view_of
from axiom_node_agent.loader import (
    ASKERS_MAX,
    LOADS_WAITING_MAX,
    RECONCILE_MS,
    RELIST_MS,
    SLOT_WAIT_MS,
    Loader,
)
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.poller import Poller
from axiom_node_agent.reconciler import DRAIN_MS
from axiom_node_agent.state import EngineBook

RESIDENT = EnsureResult(outcome=EnsureOutcome.RESIDENT)
JOINED = EnsureResult(outcome=EnsureOutcome.JOINED)
ON_REQUEST = EnsureResult(outcome=EnsureOutcome.ON_REQUEST)
CLOCK = SystemClock()


def refused(reason: Reason) -> EnsureResult:
    return EnsureResult(outcome=EnsureOutcome.REFUSED, reason=reason)


class GatedEngine(FakeEngine):
    """Loads wait at a gate; `began` lists those that came there, `ahead` what was read ahead."""

    def __init__(self, *, max_loras: int) -> None:
        super().__init__(max_loras=max_loras)
        self.gate = asyncio.Event()
        self.gate.set()
        self.began: list[EngineAdapter] = []
        self.ahead: list[str] = []
        self.disk = asyncio.Event()
        self.disk.set()

    async def read_ahead(self, path: str) -> None:
        self.ahead.append(path)
        await self.disk.wait()

    async def load(self, name: EngineAdapter, path: str) -> None:
        self.began.append(name)
        await self.gate.wait()
        await super().load(name, path)


@dataclass
class Bench:
    """A loader at work."""

    engine: GatedEngine
    book: EngineBook
    loader: Loader
    poller: Poller
    unloads: list[bool]
    stop: Callable[[], object]

    async def ensure(self, text: str, *, deadline_ms: float = 5_000.0) -> EnsureResult:
        return await self.loader.ensure(spec(text), deadline_ms=deadline_ms)

    async def relist(self) -> None:
        """The agent hears what others loaded."""
        self.book.saw_models(await self.engine.models(), CLOCK.now_ms())

    def forget_leases(self) -> None:
        """As when the requests that were granted have come and gone."""
        self.book.leases.held(CLOCK.now_ms() + 10_000.0)


@asynccontextmanager
async def bench(*, hbm_slots: int = 2, names_ms: float = 0.0) -> AsyncIterator[Bench]:
    engine = GatedEngine(max_loras=hbm_slots)
    book = EngineBook(declared(hbm_slots=hbm_slots, host_slots=8), Changes())
    metrics, log = AgentMetrics(), Log("test", CLOCK)
    poller = Poller(
        book,
        engine,
        CLOCK,
        metrics,
        log,
        poll_ms=20.0,
        names_ms=names_ms,
        on_restart=lambda: None,
    )
    unloads = [True]
    loader = Loader(
        book,
        engine,
        CLOCK,
        metrics,
        log,
        list_names=lambda: poller.list_names(every_ms=RELIST_MS),
        may_unload=lambda: unloads[0],
        read_ahead=engine.read_ahead,
    )
    await poller.poll()
    async with task_owner() as owner:
        running = owner.create_task(loader.run(), name="loader")
        yield Bench(engine, book, loader, poller, unloads, running.cancel)


async def test_a_load_is_done_once_for_all_who_ask() -> None:
    async with bench() as at:
        at.engine.gate.clear()
        asked = [asyncio.ensure_future(at.ensure("a")) for _ in range(3)]
        await eventually(lambda: at.engine.began)
        at.engine.gate.set()
        assert await asyncio.gather(*asked) == [RESIDENT, JOINED, JOINED]
        assert at.engine.loads == [name("a")]
        assert await at.ensure("a") == RESIDENT
        assert at.engine.loads == [name("a")]


async def test_a_registered_name_out_of_hbm_is_activated_by_its_request() -> None:
    async with bench() as at:
        for text in ("a", "b", "c"):
            await at.engine.load(name(text), spec(text).path)
        await at.relist()
        at.engine.began.clear()
        assert await at.ensure("a") == ON_REQUEST
        assert at.engine.began == []


async def test_loads_run_one_at_a_time_and_no_more_wait_than_there_are_places() -> None:
    async with bench(hbm_slots=LOADS_WAITING_MAX + 2) as at:
        at.engine.gate.clear()
        asked = [asyncio.ensure_future(at.ensure("a0"))]
        await eventually(lambda: at.engine.began)
        for number in range(1, LOADS_WAITING_MAX + 1):
            asked.append(asyncio.ensure_future(at.ensure(f"a{number}")))
        await asyncio.sleep(0)
        assert await at.ensure("one-too-many") == refused(Reason.TOO_MANY_LOADS)
        assert at.engine.began == [name("a0")]
        at.engine.gate.set()
        assert await asyncio.gather(*asked) == [RESIDENT] * (LOADS_WAITING_MAX + 1)
        assert at.engine.began == [name(f"a{n}") for n in range(LOADS_WAITING_MAX + 1)]


async def test_no_slot_is_taken_from_a_request() -> None:
    async with bench() as at:
        assert await at.ensure("a") == RESIDENT
        assert await at.ensure("b") == RESIDENT
        began_ms = CLOCK.now_ms()
        assert await at.ensure("c") == refused(Reason.NO_IDLE_SLOT), "both are leased"
        assert CLOCK.now_ms() - began_ms >= SLOT_WAIT_MS, "its word might have been on its way"
        at.book.in_flight({name("a"): 1}, CLOCK.now_ms())
        at.forget_leases()
        assert await at.ensure("c") == RESIDENT
        assert {copy.adapter for copy in at.book.lru.hbm} == {name("a"), name("c")}


async def test_a_slot_that_is_idle_in_a_moment_is_waited_for() -> None:
    async with bench() as at:
        for text in ("a", "b"):
            assert await at.ensure(text) == RESIDENT
        at.forget_leases()
        at.book.in_flight({name("a"): 1, name("b"): 1}, CLOCK.now_ms())
        asked = asyncio.ensure_future(at.ensure("c"))
        await settle()
        assert not asked.done()
        at.book.in_flight({name("a"): 1}, CLOCK.now_ms())
        assert await asked == RESIDENT
        assert at.engine.loads[-1] == name("c")


@pytest.mark.parametrize("registered", [True, False], ids=["on request", "by a load"])
async def test_of_two_who_want_the_last_idle_slot_one_gets_it(registered: bool) -> None:
    async with bench() as at:
        for text in "cdab" if registered else "ab":
            await at.engine.load(name(text), spec(text).path)
        await at.relist()
        at.book.in_flight({name("a"): 1}, CLOCK.now_ms())
        answers = await asyncio.gather(at.ensure("c"), at.ensure("d"))
        won = ON_REQUEST if registered else RESIDENT
        assert sorted(answers, key=str) == sorted([won, refused(Reason.NO_IDLE_SLOT)], key=str), (
            answers
        )
        winner = name("cd"[answers.index(won)])
        assert {copy.adapter for copy in at.book.lru.hbm} == {name("a"), winner}


@pytest.mark.parametrize(
    ("hbm_slots", "accepted", "reason"),
    [
        (2, 2, Reason.NO_IDLE_SLOT),
        (LOADS_WAITING_MAX + 4, LOADS_WAITING_MAX, Reason.TOO_MANY_LOADS),
    ],
)
async def test_in_a_storm_each_is_answered_in_time_and_no_more_wait_than_may(
    hbm_slots: int, accepted: int, reason: Reason
) -> None:
    async with bench(hbm_slots=hbm_slots) as at:
        at.engine.gate.clear()
        asked = (at.ensure(f"a{number}", deadline_ms=400.0) for number in range(200))
        async with asyncio.timeout(5.0):
            reasons = [answer.reason for answer in await asyncio.gather(*asked)]
        assert set(reasons) == {Reason.DEADLINE_EXCEEDED, reason}
        assert reasons.count(Reason.DEADLINE_EXCEEDED) == len(at.book.loads)
        assert len(at.book.loads) in (accepted, accepted + 1), "one may be at the engine"


async def test_many_may_wait_for_one_load_but_not_any_number() -> None:
    async with bench() as at:
        at.engine.gate.clear()
        asked = [asyncio.ensure_future(at.ensure("a")) for _ in range(ASKERS_MAX)]
        await eventually(lambda: at.engine.began)
        assert await at.ensure("a") == refused(Reason.TOO_MANY_LOADS)
        at.engine.gate.set()
        assert set(await asyncio.gather(*asked)) == {RESIDENT, JOINED}
        assert await at.ensure("a") == RESIDENT


async def test_an_adapters_files_are_read_before_the_engine_has_to_unless_it_holds_a_copy() -> None:
    async with bench() as at:
        at.engine.disk.clear()
        first = asyncio.ensure_future(at.ensure("a"))
        await eventually(lambda: at.engine.ahead)
        assert at.engine.began == []
        at.engine.disk.set()
        assert await first == RESIDENT
        await at.engine.unload(name("a"))
        await at.relist()
        assert await at.ensure("a") == RESIDENT
        assert at.engine.began == [name("a"), name("a")]
        assert at.engine.ahead == [spec("a").path], "its copy outlived its name"


async def test_a_disk_that_hangs_holds_a_load_up_for_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "READ_AHEAD_MS", 20.0)
    async with bench() as at:
        at.engine.disk.clear()
        assert await at.ensure("a") == RESIDENT


async def test_a_slot_that_is_used_by_the_time_a_load_comes_up_is_left() -> None:
    async with bench() as at:
        at.engine.gate.clear()
        first = asyncio.ensure_future(at.ensure("a"))
        await eventually(lambda: at.engine.began)
        second = asyncio.ensure_future(at.ensure("b"))
        await asyncio.sleep(0)
        await FakeEngine.load(at.engine, name("x"), "somewhere")
        await at.relist()
        at.engine.begin(name("x"))
        await at.poller.poll()
        at.engine.gate.set()
        assert await first == RESIDENT
        assert await second == refused(Reason.NO_IDLE_SLOT)
        assert name("b") not in at.engine.loads


@pytest.mark.parametrize("deadline_ms", [0.0, 30.0])
async def test_an_askers_deadline_does_not_end_the_load(deadline_ms: float) -> None:
    async with bench() as at:
        at.engine.gate.clear()
        assert await at.ensure("a", deadline_ms=deadline_ms) == refused(Reason.DEADLINE_EXCEEDED)
        at.engine.gate.set()
        await eventually(lambda: name("a") in at.book.registered)
        assert await at.ensure("a") == RESIDENT


async def test_failures_have_their_reasons_and_are_not_repeated_at_once() -> None:
    async with bench() as at:
        at.engine.absent.add(spec("a").path)
        assert await at.ensure("a") == refused(Reason.ADAPTER_NOT_FOUND)
        at.engine.fail_loads = 1
        assert await at.ensure("b") == refused(Reason.ENGINE_REFUSED)
        at.engine.down = True
        assert await at.ensure("c") == refused(Reason.NOT_READY)
        at.engine.down = False
        at.engine.began.clear()
        assert await at.ensure("a") == refused(Reason.ADAPTER_NOT_FOUND)
        assert await at.ensure("b") == refused(Reason.ENGINE_REFUSED)
        assert at.engine.began == []


async def test_a_plan_fills_free_slots_and_evicts_nothing() -> None:
    async with bench() as at:
        assert await at.ensure("x") == RESIDENT
        at.loader.want(EnginePlan(engine=ENGINE, load=(spec("a"), spec("b"))))
        await eventually(lambda: name("a") in at.book.registered)
        assert await at.ensure("a") == RESIDENT
        await asyncio.sleep(0.3)
        assert at.engine.loads == [name("x"), name("a")]


async def test_a_planned_unload_waits_for_the_last_request_and_spares_peoples_own_names() -> None:
    async with bench() as at:
        await at.engine.load(EngineAdapter("by-hand"), "somewhere")
        await at.relist()
        assert await at.ensure("a") == RESIDENT
        at.engine.begin(name("a"))
        at.book.in_flight({name("a"): 1}, CLOCK.now_ms())
        await at.poller.poll()
        at.loader.want(EnginePlan(engine=ENGINE, unload=(name("a"), EngineAdapter("by-hand"))))
        await asyncio.sleep(0.5)
        assert at.engine.unloads == []
        at.engine.end(name("a"))
        await at.poller.poll()
        at.book.in_flight({}, CLOCK.now_ms())
        await eventually(lambda: at.engine.unloads == [name("a")])
        assert list(at.book.registered) == ["by-hand"]


async def test_an_adapter_that_is_being_unloaded_is_loaded_anew_for_who_asks() -> None:
    async with bench() as at:
        assert await at.ensure("a") == RESIDENT
        at.book.unload_started(name("a"), CLOCK.now_ms())
        asked = asyncio.ensure_future(at.ensure("a"))
        await at.engine.unload(name("a"))
        at.book.unload_ended(name("a"), CLOCK.now_ms(), done=True)
        assert await asked == RESIDENT
        assert at.engine.loads == [name("a"), name("a")]


async def test_a_list_that_a_load_overtook_is_dropped() -> None:
    async with bench() as at:
        listed = at.engine.models

        async def overtaken() -> EngineModels:
            models = await listed()
            await at.ensure("a")
            return models

        at.engine.models = overtaken  # type: ignore[method-assign]
        await at.poller.poll()
        assert list(at.book.registered) == [name("a")]


async def test_a_name_that_was_unloaded_by_hand_is_loaded_again_for_who_asks() -> None:
    async with bench(names_ms=60_000.0) as at:
        assert await at.ensure("a") == RESIDENT
        await at.poller.poll()
        await at.engine.unload(name("a"))
        await asyncio.sleep(RELIST_MS / 1e3)
        assert await at.ensure("a") == RESIDENT
        assert at.engine.loads == [name("a"), name("a")]


async def test_an_engine_that_does_not_list_its_names_holds_nobody_up() -> None:
    async with bench(names_ms=60_000.0) as at:
        assert await at.ensure("a") == RESIDENT
        await at.poller.poll()
        await asyncio.sleep(RELIST_MS / 1e3)
        at.engine.models = _never  # type: ignore[method-assign]
        asked = (at.ensure("a", deadline_ms=2_000.0) for _ in range(20))
        assert await asyncio.gather(*asked) == [RESIDENT] * 20


async def test_a_name_that_others_loaded_is_asked_for_once_the_metrics_tell_of_it() -> None:
    async with bench(names_ms=60_000.0) as at:
        sample, held = at.engine.sample, frozenset({name("x")})

        async def telling() -> EngineSample:
            loaded = LoadedAdapters(hbm=held, host=frozenset())
            return replace(await sample(), loaded=loaded)

        at.engine.sample = telling  # type: ignore[method-assign]
        await at.engine.load(name("x"), "/x")
        await at.poller.poll()
        assert list(at.book.registered) == [name("x")]
        assert at.book.lru.hbm[-1].adapter == name("x")
        # Unloaded, its copy is told on; that is no news with each poll.
        await at.engine.unload(name("x"))
        await at.relist()
        at.engine.models = _never  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            await at.poller.poll()
        assert not at.book.registered


async def _never() -> EngineModels:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_name_that_stands_for_other_weights_is_loaded_anew() -> None:
    async with bench() as at:
        await at.engine.load(name("a"), "/elsewhere")
        await at.relist()
        assert await at.ensure("a") == RESIDENT
        assert (await at.engine.models()).adapters == {name("a"): spec("a").path}
        assert await at.ensure("a") == RESIDENT
        assert at.engine.unloads == [name("a")]


async def test_a_plan_replaces_other_weights_under_its_names() -> None:
    async with bench(hbm_slots=3) as at:
        await at.engine.load(name("a"), "/elsewhere")
        await at.relist()
        at.loader.want(EnginePlan(engine=ENGINE, load=(spec("a"),)))
        await eventually(lambda: at.book.registered == {name("a"): spec("a").path})
        assert at.engine.unloads == [name("a")]


async def test_a_plan_unloads_a_name_once_and_not_what_was_asked_for_since() -> None:
    async with bench() as at:
        for text in ("a", "b"):
            await at.engine.load(name(text), spec(text).path)
        await at.relist()
        retire = EnginePlan(engine=ENGINE, unload=(name("a"), name("b")))
        at.loader.want(retire)
        assert await at.ensure("b") == RESIDENT
        at.forget_leases()
        await eventually(lambda: at.engine.unloads == [name("a")])
        await at.engine.load(name("a"), spec("a").path)
        await at.relist()
        at.loader.want(retire)
        await asyncio.sleep((DRAIN_MS + 1.5 * RECONCILE_MS) / 1e3)
        assert at.engine.unloads == [name("a")]
        at.loader.want(EnginePlan(engine=ENGINE, unload=(name("b"),)))
        await eventually(lambda: at.engine.unloads == [name("a"), name("b")])


async def test_nothing_is_unloaded_while_requests_may_be_unheard_of() -> None:
    async with bench() as at:
        at.unloads[0] = False
        await at.engine.load(name("a"), spec("a").path)
        await at.relist()
        at.loader.want(EnginePlan(engine=ENGINE, unload=(name("a"),)))
        await eventually(lambda: at.book.lives[name("a")].state is AdapterState.DRAINING)
        await asyncio.sleep((DRAIN_MS + 1.5 * RECONCILE_MS) / 1e3)
        assert at.engine.unloads == []
        at.unloads[0] = True
        await eventually(lambda: at.engine.unloads == [name("a")])


async def test_the_names_of_a_large_fleet_do_not_pile_up() -> None:
    async with bench() as at:
        names_max = view_of(at.book, 0.0).names_max
        texts = [f"a{number}" for number in range(names_max + 5)]
        await at.engine.load(EngineAdapter("by-hand"), "somewhere")
        for text in texts:
            await at.engine.load(name(text), spec(text).path)
        at.book.in_flight({name("a1"): 1}, CLOCK.now_ms())
        await at.relist()
        at.loader.want(EnginePlan(engine=ENGINE, load=(spec("a2"),)))
        gone = [name(f"a{number}") for number in (0, 3, 4, 5, 6, 7)]
        await eventually(lambda: len(at.book.registered) == names_max)
        assert at.engine.unloads == gone, "the oldest, but for what is used, wanted, or not ours"


async def test_who_waits_at_an_engine_that_is_taken_away_is_refused() -> None:
    async with bench() as at:
        at.engine.gate.clear()
        async with task_owner() as owner:
            first = owner.create_task(at.ensure("a"), name="runs")
            second = owner.create_task(at.ensure("b"), name="waits")
            await eventually(lambda: at.engine.began and len(at.book.loads) == 2)
            at.stop()
            assert await first == await second == refused(Reason.NOT_READY)
