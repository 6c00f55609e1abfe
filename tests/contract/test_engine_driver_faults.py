"""The vLLM driver against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from axiom_common.drivers.vllm_engine import RESIDENCY_PATH, VllmEngine
from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter

NAME = EngineAdapter("a~1")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def engine_that(answer: Answer, *, timeout_ms: float = 2000.0) -> AsyncIterator[VllmEngine]:
    """The driver on a server that gives this answer to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    engine = VllmEngine(
        str(server.make_url("/")), timeout_ms=timeout_ms, load_timeout_ms=timeout_ms
    )
    yield engine
    await engine.close()
    await server.close()


async def every_call_raises(engine: VllmEngine, error: type[Exception]) -> None:
    assert not await engine.healthy()
    for call in (engine.sample(), engine.models(), engine.load(NAME, "/a"), engine.unload(NAME)):
        with pytest.raises(error):
            await call


async def test_silence_is_bounded() -> None:
    released = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async with engine_that(hang, timeout_ms=30.0) as engine:
        await every_call_raises(engine, UnavailableError)
        released.set()


async def test_an_answer_that_breaks_off_is_none() -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    async with engine_that(break_off) as engine:
        await every_call_raises(engine, UnavailableError)


async def test_an_answer_beyond_all_bounds_is_none() -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * (1 << 20))

    async with engine_that(flood) as engine:
        with pytest.raises(UnavailableError, match="above"):
            await engine.sample()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, '{"error": {"message": "it broke", "code": 500}}', "it broke"),
        (503, "<html>busy</html>", "<html>busy</html>"),
        (302, "", "HTTP 302"),
        (400, '{"error": "odd"}', '{"error": "odd"}'),
        (429, "x" * 5000, "x" * 400),
    ],
    ids=["vllm", "html", "redirect", "odd", "long"],
)
async def test_errors_carry_status_and_message(status: int, body: str, message: str) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        headers = {"location": "/elsewhere"} if status == 302 else None
        return web.Response(status=status, text=body, headers=headers)

    async with engine_that(refuse) as engine:
        await every_call_raises(engine, EngineCallError)
        with pytest.raises(EngineCallError) as refused:
            await engine.load(NAME, "/a")
        assert (refused.value.status, str(refused.value)) == (status, message)
        assert await engine.residency() is None


@pytest.mark.parametrize("body", ["", "[]", '{"data": [{}]}', '{"data": 1}', "nonsense"])
async def test_answers_that_are_not_what_was_asked_for(body: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with engine_that(answer) as engine:
        for call in (engine.models(), engine.sample(), engine.residency()):
            with pytest.raises(EngineCallError):
                await call


async def test_an_engine_without_the_route_is_asked_for_residency_once_a_process() -> None:
    asked: list[str] = []
    reachable = True

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if not reachable:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"detail": "Not Found"}, status=404)

    async with engine_that(answer) as engine:
        assert await engine.residency() is None
        assert await engine.residency() is None
        assert asked.count(RESIDENCY_PATH) == 1
        reachable = False
        assert not await engine.healthy()
        reachable = True
        assert await engine.residency() is None
        assert asked.count(RESIDENCY_PATH) == 2


async def test_a_residency_that_fails_for_once_is_asked_for_again() -> None:
    statuses = iter([503, 200])
    worker = {"gpu_slots": [None, 7], "cpu_cached": [9, 7], "max_loras": 2, "max_cpu_loras": 4}

    async def answer(_: web.Request) -> web.StreamResponse:
        told = {"names": {NAME: 7}, "workers": [worker]}
        return web.json_response(told, status=next(statuses))

    async with engine_that(answer) as engine:
        assert await engine.residency() is None
        told = await engine.residency()
        assert told is not None
        assert (told.hbm, told.host) == ((NAME,), ("(9)", NAME))


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
