"""Orders of engines: what an acknowledgement promises, with requests at every stage of their life
and gateways that start, end, or are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.eventually import eventually
from tests.gateway_region import (
    ADMIN_SECRET,
    BASE_MODEL,
    COMPLETIONS,
    NODE,
    REGION,
    Answer,
    Gateway,
    Region,
    SimEngine,
    region_of,
    served,
)

from axiom_cli.admin import Target, admin_of
from axiom_cli.engine_drain import Deadline, NotIdleError, ordered, until_idle
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import EngineId
from axiom_common.ports.registry import Entry
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.wire import keys
from axiom_common.wire.engine_orders import EngineOrderPost
from axiom_gateway import everywhere
from axiom_gateway.engine_http import EngineConnection
from axiom_gateway.settings import GatewaySettings

WAITED_MS = 400.0


@pytest.fixture(autouse=True)
def _peers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests wait until gateways have heard of each other, not for as long as it may take."""
    monkeypatch.setattr(everywhere, "LISTENED_MS", 0.0)
    monkeypatch.setattr(everywhere, "EVERYWHERE_MS", WAITED_MS)


@asynccontextmanager
async def two_gateways(
    engines: int = 2, *, models: tuple[str, ...] = ("bot",), **config: Any
) -> AsyncIterator[tuple[Region, Gateway, Gateway]]:
    async with region_of(engines, **config) as region:
        await region.declare(*models)
        async with served(region) as one, served(region, gateway="two") as two:
            for gateway in (one, two):
                await gateway.knows(*models)
                await eventually(lambda gateway=gateway: gateway.app.state.peers == 1)
            yield region, one, two


async def order(gateway: Gateway, engine: SimEngine, verb: str, body: bytes = b"") -> Answer:
    return await gateway.post(f"/admin/v1/engines/{engine.id}:{verb}", body)


async def drained(gateway: Gateway, engine: SimEngine) -> float | None:
    """Drain it; when its last request came by then."""
    answer = await order(gateway, engine, "drain")
    assert answer.status == 200, answer.body
    return engine.sim.last_arrival_s


def problem(answer: Answer) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status, answer.json["code"]


def target(gateway: Gateway) -> Target:
    return Target(gateway.url, ADMIN_SECRET)


async def booked_on(region: Region, gateway: Gateway) -> SimEngine:
    """The engine that the only request is booked on."""
    await eventually(lambda: gateway.booked)
    ((engine, _),) = gateway.booked
    return region.engine(engine)


async def test_an_order_while_the_adapter_loads_sends_the_request_elsewhere() -> None:
    async with two_gateways(time_scale=0.5) as (region, one, two), asyncio.TaskGroup() as group:
        asking = group.create_task(one.ask("bot"), name="ask")
        engine = await booked_on(region, one)
        await drained(two, engine)
        answer = await asking
        assert (answer.status, answer.engine) == (200, _other(region, engine).id)
        assert engine.sim.last_arrival_s is None
        told = (await one.get(f"/admin/v1/decisions/{answer.headers['x-axiom-decision-id']}")).json
        assert (len(told["attempts"]), told["outcome"]["retries"]) == (2, 0)
        assert not one.booked


async def test_an_order_while_a_connection_is_made_sends_the_request_elsewhere() -> None:
    async with two_gateways() as (region, one, two), asyncio.TaskGroup() as group:
        connections = one.app._proxy._engines
        really_connect = connections._connect
        connected, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(origin: Any) -> EngineConnection:
            connection = await really_connect(origin)
            connected.set()
            await go_on.wait()
            return connection

        connections._connect = slowly  # type: ignore[method-assign]
        asking = group.create_task(one.ask(BASE_MODEL), name="ask")
        await connected.wait()
        engine = await booked_on(region, one)
        await drained(two, engine)
        go_on.set()
        answer = await asking
        assert (answer.status, answer.engine) == (200, _other(region, engine).id)
        assert engine.sim.last_arrival_s is None
        assert one.counted("tries_total", verdict="withheld") == 1
        assert one.counted("tries_total", verdict="failed") == 0


async def test_an_order_reaches_requests_that_are_held_and_streams_end_by_themselves() -> None:
    models = ("a", "b", "c")
    async with two_gateways(models=models, max_loras=1) as (region, one, _):
        async with asyncio.TaskGroup() as group:
            first, second = region.engines
            for engine in region.engines:
                engine.sim.loop.faults.slow_factor = 30.0
            running = [group.create_task(one.ask(m, stream=True, tokens=40)) for m in ("a", "b")]
            await eventually(lambda: first.running and second.running)
            held = group.create_task(one.ask("c"), name="held")
            await eventually(lambda: one.app.hold.count == 1)
            last = await drained(one, first)
            assert first.running == 1
            for engine in region.engines:
                engine.sim.loop.faults.slow_factor = 1.0
        assert [task.result().status for task in running] == [200, 200]
        assert all(task.result().events[-1] == b"[DONE]" for task in running)
        assert (held.result().status, held.result().engine) == (200, second.id)
        assert first.sim.last_arrival_s == last
        await eventually(lambda: one.app.state.shown.use(first.id).idle)


async def test_a_retry_does_not_go_to_an_ordered_engine() -> None:
    async with two_gateways(3) as (region, one, two):
        cordoned, failing, sound = region.engines
        assert (await order(two, cordoned, "cordon")).status == 200
        failing.sim.loop.faults.fail_requests = 3
        while not one.counted("retries_total"):
            answer = await one.ask(BASE_MODEL)
            assert (answer.status, answer.engine) == (200, sound.id)
        assert cordoned.sim.last_arrival_s is None


async def test_who_starts_meanwhile_knows_the_order_before_it_serves() -> None:
    async with two_gateways() as (region, one, _):
        engine, other = region.engines
        starting = asyncio.create_task(region.start_gateway(gateway="three"))
        last = await drained(one, engine)
        three = await starting
        answers = [await three.ask(BASE_MODEL) for _ in range(6)]
        assert {(a.status, a.engine) for a in answers} == {(200, other.id)}
        assert engine.sim.last_arrival_s == last
        await three.stop()


class _SlowRegistry(FakeRegistry):
    """One whose watches of desired state tell nothing before `go_on`."""

    def __init__(self, region: Region) -> None:
        super().__init__(region.owner, region.clock)
        self.go_on = asyncio.Event()
        self._real = region.registry

    async def bucket(self, name: str, *, lasting: bool = False, **more: Any) -> Any:
        bucket = await self._real.bucket(name, lasting=lasting, **more)
        return _SlowBucket(bucket, self.go_on) if name == keys.DESIRED_BUCKET else bucket


class _SlowBucket:
    def __init__(self, bucket: FakeBucket, go_on: asyncio.Event) -> None:
        self._bucket = bucket
        self._go_on = go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
        await self._go_on.wait()
        async for entry in self._bucket.watch(key=key):
            yield entry


async def test_who_has_not_read_the_orders_yet_is_waited_for_and_named() -> None:
    async with two_gateways() as (region, one, _):
        real, slow = region.registry, _SlowRegistry(region)
        region.registry = slow
        three = Gateway(region, GatewaySettings(region=REGION, gateway="three"))
        region.registry = real
        await three.start()
        await eventually(lambda: one.app.state.peers == 2)
        engine, _ = region.engines
        refused = await order(one, engine, "drain")
        assert problem(refused) == (503, "not-everywhere")
        assert "three" in refused.json["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        slow.go_on.set()
        await drained(one, engine)
        await three.stop()


async def test_who_is_cut_off_is_named_and_the_order_stands_until_it_is_back() -> None:
    async with two_gateways() as (region, one, two):
        engine, other = region.engines
        two.bus.disconnect()
        refused = await order(one, engine, "drain", b'{"note": "new fan"}')
        assert problem(refused) == (503, "not-everywhere")
        assert "two" in refused.json["detail"]
        seen = (await one.get(f"/admin/v1/engines/{engine.id}")).json
        assert (seen["order"], seen["note"]) == ("drain", "new fan")
        assert (await one.ask(BASE_MODEL)).engine == other.id
        await two.bus.reconnect()
        again = await order(one, engine, "drain")
        assert (again.status, again.json["note"]) == (200, "new fan")


async def test_who_says_goodbye_is_not_waited_for_and_who_falls_silent_is() -> None:
    async with two_gateways() as (region, one, _):
        engine, _ = region.engines
        three = await region.start_gateway(gateway="three")
        four = await region.start_gateway(gateway="four")
        await eventually(lambda: one.app.state.peers == 3)
        await three.stop()
        four.bus.disconnect()
        await four.stop()
        await eventually(lambda: one.app.state.peers == 2)
        refused = await order(one, engine, "drain")
        assert "four" in refused.json["detail"]
        assert "three" not in refused.json["detail"]


async def test_an_order_that_is_replaced_while_it_waits_is_not_acknowledged() -> None:
    async with two_gateways() as (region, one, two), asyncio.TaskGroup() as group:
        engine, _ = region.engines
        two.bus.disconnect()
        waiting = group.create_task(order(one, engine, "drain"))
        await eventually(lambda: one.app.state.shown.use(engine.id).order)
        assert (await order(one, engine, "release")).status == 200
        assert problem(await waiting) == (409, "order-replaced")


async def test_orders_are_idempotent_can_be_tried_out_and_are_released() -> None:
    async with two_gateways() as (region, one, two):
        engine, other = region.engines
        would = await one.post(f"/admin/v1/engines/{engine.id}:drain?dryRun=true", b"")
        assert (would.status, would.json["order"]) == (200, "drain")
        assert (await one.get(f"/admin/v1/engines/{engine.id}")).json["order"] is None
        first = await order(one, engine, "cordon", b'{"note": "x"}')
        again = await order(two, engine, "cordon")
        assert again.json == first.json | {"idle": again.json["idle"]}
        changed = await order(two, engine, "drain", b'{"note": ""}')
        assert (changed.json["order"], changed.json["note"]) == ("drain", "")
        stale = await one.post(
            f"/admin/v1/engines/{engine.id}:cordon", b"", **{"if-match": first.headers["etag"]}
        )
        assert problem(stale) == (412, "precondition-failed")
        node = (await two.get(f"/admin/v1/nodes/{NODE}")).json
        assert [e["order"] for e in node["engines"]] == ["drain", None]
        for gateway in (one, two):
            for _ in range(2):
                released = await order(gateway, engine, "release")
                assert (released.status, released.json["order"]) == (200, None)
        await eventually(lambda: two.app.state.may_send(engine.id))
        await two.sees(engine.id, other.id)


async def test_an_order_outlives_the_agent_and_that_of_an_engine_that_is_gone_is_released() -> None:
    async with two_gateways() as (region, one, two):
        engine, other = region.engines
        last = await drained(one, engine)
        for gateway in (one, two):
            gateway.app.feed._forget(NODE, region.clock.now_ms())
            assert not gateway.app.state.engines
        gone = EngineOrder(region=REGION, engine=EngineId("gone.e9"), kind=OrderKind.CORDON)
        store = DesiredStore(await region.registry.bucket(keys.DESIRED_BUCKET))
        await store.put(gone)
        await one.sees(other.id)
        await two.sees(other.id)
        answers = [await gateway.ask(BASE_MODEL) for gateway in (one, two) for _ in range(3)]
        assert {a.engine for a in answers} == {other.id}
        assert engine.sim.last_arrival_s == last
        assert (await one.post("/admin/v1/engines/gone.e9:release", b"")).status == 200
        assert problem(await one.post("/admin/v1/engines/gone.e9:release", b"")) == (
            404,
            "not-found",
        )


async def test_the_last_engine_of_a_base_model_is_ordered_only_by_force() -> None:
    async with two_gateways() as (region, one, _):
        engine, other = region.engines
        await drained(one, engine)
        refused = await order(one, other, "cordon")
        assert problem(refused) == (409, "last-engine")
        assert BASE_MODEL in refused.json["detail"]
        tried = await one.post(f"/admin/v1/engines/{other.id}:drain?dryRun=true", b"")
        assert problem(tried) == (409, "last-engine")
        assert (await one.ask(BASE_MODEL)).engine == other.id
        # What is ordered already is no loss.
        assert (await order(one, engine, "cordon")).status == 200
        assert (await order(one, other, "cordon", b'{"force": true}')).status == 200
        none = await one.ask(BASE_MODEL)
        assert (none.status, none.error["code"]) == (503, "no-engine")
        assert "2 draining" in none.error["message"]


async def test_the_cli_asks_again_until_the_order_holds_everywhere() -> None:
    async with two_gateways() as (region, one, two), admin_of(target(one)) as admin:
        engine, _ = region.engines
        two.bus.disconnect()
        told: list[str] = []

        def hear(line: str) -> None:
            told.append(line)
            region.owner.create_task(two.bus.reconnect(), name="back")

        view = await ordered(
            admin, engine.id, "drain", EngineOrderPost(), Deadline.within(30), hear
        )
        assert (view.order, len(told)) == ("drain", 1)
        assert "two" in told[0]
        seen = await until_idle(admin, engine.id, Deadline.within(30), lambda _: None)
        assert seen is not None
        assert seen.idle


async def test_the_cli_gives_up_in_time_and_says_what_is_still_there(
    lone: tuple[Region, Gateway],
) -> None:
    region, gateway = lone
    engine, _ = region.engines
    async with admin_of(target(gateway)) as admin, asyncio.TaskGroup() as group:
        while not engine.running:
            group.create_task(gateway.ask(BASE_MODEL, tokens=8))
            engine.sim.loop.faults.slow_factor = 100.0
            await asyncio.sleep(0.02)
        await drained(gateway, engine)
        with pytest.raises(NotIdleError, match=r"[0-9] in flight.*stands"):
            await until_idle(admin, engine.id, Deadline.within(0.1), lambda _: None)
        engine.sim.loop.faults.slow_factor = 1.0
        await until_idle(admin, engine.id, Deadline.within(30), lambda _: None)
        # What no gateway sent is seen too.
        engine.sim.loop.faults.slow_factor = 200.0
        body = {"model": BASE_MODEL, "prompt": "x", "max_tokens": 10}
        async with aiohttp.ClientSession() as session:
            stranger = group.create_task(session.post(f"{engine.url}{COMPLETIONS}", json=body))
            await eventually(lambda: gateway.app.state.shown.use(engine.id).idle is False)
            with pytest.raises(NotIdleError, match=r"no gateway has a request there.*reports 1"):
                await until_idle(admin, engine.id, Deadline.within(0.1), lambda _: None)
            engine.sim.loop.faults.slow_factor = 1.0
            (await stranger).release()
        assert (await order(gateway, engine, "release")).status == 200
        with pytest.raises(NotIdleError, match="released"):
            await until_idle(admin, engine.id, Deadline.within(5), lambda _: None)
        assert await until_idle(admin, "gone.e1", Deadline.within(5), lambda _: None) is None


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "part"),
    [
        ("node.e1:explode", b"", 404, "not-found", "verb"),
        ("node.e9:drain", b"", 404, "not-found", "engine"),
        ("node.e9:release", b"", 404, "not-found", "engine"),
        ("node:drain", b"", 404, "not-found", "engine"),
        ("node:release", b"", 404, "not-found", "engine"),
        ("node.e1:drain", b'{"why": "x"}', 400, "invalid-input", "why"),
        ("node.e1:drain", b'{"note": 7}', 400, "invalid-input", "note"),
        ("node.e1:drain", b'{"note": "a\\nb"}', 400, "invalid-input", "note"),
        ("node.e1:drain", b'{"note": "' + b"x" * 201 + b'"}', 400, "invalid-input", "note"),
        ("node.e1:cordon", b"[]", 400, "invalid-input", "body"),
        ("node.e1:release", b'{"note": "x"}', 400, "invalid-input", "note"),
        ("node.e1:drain?dryrun=true", b"", 400, "invalid-input", "dryrun"),
    ],
)
async def test_what_can_not_be_ordered_is_refused_and_changes_nothing(
    lone: tuple[Region, Gateway], path: str, body: bytes, status: int, code: str, part: str
) -> None:
    _, gateway = lone
    answer = await gateway.post(f"/admin/v1/engines/{path}", body)
    assert (*problem(answer), answer.json["path"]) == (status, code, part)
    assert (await gateway.get("/admin/v1/engines")).json["items"][0]["order"] is None


async def test_with_the_registry_away_an_order_is_refused_and_does_not_stand(
    lone: tuple[Region, Gateway],
) -> None:
    region, gateway = lone
    region.registry.disconnect()
    refused = await order(gateway, region.engines[0], "drain")
    region.registry.reconnect()
    assert problem(refused) == (503, "unavailable")
    assert gateway.app.state.may_send(region.engines[0].id)


@pytest.fixture
async def lone() -> AsyncIterator[tuple[Region, Gateway]]:
    async with region_of(2) as region, served(region) as gateway:
        yield region, gateway


def _other(region: Region, engine: SimEngine) -> SimEngine:
    (other,) = (one for one in region.engines if one is not engine)
    return other
