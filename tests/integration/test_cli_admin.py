"""The CLI's client of the admin API against servers that answer as no gateway should."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from axiom_cli.admin import Admin, BusyError, NoAnswerError, admin_of
from axiom_cli.declarations import Result, apply_declarations, parse_declarations
from axiom_common.errors import ConflictError, UnavailableError
from axiom_common.wire import headers, rest

FILE = "base_models: [{name: team/llama.3}]\n"


@asynccontextmanager
async def server(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def admin(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[Admin]:
    async with server(answer) as url, admin_of(url) as client:
        yield client


def problem(status: int, detail: str) -> web.Response:
    body = rest.Problem(type="t", title="t", status=status, detail=detail, code="c")
    return web.Response(body=body.model_dump_json(), status=status)


async def test_an_answer_without_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("axiom_cli.admin.ANSWER_BYTES_MAX", 100_000)
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 100_000_000:
            await response.write(b" " * 50_000)
            sent += 50_000
        return response

    async with admin(endless) as client:
        with pytest.raises(UnavailableError, match="more than 100000 bytes"):
            await client.status()
    assert sent < 100_000_000


@pytest.mark.parametrize(("told", "after_s"), [("2", 2.0), ("3600", 5.0), ("soon", 1.0)])
async def test_a_gateway_that_can_not_now_says_when(told: str, after_s: float) -> None:
    async def busy(request: web.Request) -> web.Response:
        response = problem(503, "the registry is away")
        response.headers[headers.RETRY_AFTER] = told
        return response

    async with admin(busy) as client:
        with pytest.raises(BusyError, match="the registry is away") as raised:
            await client.delete_adapter("a")
    assert raised.value.retry_after_s == after_s


async def test_errors_are_those_that_the_gateway_told() -> None:
    async def taken(request: web.Request) -> web.Response:
        return problem(409, "the name is taken")

    async with admin(taken) as client:
        with pytest.raises(ConflictError, match="the name is taken"):
            await client.put_base_model("a")


async def test_what_is_no_gateway_is_told_apart_from_no_answer() -> None:
    async def other(request: web.Request) -> web.Response:
        return web.Response(text="It works!")

    async with admin(other) as client:
        for call in (client.status(), client.put_base_model("a")):
            with pytest.raises(UnavailableError, match="not answer like an Axiom") as raised:
                await call
            assert not isinstance(raised.value, NoAnswerError)


async def test_names_travel_quoted_and_are_put_again_while_the_gateway_is_busy() -> None:
    paths: list[str] = []

    async def busy_once(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        if len(paths) == 1:
            response = problem(503, "not now")
            response.headers[headers.RETRY_AFTER] = "0"
            return response
        return web.Response(status=201, headers={headers.OUTCOME: "created"})

    puts = parse_declarations(FILE)
    async with server(busy_once) as url:
        (applied,) = await apply_declarations(url, puts)
        async with admin_of(url) as client:
            await client.put_base_model("of two words")
    assert applied.result is Result.CREATED
    assert paths == [*["/admin/v1/models/team/llama.3"] * 2, "/admin/v1/models/of%20two%20words"]
