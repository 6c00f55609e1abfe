"""What the doctor finds at the URLs of servers."""

from __future__ import annotations

import pytest
from aiohttp import web
from tests.answering import problem, server
from tests.servers import free_port

from axiom_cli.admin import Target
from axiom_cli.doctor import Check, Verdict, Wanted, examine


async def redis_check(url: str) -> Check:
    nobody = f"http://127.0.0.1:{free_port()}"
    checks = await examine(Wanted(port=0, gateway=Target(nobody), redis_url=url))
    return next(check for check in checks if check.name == "redis")


async def test_a_server_that_answers_is_well(redis_url: str) -> None:
    assert (await redis_check(redis_url)).verdict is Verdict.OK


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_every_kind_of_url_is_asked(scheme: str) -> None:
    check = await redis_check(f"{scheme}://127.0.0.1:{free_port()}")
    assert check.verdict is Verdict.BROKEN
    assert "connect" in check.detail.lower()
    assert check.advice


async def test_a_url_that_is_none_is_told() -> None:
    check = await redis_check("redis+cluster://nowhere")
    assert check.verdict is Verdict.BROKEN
    assert "host:port" in check.detail


@pytest.mark.parametrize(("status", "advice"), [(401, "--key-file"), (403, "axiom keys set-role")])
async def test_a_gateway_that_does_not_let_one_in_says_what_to_do(status: int, advice: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return problem(status, "no")

    async with server(refuse) as url:
        checks = await examine(Wanted(port=0, gateway=Target(url)))
    (check,) = [check for check in checks if check.name == "gateway"]
    assert check.verdict is Verdict.BROKEN
    assert advice in check.detail
