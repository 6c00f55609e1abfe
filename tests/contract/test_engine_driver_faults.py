"""The drivers of engines against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from axiom_common.drivers.sglang_engine import LOADS_PATH, SglangEngine
from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter

NAME = EngineAdapter("a~1")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Driver = VllmEngine | SglangEngine
D = TypeVar("D", VllmEngine, SglangEngine)

both = pytest.mark.parametrize("driver", [VllmEngine, SglangEngine])


@asynccontextmanager
async def engine_that(
    answer: Answer, driver: type[D] = VllmEngine, *, timeout_ms: float = 2000.0
) -> AsyncIterator[D]:
    """The driver on a server that gives this answer to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    url = str(server.make_url("/"))
    engine = driver(url, timeout_ms=timeout_ms, load_timeout_ms=timeout_ms)
    yield engine
    await engine.close()
    await server.close()


async def every_call_raises(engine: Driver, error: type[Exception]) -> None:
    assert not await engine.healthy()
    for call in (engine.sample(), engine.models(), engine.load(NAME, "/a"), engine.unload(NAME)):
        with pytest.raises(error):
            await call


@both
async def test_silence_is_bounded(driver: type[Driver]) -> None:
    released = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async with engine_that(hang, driver, timeout_ms=30.0) as engine:
        await every_call_raises(engine, UnavailableError)
        released.set()


@both
async def test_an_answer_that_breaks_off_is_none(driver: type[Driver]) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    async with engine_that(break_off, driver) as engine:
        await every_call_raises(engine, UnavailableError)


@both
async def test_an_answer_beyond_all_bounds_is_none(driver: type[Driver]) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * (1 << 20))

    async with engine_that(flood, driver) as engine:
        with pytest.raises(UnavailableError, match="above"):
            await engine.sample()


@both
@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, '{"error": {"message": "it broke", "code": 500}}', "it broke"),
        (503, "<html>busy</html>", "<html>busy</html>"),
        (302, "", "HTTP 302"),
        (400, '{"error": "odd"}', '{"error": "odd"}'),
        (429, "x" * 5000, "x" * 400),
        (400, '{"success": false, "error_message": "no room"}', "no room"),
        (400, '{"object": "error", "message": "no room", "code": 400}', "no room"),
    ],
    ids=["vllm", "html", "redirect", "odd", "long", "sglang", "sglang-openai"],
)
async def test_errors_carry_status_and_message(
    driver: type[Driver], status: int, body: str, message: str
) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        headers = {"location": "/elsewhere"} if status == 302 else None
        return web.Response(status=status, text=body, headers=headers)

    async with engine_that(refuse, driver) as engine:
        await every_call_raises(engine, EngineCallError)
        with pytest.raises(EngineCallError) as refused:
            await engine.load(NAME, "/a")
        assert (refused.value.status, str(refused.value)) == (status, message)


@both
@pytest.mark.parametrize("body", ["", "[]", '{"data": [{}]}', '{"data": 1}', "nonsense"])
async def test_answers_that_are_not_what_was_asked_for(driver: type[Driver], body: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with engine_that(answer, driver) as engine:
        for call in (engine.models(), engine.sample()):
            with pytest.raises(EngineCallError):
                await call


async def test_names_that_nobody_could_ask_for_are_left_out() -> None:
    names = ["base", "a" * 256, "b" * 257]
    listed = [
        {"id": name, "root": "/p", "parent": None if name == "base" else "base"} for name in names
    ]

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"data": listed})

    async with engine_that(answer) as engine:
        assert list((await engine.models()).adapters) == names[1:2]


async def test_a_name_whose_path_is_not_told_counts_as_loaded() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            error = {"message": "The lora adapter 'a~1' has already been loaded."}
            return web.json_response({"error": error}, status=400)
        return web.json_response({"data": [{"id": NAME, "root": None, "parent": "base"}]})

    async with engine_that(answer) as engine:
        await engine.load(NAME, "/a")


async def test_sglangs_loads_are_asked_for_once_of_a_process_without_them() -> None:
    asked: list[str] = []
    page = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\n"
    reachable = True

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if not reachable:
            assert request.transport is not None
            request.transport.close()
        return web.Response(text=page, status=404 if request.path == LOADS_PATH else 200)

    async with engine_that(answer, SglangEngine) as engine:
        assert (await engine.sample()).running == (await engine.sample()).running == 1
        assert asked.count(LOADS_PATH) == 1
        reachable = False
        with pytest.raises(UnavailableError):
            await engine.sample()
        reachable = True
        assert (await engine.sample()).running == 1
        assert asked.count(LOADS_PATH) == 2


async def test_sglangs_health_costs_a_token_and_is_asked_until_it_answered_once() -> None:
    asked: list[str] = []
    statuses = iter([503, 200])

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=next(statuses) if request.path == "/health" else 200)

    async with engine_that(answer, SglangEngine) as engine:
        assert [await engine.healthy() for _ in range(4)] == [False, True, True, True]
    assert asked == ["/health", "/health", "/v1/models", "/v1/models"]


async def test_an_sglang_that_loads_but_does_not_serve_the_adapter_has_not_loaded_it() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/load_lora_adapter":
            return web.json_response({"success": True})
        return web.json_response({"error": {"message": "out of memory"}}, status=500)

    async with engine_that(answer, SglangEngine) as engine:
        with pytest.raises(EngineCallError, match="out of memory"):
            await engine.load(NAME, "/a")
