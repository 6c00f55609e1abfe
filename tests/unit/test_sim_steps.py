"""The engine's loop on a clock that the test moves: time scale, loads, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.owner import TestOwner, task_owner

from axiom_common.testing.clock import FakeClock, settle
from axiom_sim.engine.engine import EngineConfig, SimulatedEngine
from axiom_sim.engine.openai_api import Question
from axiom_sim.engine.profiles import PROFILES, Tier
from axiom_sim.engine.refusals import RefusedError

PROFILE = PROFILES["h100-8b"]
LOAD_MS = PROFILE.load_ms(Tier.STORE, 16 * 5 << 20)
FIRST_STEP_MS = 12 * (1 + 1.5 / 64) + 30 + 0.05
STEP_MS = 12 * (1 + 1.5 / 64)


@pytest.fixture
async def owner() -> AsyncIterator[TestOwner]:
    async with task_owner() as owner:
        yield owner


def question(**fields: object) -> Question:
    defaults = {"chat": False, "model": None, "prompt": b"x", "tokens_max": 4, "stream": True}
    return Question(**{**defaults, "ignore_eos": True, **fields})  # type: ignore[arg-type]


def start(owner: TestOwner, **fields: object) -> tuple[SimulatedEngine, FakeClock]:
    clock = FakeClock(1000.0)
    engine = SimulatedEngine(EngineConfig(**fields), clock)  # type: ignore[arg-type]
    owner.create_task(engine.loop.run(), name="steps")
    return engine, clock


@pytest.mark.parametrize("time_scale", [1.0, 10.0])
async def test_tokens_come_when_their_step_ends(owner: TestOwner, time_scale: float) -> None:
    engine, clock = start(owner, time_scale=time_scale)
    stream = engine.ask(question(), None).stream
    await clock.advance((FIRST_STEP_MS - 0.1) / time_scale)
    assert stream.tokens == 0
    await clock.advance(0.2 / time_scale)
    assert stream.tokens == 1
    await clock.advance(3 * STEP_MS / time_scale)
    assert (stream.tokens, stream.ended) == (4, True)
    assert engine.loop.in_flight == 0


async def test_a_slow_engine_is_slow(owner: TestOwner) -> None:
    engine, clock = start(owner)
    engine.loop.faults.slow_factor = 3.0
    stream = engine.ask(question(), None).stream
    await clock.advance(3 * FIRST_STEP_MS - 0.1)
    assert stream.tokens == 0
    await clock.advance(0.2)
    assert stream.tokens == 1


async def test_a_load_stops_running_streams_for_its_time(owner: TestOwner) -> None:
    engine, clock = start(owner)
    stream = engine.ask(question(tokens_max=50), None).stream
    await clock.advance(FIRST_STEP_MS + 0.1)
    loading = owner.create_task(engine.load("a", "/a", in_place=False), name="load")
    await clock.advance(STEP_MS)
    before = stream.tokens
    await clock.advance(LOAD_MS - 1.0)
    assert (stream.tokens, loading.done()) == (before, False)
    await clock.advance(1.0 + STEP_MS + 0.1)
    assert loading.done()
    assert stream.tokens == before + 1
    assert engine.stats()["hbm"] == ["a"]


async def test_a_request_for_an_absent_adapter_loads_it_in_its_step(owner: TestOwner) -> None:
    engine, clock = start(owner, max_loras=1, max_cpu_loras=1)
    for name in ("a", "b"):
        loading = owner.create_task(engine.load(name, "/x", in_place=False), name="load")
        await clock.advance(LOAD_MS + 1.0)
        assert loading.done()
    stream = engine.ask(question(model="a"), None).stream
    await clock.advance(LOAD_MS + FIRST_STEP_MS - 1.0)
    assert stream.tokens == 0
    await clock.advance(1.1)
    assert stream.tokens == 1
    assert engine.stats()["adapter_loads"] == engine.stats()["loads_from_store"] == 3


async def test_answers_are_the_same_for_the_same_seed_adapter_and_prompt(owner: TestOwner) -> None:
    words = []
    for seed in (1, 1, 2):
        engine, _ = start(owner, seed=seed)
        words.append(engine.ask(question(tokens_max=20), None).words)
    assert words[0] == words[1] != words[2]


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"tokens_max": 5}, 5, "length"),
        ({"tokens_max": 5, "ignore_eos": False}, 5, "length"),
        ({"tokens_max": None, "prompt": b"x" * 400}, 412, "length"),
    ],
    ids=["limit", "limit-below-natural-end", "context"],
)
async def test_lengths(
    owner: TestOwner, fields: dict[str, object], tokens: int, reason: str
) -> None:
    engine, _ = start(owner, max_model_len=512)
    generation = engine.ask(question(**fields), None)
    assert len(generation.words) == tokens
    assert generation.sequence.ends_by == reason


async def test_an_answer_that_nobody_cuts_ends_by_itself(owner: TestOwner) -> None:
    engine, _ = start(owner, answer_tokens_max=40)
    lengths = set()
    for number in range(30):
        asked = question(tokens_max=None, ignore_eos=False, prompt=b"%d" % number)
        generation = engine.ask(asked, None)
        assert generation.sequence.ends_by == "stop"
        lengths.add(len(generation.words))
    assert 16 <= min(lengths) < max(lengths) <= 40


async def test_a_cut_engine_ends_its_streams_where_they_are(owner: TestOwner) -> None:
    engine, clock = start(owner)
    stream = engine.ask(question(tokens_max=50), None).stream
    await clock.advance(FIRST_STEP_MS + 0.1)
    assert await stream.next() == 1
    waiting = owner.create_task(stream.next(), name="reader")
    await settle()
    engine.loop.cut_all()
    await settle()
    assert waiting.result() == 0
    assert stream.cut
    assert engine.batch.running == 0


async def test_a_full_engine_refuses(owner: TestOwner) -> None:
    engine, _ = start(owner, max_num_queued_reqs=1)
    engine.ask(question(), None)
    with pytest.raises(RefusedError) as refused:
        engine.ask(question(), None)
    assert refused.value.status == 503
    assert engine.metrics.rejected == 1


async def test_too_many_loads_at_once_are_refused(owner: TestOwner) -> None:
    engine, _ = start(owner)
    tasks = [
        owner.create_task(engine.load(f"a{n}", "/x", in_place=False), name="load")
        for n in range(256)
    ]
    refused = owner.create_task(refusal(engine, "last"), name="load")
    await settle()
    assert refused.result() == 503
    assert not any(task.done() for task in tasks)


async def refusal(engine: SimulatedEngine, name: str) -> int:
    try:
        await engine.load(name, "/x", in_place=False)
    except RefusedError as error:
        return error.status
    return 200
