"""What became of each request, as the log of decisions keeps it beside the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.eventually import eventually
from tests.gateway_region import (
    BASE_MODEL,
    COMPLETIONS,
    Answer,
    Gateway,
    Region,
    region_of,
    served,
)

from axiom_common.model.outcome import Ending, Outcome
from axiom_common.model.reason import Reason

BODY = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 4}


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=2, prompt_tokens_details=True) as region:
        yield region


@pytest.fixture
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        yield gateway


async def outcome_of(gateway: Gateway, decision_id: str) -> Outcome:
    """The client may have the last byte a moment before the request's end."""

    def ended() -> Outcome | None:
        record = gateway.app.telling.record_of(decision_id)
        return record.outcome if record is not None else None

    await eventually(ended)
    outcome = ended()
    assert outcome is not None
    return outcome


async def told(gateway: Gateway, answer: Answer) -> Outcome:
    return await outcome_of(gateway, answer.headers["x-axiom-decision-id"])


async def test_a_whole_answer_has_its_tokens_and_no_times_of_tokens(gateway: Gateway) -> None:
    answer = await gateway.ask(BASE_MODEL, tokens=5)
    outcome = await told(gateway, answer)
    usage = answer.json["usage"]
    assert (outcome.ending, outcome.status, outcome.reason) == (Ending.SERVED, 200, None)
    assert (outcome.engine, outcome.retries, outcome.held_ms) == (answer.engine, 0, 0.0)
    assert outcome.usage.completion_tokens == usage["completion_tokens"] == 5
    assert outcome.usage.prompt_tokens == usage["prompt_tokens"]
    assert outcome.usage.cached_tokens == usage["prompt_tokens_details"]["cached_tokens"]
    assert (outcome.ttft_ms, outcome.tpot_ms, outcome.load_ms) == (None, None, None)
    assert outcome.total_ms > 0.0


async def test_a_stream_has_times_and_tokens_only_where_its_client_asked_for_them(
    gateway: Gateway,
) -> None:
    untold = await told(gateway, await gateway.ask(BASE_MODEL, stream=True))
    assert untold.ending is Ending.SERVED
    assert untold.ttft_ms is not None
    assert untold.tpot_ms is not None
    assert 0.0 < untold.ttft_ms <= untold.total_ms
    assert untold.usage == (None, None, None)
    body = BODY | {"stream": True, "stream_options": {"include_usage": True}}
    answer = await gateway.post(COMPLETIONS, body)
    usage = answer.events[-2]["usage"]
    assert (await told(gateway, answer)).usage == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


async def test_a_load_is_timed(region: Region, gateway: Gateway) -> None:
    await region.declare("bot")
    await gateway.knows("bot")
    outcome = await told(gateway, await gateway.ask("bot"))
    assert outcome.load_ms is not None
    assert 0.0 < outcome.load_ms < outcome.total_ms
    assert (await told(gateway, await gateway.ask("bot"))).load_ms is None


async def test_a_retry_is_counted_and_the_last_engine_named(
    region: Region, gateway: Gateway
) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.fail_requests = 1
    failed = await gateway.ask(BASE_MODEL)
    assert failed.status == 502
    outcome = await told(gateway, failed)
    assert (outcome.ending, outcome.status) == (Ending.REFUSED, 502)
    assert (outcome.reason, outcome.retries) == (Reason.ENGINE_FAILED, 1)
    first, second = region.engines
    first.sim.loop.faults.fail_requests = 1
    async with asyncio.timeout(10):
        while first.sim.loop.faults.fail_requests:
            answer = await gateway.ask(BASE_MODEL)
            outcome = await told(gateway, answer)
            assert (answer.status, outcome.engine) == (200, answer.engine)
    assert (outcome.ending, outcome.retries) == (Ending.SERVED, 1)
    assert outcome.engine == second.id


async def test_what_the_engine_refuses_is_the_clients_end(gateway: Gateway) -> None:
    answer = await gateway.post(COMPLETIONS, BODY | {"max_tokens": 10_000_000})
    outcome = await told(gateway, answer)
    assert (outcome.ending, outcome.status, outcome.reason) == (Ending.REJECTED, 400, None)


async def test_an_error_inside_a_stream_is_broken(region: Region, gateway: Gateway) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.error_in_stream_after = 2
    outcome = await told(gateway, await gateway.ask(BASE_MODEL, stream=True, tokens=8))
    assert (outcome.ending, outcome.status) == (Ending.BROKEN, 200)
    assert outcome.reason is Reason.ENGINE_FAILED


async def test_a_client_that_goes_and_a_request_that_is_cut_are_told_apart(
    region: Region,
) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.slow_factor = 100.0
    async with served(region, request_limit_ms=1_000) as gateway:
        cut = await gateway.ask(BASE_MODEL, tokens=200)
        outcome = await told(gateway, cut)
        assert (outcome.ending, outcome.status) == (Ending.CUT, 504)
        assert outcome.reason is Reason.DEADLINE_EXCEEDED
        gone = asyncio.ensure_future(gateway.ask(BASE_MODEL, tokens=200))
        await eventually(lambda: gateway.booked)
        gone.cancel()
        await eventually(lambda: not gateway.booked)
        outcome = await outcome_of(gateway, "gw-2")
        assert (outcome.ending, outcome.status, outcome.reason) == (Ending.GONE, None, None)


async def test_a_refusal_after_a_hold_tells_how_long_it_was_held() -> None:
    async with region_of(engines=1, max_loras=1, time_scale=1.0) as region:
        await region.declare("a", "b")
        async with served(region, hold_ms=200) as gateway, asyncio.TaskGroup() as group:
            await gateway.knows("a", "b")
            body = {"model": "a", "prompt": "hi", "max_tokens": 200, "ignore_eos": True}
            busy = group.create_task(gateway.post(COMPLETIONS, body), name="busy")
            await eventually(lambda: region.engines[0].running)
            refused = await gateway.ask("b")
            outcome = await told(gateway, refused)
            assert (outcome.ending, outcome.status) == (Ending.REFUSED, 429)
            assert outcome.reason is Reason.ALL_QUARANTINED
            assert outcome.held_ms >= 190.0
            assert outcome.engine is None
            busy.cancel()
