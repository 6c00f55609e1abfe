"""What every `Engine` does. A subclass opens one, with the means to put work on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from tests.eventually import succeeds

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import Engine, EngineSample

HBM_SLOTS = 2
HOST_SLOTS = 4
NAMES = tuple(EngineAdapter(f"suite-{letter}~1") for letter in "abcde")


@dataclass
class EngineUnderTest:
    """An engine with `HBM_SLOTS` and `HOST_SLOTS`, none of `NAMES` registered.

    `run(name)` is a context in which one request for `name` runs and has produced output.
    `gone` is the port to an engine that is not there. `tells_use`: its samples name the adapters
    that run. `names_max`: it answers to so many names of adapters; None: to any number.
    """

    engine: Engine
    gone: Engine
    base: str
    path: Callable[[EngineAdapter], str]
    missing_path: str
    run: Callable[[EngineAdapter], AbstractAsyncContextManager[None]]
    tells_use: bool = True
    names_max: int | None = None

    async def load(self, *names: EngineAdapter) -> None:
        """Load each from its path."""
        for name in names:
            await self.engine.load(name, self.path(name))


class EngineSuite:
    """Inherit and implement `open`."""

    def open(self) -> AbstractAsyncContextManager[EngineUnderTest]:
        """A fresh engine, or one without traces of another test."""
        raise NotImplementedError

    async def test_one_that_is_there_is_healthy(self) -> None:
        async with self.open() as test:
            assert await test.engine.healthy()

    async def test_one_that_is_gone_is_unhealthy_and_unavailable(self) -> None:
        async with self.open() as test:
            assert not await test.gone.healthy()
            for call in (
                test.gone.sample(),
                test.gone.models(),
                test.gone.load(NAMES[0], test.path(NAMES[0])),
                test.gone.unload(NAMES[0]),
            ):
                with pytest.raises(UnavailableError):
                    await call

    async def test_models_are_the_base_and_what_is_loaded(self) -> None:
        async with self.open() as test:
            before = await test.engine.models()
            await test.load(*NAMES[:2])
            after = await test.engine.models()
            assert before.base == after.base == (test.base,)
            assert not set(NAMES) & set(before.adapters)
            assert {name: after.adapters.get(name) for name in NAMES[:2]} == {
                name: test.path(name) for name in NAMES[:2]
            }

    async def test_loading_again_is_no_error(self) -> None:
        async with self.open() as test:
            await test.load(NAMES[0], NAMES[0])
            assert NAMES[0] in (await test.engine.models()).adapters

    async def test_a_registered_name_is_not_loaded_from_another_path(self) -> None:
        async with self.open() as test:
            await test.load(*NAMES[:2])
            with pytest.raises(EngineCallError) as refused:
                await test.engine.load(NAMES[0], test.path(NAMES[1]))
            assert refused.value.status == 400
            assert (await test.engine.models()).adapters[NAMES[0]] == test.path(NAMES[0])

    async def test_what_is_not_there_cannot_be_loaded(self) -> None:
        async with self.open() as test:
            with pytest.raises(EngineCallError) as refused:
                await test.engine.load(NAMES[0], test.missing_path)
            assert refused.value.status == 404
            assert test.missing_path in str(refused.value)
            assert NAMES[0] not in (await test.engine.models()).adapters

    async def test_names_beyond_all_memory_are_registered_or_push_out_the_oldest(self) -> None:
        async with self.open() as test:
            assert len(NAMES) > HOST_SLOTS
            await test.load(*NAMES)
            kept = NAMES if test.names_max is None else NAMES[-test.names_max :]
            listed = (await test.engine.models()).adapters
            assert [name for name in listed if name in NAMES] == list(kept)

    async def test_a_name_that_was_pushed_out_can_be_loaded_and_used_again(self) -> None:
        async with self.open() as test:
            await test.load(*NAMES, NAMES[0])
            async with test.run(NAMES[0]):
                assert NAMES[0] in (await test.engine.models()).adapters

    async def test_unloading_forgets_and_forgetting_twice_is_no_error(self) -> None:
        async with self.open() as test:
            await test.load(*NAMES[:2])
            await test.engine.unload(NAMES[0])
            await test.engine.unload(NAMES[0])
            adapters = (await test.engine.models()).adapters
            assert NAMES[0] not in adapters
            assert NAMES[1] in adapters

    async def test_an_idle_engine_shows_nothing_running(self) -> None:
        async with self.open() as test:
            sample = await test.engine.sample()
            assert (sample.running, sample.waiting, sample.deferred) == (0, 0, 0)
            assert sample.in_use == frozenset()
            assert sample.kv_usage == 0.0

    async def test_a_running_request_shows(self) -> None:
        async with self.open() as test:
            await test.load(*NAMES[:2])
            async with test.run(NAMES[0]):
                during = await self.shows(test, 1, frozenset(NAMES[:1]))
            idle = await self.idle(test)
            assert during.max_loras == idle.max_loras == HBM_SLOTS

    async def test_requests_are_counted_and_timed(self) -> None:
        async with self.open() as test:
            await test.load(NAMES[0])
            before = await test.engine.sample()
            async with test.run(NAMES[0]):
                pass
            after = await self.idle(test)
            assert after.ttft.count == before.ttft.count + 1
            assert after.ttft.sum_s > before.ttft.sum_s
            assert after.tpot.count > before.tpot.count
            assert after.tpot.sum_s > before.tpot.sum_s
            assert after.prompt_tokens > before.prompt_tokens
            assert after.generation_tokens > before.generation_tokens
            assert after.started_s == before.started_s

    async def test_its_cache_is_told_and_what_was_looked_up_there(self) -> None:
        async with self.open() as test:
            await test.load(NAMES[0])
            before = await test.engine.sample()
            async with test.run(NAMES[0]):
                pass
            after = await self.idle(test)
            assert before.kv_tokens == after.kv_tokens is not None
            assert after.kv_tokens > 0
            assert before.preemptions == after.preemptions is not None
            assert before.prefix_queries is not None
            assert after.prefix_queries is not None
            assert after.prefix_hits is not None
            assert after.prefix_queries > before.prefix_queries
            assert after.ranks == ()

    async def idle(self, test: EngineUnderTest) -> EngineSample:
        """The first sample without a running request."""
        return await self.shows(test, 0, frozenset())

    async def shows(
        self, test: EngineUnderTest, running: int, in_use: frozenset[EngineAdapter]
    ) -> EngineSample:
        """The first sample that shows so many running requests, of those adapters."""
        samples: list[EngineSample] = []

        async def look() -> None:
            samples.append(await test.engine.sample())
            told = in_use if test.tells_use else frozenset()
            assert (samples[-1].running, samples[-1].in_use) == (running, told)

        await succeeds(look, despite=AssertionError, within_s=10.0)
        return samples[-1]
