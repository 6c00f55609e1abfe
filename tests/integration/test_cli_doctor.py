"""What the doctor finds at the URLs of servers."""

from __future__ import annotations

import pytest
from tests.servers import free_port

from axiom_cli.doctor import Check, Verdict, Wanted, examine


async def redis_check(url: str) -> Check:
    nobody = f"http://127.0.0.1:{free_port()}"
    checks = await examine(Wanted(port=0, gateway_url=nobody, redis_url=url))
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
