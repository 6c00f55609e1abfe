"""A gateway with a real agent and simulated engines: what clients get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.eventually import eventually
from tests.gateway_region import (
    BASE_MODEL,
    CHAT,
    COMPLETIONS,
    Gateway,
    Region,
    region_of,
    served,
)

from axiom_common.model.ids import EngineAdapter

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=2) as region:
        yield region


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        yield gateway


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _all_as_before(region: Region, gateway: Gateway) -> AsyncIterator[None]:
    yield
    slow_down(region, 1.0)
    await eventually(lambda: not gateway.booked)


def slow_down(region: Region, factor: float) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.slow_factor = factor


async def test_chat_whole_and_as_a_stream_under_the_clients_name(
    region: Region, gateway: Gateway
) -> None:
    await region.declare("org/bot")
    await gateway.knows("org/bot")
    body = {"model": "org/bot", "messages": MESSAGES, "max_tokens": 3}
    whole = await gateway.post(CHAT, body, **{"x-request-id": "mine"})
    stream = await gateway.post(CHAT, body | {"stream": True})
    assert (whole.status, whole.json["model"]) == (200, "org/bot")
    assert whole.json["id"] == "chatcmpl-mine"
    assert whole.headers["x-request-id"] == "mine"
    assert stream.status == 200
    assert {event["model"] for event in stream.events[:-1]} == {"org/bot"}
    assert stream.events[-1] == b"[DONE]"
    said = "".join(e["choices"][0]["delta"].get("content", "") for e in stream.events[:-1])
    assert said == whole.json["choices"][0]["message"]["content"]
    assert whole.engine == stream.engine
    assert whole.headers["x-axiom-decision-id"] != stream.headers["x-axiom-decision-id"]


async def test_every_decision_can_be_looked_up_by_the_id_that_the_client_got(
    gateway: Gateway,
) -> None:
    answer = await gateway.ask(BASE_MODEL)
    record = gateway.app.telling.record_of(answer.headers["x-axiom-decision-id"])
    assert record is not None
    (taken,) = record.decisions
    assert taken.decision.winner is not None
    assert taken.decision.winner.engine == answer.engine


async def test_embeddings_are_passed_through(gateway: Gateway) -> None:
    answer = await gateway.post("/v1/embeddings", {"model": BASE_MODEL, "input": ["a", "b"]})
    assert answer.status == 200
    assert [item["index"] for item in answer.json["data"]] == [0, 1]
    assert answer.json["model"] == BASE_MODEL


async def test_models_are_listed_and_found(region: Region, gateway: Gateway) -> None:
    await region.declare("org/bot")
    await gateway.knows("org/bot")
    listed = {m["id"]: m for m in (await gateway.get("/v1/models")).json["data"]}
    assert next(iter(listed)) == BASE_MODEL
    assert (listed[BASE_MODEL]["parent"], listed["org/bot"]["parent"]) == (None, BASE_MODEL)
    assert (await gateway.get("/v1/models/org/bot")).json == listed["org/bot"]
    assert (await gateway.get("/v1/models/org")).status == 404


async def test_unknown_models_and_routes_are_404_in_openais_shape(gateway: Gateway) -> None:
    unknown = await gateway.ask("nope")
    assert unknown.status == 404
    assert unknown.error["code"] == "model_not_found"
    assert unknown.error["param"] == "model"
    assert BASE_MODEL in unknown.error["message"]
    for path in ("/v1/nope", "/v1/chat"):
        assert (await gateway.post(path, {})).error["code"] == "unknown_url"
    assert (await gateway.get(CHAT)).status == 404


async def test_bad_bodies_are_400_and_large_ones_413_however_they_are_sent(
    region: Region,
) -> None:
    async with served(region, body_bytes_max=2048) as gateway:
        assert (await gateway.post(CHAT, b"{")).status == 400
        missing = await gateway.post(CHAT, {"model": BASE_MODEL})
        assert (missing.status, missing.error["param"]) == (400, "messages")
        large = json.dumps({"model": BASE_MODEL, "prompt": "x" * 4096}).encode()
        assert (await gateway.post(COMPLETIONS, large)).status == 413

        async def chunked() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 512):
                yield large[start : start + 512]

        async with gateway.client.post(COMPLETIONS, data=chunked()) as response:
            assert response.status == 413
        assert (await gateway.ask(BASE_MODEL)).status == 200


async def test_a_body_of_megabytes_reaches_the_engine_whole(gateway: Gateway) -> None:
    answer = await gateway.post(COMPLETIONS, {"model": BASE_MODEL, "prompt": "x " * (1 << 20)})
    assert (answer.status, answer.error["param"]) == (400, "input_tokens")


async def test_the_engines_own_4xx_is_passed_on_and_opens_no_breaker(
    region: Region, gateway: Gateway
) -> None:
    before = gateway.counted("tries_total", verdict="rejected")
    for _ in range(8):
        answer = await gateway.post(
            COMPLETIONS, {"model": BASE_MODEL, "prompt": "hi", "max_tokens": -1}
        )
        assert answer.status == 400
    assert answer.error["message"]
    await asyncio.gather(*(gateway.sees(engine.id) for engine in region.engines))
    assert gateway.counted("tries_total", verdict="rejected") == before + 8


async def test_a_client_that_goes_away_stops_the_engine_at_once(
    region: Region, gateway: Gateway
) -> None:
    body = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 200, "stream": True}
    slow_down(region, 20.0)
    async with gateway.client.post(COMPLETIONS, json=body) as response:
        await response.content.readany()
        assert sum(gateway.booked.values()) == 1
        assert sum(engine.running for engine in region.engines) == 1
    response.close()
    await eventually(lambda: not any(e.running for e in region.engines), within_s=1.0)
    await eventually(lambda: not gateway.booked, within_s=1.0)


async def test_a_client_that_goes_away_before_the_first_token_stops_the_engine_too(
    region: Region, gateway: Gateway
) -> None:
    slow_down(region, 100.0)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(gateway.ask(BASE_MODEL), name="ask")
        await eventually(lambda: any(e.running for e in region.engines))
        asking.cancel()
    await eventually(lambda: not any(e.running for e in region.engines), within_s=1.0)
    await eventually(lambda: gateway.counted("requests_total", endpoint=COMPLETIONS, status="499"))


async def test_only_the_profile_header_of_a_gateway_that_allows_it_counts(region: Region) -> None:
    async with served(region, gateway="closed") as gateway:
        await gateway.post(
            COMPLETIONS,
            {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 1},
            **{"x-axiom-profile": "round-robin"},
        )
        assert gateway.counted("decisions_total", profile="axiom", outcome="none") == 1
    async with served(region, gateway="open", allow_profile_header=True) as gateway:
        seen = set()
        for _ in range(4):
            answer = await gateway.post(
                COMPLETIONS,
                {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 1},
                **{"x-axiom-profile": "round-robin"},
            )
            seen.add(answer.engine)
        assert len(seen) == 2
        wrong = await gateway.post(
            COMPLETIONS, {"model": BASE_MODEL, "prompt": "hi"}, **{"x-axiom-profile": "nope"}
        )
        assert wrong.status == 400


async def test_an_adapter_that_people_loaded_is_served_where_it_is(
    region: Region, gateway: Gateway
) -> None:
    own = region.engines[1]
    async with gateway.client.post(
        f"{own.url}/v1/load_lora_adapter", json={"lora_name": "mine", "lora_path": "/mine"}
    ) as response:
        assert response.status == 200
    await gateway.knows("mine")
    asked = gateway.counted("ensures_total", outcome="resident")
    answers = [await gateway.ask("mine") for _ in range(3)]
    assert {answer.engine for answer in answers} == {own.id}
    assert answers[0].json["model"] == "mine"
    assert gateway.counted("ensures_total", outcome="resident") == asked


async def test_a_burst_for_one_new_adapter_costs_one_load(region: Region, gateway: Gateway) -> None:
    await region.declare("bot")
    await gateway.knows("bot")
    before = sum(engine.sim.slots.activations for engine in region.engines)
    answers = await asyncio.gather(*(gateway.ask("bot") for _ in range(8)))
    assert {answer.status for answer in answers} == {200}
    loads = sum(engine.sim.slots.activations for engine in region.engines) - before
    assert loads == len({answer.engine for answer in answers})


async def test_peers_share_what_they_have_in_flight(region: Region, gateway: Gateway) -> None:
    slow_down(region, 100.0)
    async with served(region, gateway="peer") as peer, asyncio.TaskGroup() as group:
        asking = group.create_task(peer.ask(BASE_MODEL, tokens=64), name="ask")
        await eventually(
            lambda: (
                gateway.app.state._others.of_peers(region.engines[0].id)
                or gateway.app.state._others.of_peers(region.engines[1].id)
            )
        )
        (engine,) = {engine for engine, _ in peer.booked}
        assert gateway.app.state._others.of_peers(engine) == {EngineAdapter(""): 1}
        asking.cancel()
        await eventually(lambda: not gateway.app.state._others.of_peers(engine))
