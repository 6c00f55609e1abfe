"""The CLI's client of the admin API against servers that answer as no gateway should."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.answering import problem, server

from axiom_cli.admin import ADAPTERS_PATH, Admin, Target, admin_of
from axiom_cli.admin_client import (
    BusyError,
    ForbiddenError,
    ListAsked,
    NoAnswerError,
    UnauthenticatedError,
)
from axiom_cli.declarations import Result, apply_declarations, parse_declarations
from axiom_common.errors import ConflictError, InvalidInputError, UnavailableError
from axiom_common.wire import headers, rest

FILE = "base_models: [{name: team/llama.3}]\n"
SECRET = "axk-" + "s" * 43


@asynccontextmanager
async def admin(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[Admin]:
    async with server(answer) as url, admin_of(Target(url)) as client:
        yield client


async def test_an_answer_without_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("axiom_cli.admin_client.ANSWER_BYTES_MAX", 100_000)
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
            await client.withdraw(ADAPTERS_PATH, "a", version=None, dry_run=False)
    assert raised.value.retry_after_s == after_s


async def test_errors_are_those_that_the_gateway_told() -> None:
    async def taken(request: web.Request) -> web.Response:
        return problem(409, "the name is taken", "name-taken")

    async with admin(taken) as client:
        with pytest.raises(ConflictError, match="the name is taken") as raised:
            await client.put_base_model("a")
    assert raised.value.code == "name-taken"


async def test_what_is_no_gateway_is_told_apart_from_no_answer() -> None:
    async def other(request: web.Request) -> web.Response:
        return web.Response(text="It works!")

    async with admin(other) as client:
        for call in (client.status(), client.put_base_model("a")):
            with pytest.raises(UnavailableError, match="not answer like an Axiom") as raised:
                await call
            assert not isinstance(raised.value, NoAnswerError)


async def test_names_travel_as_they_are_and_are_put_again_while_the_gateway_is_busy() -> None:
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
        (applied,) = await apply_declarations(Target(url), puts)
    assert applied.result is Result.CREATED
    assert paths == ["/admin/v1/models/team/llama.3"] * 2


@pytest.mark.parametrize("name", ["of two words", "../keys/first-admin", "a/../b", "a?x=y", "a%2F"])
async def test_a_name_that_none_can_have_is_not_asked_for(name: str) -> None:
    async def never(request: web.Request) -> web.Response:
        raise AssertionError(request.raw_path)

    async with admin(never) as client:
        with pytest.raises(InvalidInputError, match="must match"):
            await client.withdraw(ADAPTERS_PATH, name, version=None, dry_run=False)


@pytest.mark.parametrize(
    ("status", "secret", "kind", "advice"),
    [
        (401, None, UnauthenticatedError, "--key-file"),
        (401, SECRET, UnauthenticatedError, "axiom keys list"),
        (403, SECRET, ForbiddenError, "axiom keys set-role"),
    ],
)
async def test_who_is_not_let_in_is_told_what_to_do(
    status: int, secret: str | None, kind: type[Exception], advice: str
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return problem(status, "no")

    async with server(refuse) as url, admin_of(Target(url, secret)) as client:
        with pytest.raises(kind, match=re.escape(advice)) as raised:
            await client.status()
    assert SECRET not in str(raised.value)


async def test_a_key_does_not_follow_a_redirect() -> None:
    led: list[web.Request] = []

    async def other(request: web.Request) -> web.Response:
        led.append(request)
        return web.Response()

    async with server(other) as elsewhere:

        async def away(request: web.Request) -> web.Response:
            assert request.headers[headers.AUTHORIZATION] == f"Bearer {SECRET}"
            raise web.HTTPTemporaryRedirect(elsewhere)

        async with server(away) as url, admin_of(Target(url, SECRET)) as client:
            with pytest.raises(UnavailableError, match="answered 307"):
                await client.status()
            with pytest.raises(UnavailableError, match="answered 307"):
                async with client.watching():
                    pass
    assert led == []


async def test_a_list_is_read_to_its_end() -> None:
    asked: list[tuple[list[str], str]] = []
    names = [f"m{number}" for number in range(5)]

    async def pages(request: web.Request) -> web.Response:
        asked.append((request.query.getall("filter"), request.query["sort"]))
        start = int(request.query.get("cursor", "0"))
        items = [rest.DeclaredModel(name=name, version=1) for name in names[start : start + 2]]
        cursor = str(start + 2) if start + 2 < len(names) else None
        page = rest.Page[rest.DeclaredModel](items=tuple(items), next=cursor)
        return web.Response(body=page.model_dump_json())

    counts: list[int] = []
    async with admin(pages) as client:
        found = await client.models(
            ListAsked(
                filters=("name~m", "version>=1", "path=a&b+c%20d"),
                sort="-name",
                on_page=counts.append,
            )
        )
    assert [one.name for one in found] == names
    assert counts == [2, 4, 5]
    assert asked == [(["name~m", "version>=1", "path=a&b+c%20d"], "-name")] * 3


async def test_a_list_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axiom_cli.admin_client.PAGES_MAX", 3)
    pages = 0

    async def more(request: web.Request) -> web.Response:
        nonlocal pages
        pages += 1
        page = rest.Page[rest.DeclaredModel](items=(), next="again")
        return web.Response(body=page.model_dump_json())

    async with admin(more) as client:
        with pytest.raises(InvalidInputError, match="--filter"):
            await client.models()
    assert pages == 3
