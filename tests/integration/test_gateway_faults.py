"""A gateway while engines fail, agents fall silent, stores are away, and there is no room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.eventually import eventually
from tests.gateway_region import (
    BASE_MODEL,
    COMPLETIONS,
    NODE,
    REGION,
    Gateway,
    Region,
    region_of,
    served,
)

from axiom_common.model.ids import EngineAdapter, GatewayId
from axiom_common.runtime.native import which_runs
from axiom_common.state.liveness import DEAD_MS
from axiom_common.wire import subjects
from axiom_gateway.settings import GatewaySettings

BOT = EngineAdapter("bot~1")
A = EngineAdapter("a~1")


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=2) as region:
        yield region


@pytest.fixture
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        yield gateway
        await eventually(lambda: not gateway.booked)


def slow_down(region: Region, factor: float) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.slow_factor = factor


async def test_an_engine_that_dies_before_the_first_token_is_replaced(
    region: Region, gateway: Gateway
) -> None:
    slow_down(region, 100.0)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(gateway.ask(BASE_MODEL, stream=True), name="ask")
        await eventually(lambda: any(e.running for e in region.engines))
        (first,) = [engine for engine in region.engines if engine.running]
        slow_down(region, 1.0)
        await first.kill()
    answer = asking.result()
    assert answer.status == 200
    assert answer.engine != first.id
    assert answer.events[-1] == b"[DONE]"
    assert gateway.counted("tries_total", verdict="failed") == 1
    record = gateway.app.telling.record_of(answer.headers["x-axiom-decision-id"])
    assert record is not None
    assert len(record.decisions) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_5xx_is_tried_elsewhere_once(
    region: Region, gateway: Gateway, stream: bool
) -> None:
    region.engines[0].sim.loop.faults.fail_requests = 1
    region.engines[1].sim.loop.faults.fail_requests = 1
    answer = await gateway.ask(BASE_MODEL, stream=stream)
    assert (answer.status, answer.error["code"]) == (502, "engine-failed")
    assert "retry-after" in answer.headers
    assert gateway.counted("tries_total", verdict="failed") == 2
    assert (await gateway.ask(BASE_MODEL, stream=stream)).status == 200


async def test_an_engine_that_dies_inside_a_stream_ends_it_with_an_error_event(
    region: Region, gateway: Gateway
) -> None:
    slow_down(region, 20.0)
    body = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 200, "stream": True}
    async with gateway.client.post(COMPLETIONS, json=body) as response:
        first = await response.content.readany()
        assert response.status == 200
        await region.engine(response.headers["x-axiom-engine"]).kill()
        rest = await response.content.read()
    events = (first + rest).strip().split(b"\n\n")
    assert b'"error"' in events[-1]
    assert b"engine-failed" in events[-1]
    assert b"[DONE]" not in rest
    assert gateway.counted("tries_total", verdict="broken") == 1


async def test_an_error_event_of_the_engine_reaches_the_client(
    region: Region, gateway: Gateway
) -> None:
    slow_down(region, 10.0)
    for engine in region.engines:
        engine.sim.loop.faults.error_in_stream_after = 2
    answer = await gateway.ask(BASE_MODEL, stream=True, tokens=8)
    assert answer.status == 200
    assert any("error" in event for event in answer.events if isinstance(event, dict))
    assert gateway.counted("tries_total", verdict="broken") == 1


async def test_failures_open_the_breaker_and_a_probe_closes_it(region: Region) -> None:
    async with served(region) as gateway:
        sick = region.engines[0]
        sick.sim.loop.faults.fail_requests = 10_000
        body = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 1}
        facts = gateway.app.state.engines[sick.id]
        async with asyncio.timeout(5):
            number = 0
            while not facts.breaker.is_open(region.clock.now_ms()):
                number += 1
                answer = await gateway.post(COMPLETIONS, body | {"prompt": f"{number} {'x' * 256}"})
                assert answer.status == 200
        assert facts.row is not None
        assert facts.row.refusal == "breaker-open"
        sick.sim.loop.faults.fail_requests = 0
        await eventually(lambda: facts.row is not None and facts.row.refusal is None)
        async with asyncio.timeout(5):
            while True:
                number += 1
                answer = await gateway.post(COMPLETIONS, body | {"prompt": f"{number} {'x' * 256}"})
                if answer.engine == sick.id:
                    break
        assert answer.status == 200


async def test_an_engine_that_forgot_an_adapter_is_asked_again_or_left_for_another() -> None:
    async with region_of(engines=2, agent=False) as region:
        # The agent believes for a minute that the name is still there, as everybody else does.
        await region.start_agent(names_ms=60_000.0)
        await region.declare("bot")
        async with served(region) as gateway:
            await gateway.knows("bot")
            engine = region.engine((await gateway.ask("bot")).engine)
            await eventually(lambda: gateway.app.state.has_registered(engine.id, BOT))
            async with gateway.client.post(
                f"{engine.url}/v1/unload_lora_adapter", json={"lora_name": BOT}
            ) as response:
                assert response.status == 200
            assert (await gateway.ask("bot")).status == 200
            assert gateway.counted("tries_total", verdict="forgotten") >= 1


async def test_without_any_engine_the_answer_is_503_at_once() -> None:
    async with region_of(engines=1) as region, served(region) as gateway:
        await region.engines[0].kill()
        engine = region.engines[0].id
        await eventually(
            lambda: (row := gateway.app.state.engines[engine].row) and row.refusal == "not-ready"
        )
        answer = await gateway.ask(BASE_MODEL)
        assert (answer.status, answer.error["code"]) == (503, "no-engine")
        assert "not-ready" in answer.error["message"]
        assert int(answer.headers["retry-after"]) >= 1
        assert "no-engine-ready" in gateway.app.degraded()
        region.engines[0].start()
        await gateway.sees(engine)
        assert "no-engine-ready" not in gateway.app.degraded()
        assert (await gateway.ask(BASE_MODEL)).status == 200


async def test_a_registry_that_lost_its_store_is_told_of_and_its_names_still_serve() -> None:
    async with region_of(engines=1) as region:
        await region.declare("bot")
        async with served(region) as gateway:
            assert (await gateway.ask("bot")).status == 200
            assert "registry-reset" not in gateway.app.degraded()
            region.registry.wipe()
            await eventually(lambda: "registry-reset" in gateway.app.degraded())
            assert (await gateway.ask("bot")).status == 200


async def test_without_a_slot_requests_are_held_in_order_until_time_is_up() -> None:
    async with region_of(engines=1, max_loras=1) as region:
        await region.declare("a", "b")
        (engine,) = region.engines
        async with served(region, hold_ms=300, held_max=1) as gateway:
            await gateway.knows("a", "b")
            assert (await gateway.ask("a")).status == 200
            engine.sim.loop.faults.slow_factor = 50.0
            async with asyncio.TaskGroup() as group:
                running = group.create_task(gateway.ask("a", tokens=200), name="run")
                await eventually(lambda: engine.running)
                held = group.create_task(gateway.ask("b"), name="held")
                await eventually(lambda: gateway.app.hold.count == 1)
                over = await gateway.ask("b")
                assert (over.status, over.error["code"]) == (429, "all-quarantined")
                assert "retry-after" in over.headers
                late = await held
                assert (late.status, late.error["code"]) == (429, "all-quarantined")
                # The base model needs no slot.
                engine.sim.loop.faults.slow_factor = 1.0
                assert (await gateway.ask(BASE_MODEL)).status == 200
                assert (await running).status == 200
            assert (await gateway.ask("b")).status == 200


async def test_a_held_request_is_served_once_there_is_room() -> None:
    async with region_of(engines=1, max_loras=1) as region:
        await region.declare("a", "b")
        (engine,) = region.engines
        async with served(region, hold_ms=10_000) as gateway:
            await gateway.knows("a", "b")
            assert (await gateway.ask("a")).status == 200
            engine.sim.loop.faults.slow_factor = 50.0
            async with asyncio.TaskGroup() as group:
                running = group.create_task(gateway.ask("a", tokens=64), name="run")
                await eventually(lambda: engine.running)
                held = [group.create_task(gateway.ask("b"), name="held") for _ in range(3)]
                await eventually(lambda: gateway.app.hold.count == 3)
                engine.sim.loop.faults.slow_factor = 1.0
            assert running.result().status == 200
            assert [task.result().status for task in held] == [200] * 3
            assert gateway.counted("hold_seconds_count") == 3


async def test_an_adapter_that_is_always_in_use_does_not_starve_the_others() -> None:
    async with region_of(engines=1, max_loras=1, time_scale=4.0) as region:
        await region.declare("a", "b")
        async with served(region, hold_ms=8_000) as gateway, asyncio.TaskGroup() as group:
            await gateway.knows("a", "b")
            assert (await gateway.ask("a")).status == 200
            done = asyncio.Event()

            async def keep_in_use(after_ms: float) -> list[int]:
                """One request after the other; with the other one's, never a gap."""
                await asyncio.sleep(after_ms / 1e3)
                statuses = []
                while not done.is_set():
                    statuses.append((await gateway.ask("a", tokens=40)).status)
                return statuses

            keepers = [
                group.create_task(keep_in_use(100.0 * n), name=f"keep {n}") for n in range(3)
            ]
            await eventually(lambda: gateway.booked.get((region.engines[0].id, A)) == 3)
            answer = await gateway.ask("b")
            done.set()
        assert answer.status == 200
        assert {status for keeper in keepers for status in keeper.result()} == {200}


async def test_what_comes_before_the_catalog_is_known_waits_and_is_no_404(region: Region) -> None:
    await region.declare("bot")
    region.registry.disconnect()
    gateway = await region.start_gateway(start_ms=30_000)
    async with asyncio.TaskGroup() as group:
        asking = [
            group.create_task(gateway.ask("bot"), name="ask"),
            group.create_task(gateway.ask("nope"), name="ask for what is not there"),
        ]
        found = group.create_task(gateway.get("/v1/models/bot"), name="find")
        await eventually(lambda: gateway.app._v1.under_way == 2)
        await gateway.sees(*(engine.id for engine in region.engines))
        assert (await gateway.ops("/readyz")).status == 503
        region.registry.reconnect()
    assert [task.result().status for task in asking] == [200, 404]
    assert found.result().json["parent"] == BASE_MODEL
    assert (await gateway.ops("/readyz")).status == 200
    await gateway.stop()


async def test_a_gateway_starts_and_serves_without_bus_registry_and_cache(region: Region) -> None:
    async with served(region, gateway="early"):
        await region.fill_cache()
    region.cache.away = True
    region.registry.disconnect()
    gateway = Gateway(region, GatewaySettings(region=REGION, gateway="late", start_ms=300))
    gateway.bus.disconnect()
    await gateway.start()
    ready = await gateway.ops("/readyz")
    assert (ready.status, ready.json["ready"]) == (503, False)
    assert set(ready.json["degraded"]) >= {"nats-away", "registry-away"}
    assert ready.json["kernel"] == which_runs()
    unknown = await gateway.ask(BASE_MODEL)
    assert (unknown.status, unknown.error["code"]) == (503, "no-engine")
    assert "retry-after" in unknown.headers
    assert (await gateway.ops("/readyz")).status == 200
    region.cache.away = False
    await eventually(lambda: gateway.app.state.engines)
    assert (await gateway.ask(BASE_MODEL)).status == 200
    assert (await gateway.ask("nope")).status == 503
    assert "redis-away" not in gateway.app.degraded()
    region.registry.reconnect()
    await gateway.bus.reconnect()
    await gateway.sees(*(engine.id for engine in region.engines))
    await eventually(lambda: not gateway.app.degraded())
    assert (await gateway.ask("nope")).status == 404
    await gateway.stop()


async def test_without_the_bus_registered_adapters_load_by_their_request(
    region: Region, gateway: Gateway
) -> None:
    await region.declare("bot", "new")
    await gateway.knows("bot", "new")
    engine = region.engine((await gateway.ask("bot")).engine)
    await eventually(lambda: gateway.app.state.has_registered(engine.id, BOT))
    gateway.bus.disconnect()
    assert (await gateway.ask("bot")).engine == engine.id
    refused = await gateway.ask("new")
    assert (refused.status, refused.error["code"]) == (503, "no-engine")


async def test_engines_of_a_dead_agent_are_used_while_they_answer_probes(region: Region) -> None:
    async with served(region) as gateway:
        await region.stop_agent()
        # Lets five seconds of silence pass without waiting for them.
        gateway.app.feed._liveness._heard_at_ms[NODE] -= DEAD_MS
        facts = gateway.app.state.engines
        await eventually(lambda: all(f.agent_dead and f.probe_ok for f in facts.values()))
        await eventually(lambda: "stale-telemetry" in gateway.app.degraded())
        assert (await gateway.ask(BASE_MODEL)).status == 200
        nodes = (await gateway.get("/admin/v1/nodes")).json["items"]
        assert [node["liveness"] for node in nodes] == ["dead"]
        await region.engines[0].kill()
        await eventually(lambda: facts[region.engines[0].id].probe_ok is False)
        assert (await gateway.ask(BASE_MODEL)).engine == region.engines[1].id


async def test_messages_that_do_not_parse_are_counted_and_dropped(
    region: Region, gateway: Gateway
) -> None:
    await region.agent_bus.publish(subjects.node_report(REGION, NODE), b"junk")
    await region.agent_bus.publish(subjects.gateway_inflight(REGION, GatewayId("g")), b"\xff")
    await eventually(lambda: gateway.counted("invalid_messages_total") == 2)
    assert (await gateway.ask(BASE_MODEL)).status == 200


async def test_a_drain_lets_streams_end_and_cuts_those_that_take_too_long(region: Region) -> None:
    slow_down(region, 20.0)
    gateway = await region.start_gateway(drain_ms=500)
    await gateway.sees(*(engine.id for engine in region.engines))
    async with asyncio.TaskGroup() as group:
        short = group.create_task(gateway.ask(BASE_MODEL, stream=True, tokens=8), name="short")
        long = group.create_task(gateway.ask(BASE_MODEL, stream=True, tokens=4000), name="long")
        await eventually(lambda: sum(engine.running for engine in region.engines) == 2)
        await eventually(lambda: gateway.counted("first_byte_seconds_count") == 2)
        stopping = group.create_task(gateway.stop(), name="stop")
        await eventually(lambda: not gateway.app.readiness().ready)
        assert (await short).events[-1] == b"[DONE]"
        last = (await long).events[-1]
        assert last["error"]["code"] == "shutting-down"
        await stopping
    await eventually(lambda: not any(engine.running for engine in region.engines))


async def test_requests_beyond_the_bound_are_refused(region: Region) -> None:
    slow_down(region, 100.0)
    async with served(region, requests_max=1) as gateway, asyncio.TaskGroup() as group:
        asking = group.create_task(gateway.ask(BASE_MODEL, tokens=100), name="ask")
        await eventually(lambda: any(engine.running for engine in region.engines))
        assert (await gateway.ask(BASE_MODEL)).status == 429
        asking.cancel()


async def test_engines_whose_own_queue_is_full_are_busy_not_broken() -> None:
    async with region_of(engines=1, max_num_queued_reqs=1) as region, served(region) as gateway:
        slow_down(region, 100.0)
        async with asyncio.TaskGroup() as group:
            asking = [
                group.create_task(gateway.ask(BASE_MODEL, tokens=4), name="ask") for _ in range(4)
            ]
            answers = [await answer for answer in asyncio.as_completed(asking)]
        refused = [answer for answer in answers if answer.status != 200]
        assert refused
        assert {(a.status, a.error["code"]) for a in refused} == {(429, "all-saturated")}


async def test_bodies_that_come_too_slowly_or_fill_the_memory_are_refused(
    region: Region,
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(0.4)
        yield b"}"

    async with served(region, body_ms=100, buffered_bytes_max=1 << 20) as gateway:
        async with gateway.client.post(COMPLETIONS, data=trickle()) as response:
            assert response.status == 408
        large = {"model": BASE_MODEL, "prompt": "x" * (1 << 20)}
        assert (await gateway.post(COMPLETIONS, large)).status == 429
        assert (await gateway.ask(BASE_MODEL)).status == 200


async def test_a_request_that_takes_longer_than_it_may_is_ended(region: Region) -> None:
    slow_down(region, 100.0)
    async with served(region, request_limit_ms=300) as gateway:
        answer = await gateway.ask(BASE_MODEL, tokens=100)
        assert (answer.status, answer.error["code"]) == (504, "deadline-exceeded")
        await eventually(lambda: not any(engine.running for engine in region.engines))


async def test_an_agent_restart_is_a_new_life_not_a_hole(region: Region, gateway: Gateway) -> None:
    node = gateway.app.feed._view.node(NODE)
    assert node is not None
    await region.stop_agent()
    region.agent_bus = type(region.agent_bus)(region.owner, region.hub)
    await region.start_agent()

    def reborn() -> bool:
        now = gateway.app.feed._view.node(NODE)
        return now is not None and now.incarnation > node.incarnation

    await eventually(reborn)
    await gateway.sees(*(engine.id for engine in region.engines))
    assert (await gateway.ask(BASE_MODEL)).status == 200
