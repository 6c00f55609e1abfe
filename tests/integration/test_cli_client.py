"""The demo's open-loop client against a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from axiom_cli.demo.client import CHAT_PATH, TimedBody, send_all
from axiom_cli.demo.figures import Observation
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.wire import headers

TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


async def answer(request: web.Request) -> web.StreamResponse:
    kind = (await request.json())["kind"]
    if kind == "refused":
        return web.json_response({"error": {"message": "no engine"}}, status=503)
    response = web.StreamResponse(
        headers={"content-type": "text/event-stream", headers.ENGINE: "n1.e1"}
    )
    await response.prepare(request)
    if kind == "slow":
        await asyncio.sleep(0.3)
    await response.write(TOKEN)
    if kind == "cut":
        assert request.transport is not None
        request.transport.abort()
        return response
    await response.write(TOKEN + b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post(CHAT_PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def body(at_ms: float, kind: str) -> TimedBody:
    return TimedBody(at_ms=at_ms, body=f'{{"kind":"{kind}"}}'.encode())


async def test_requests_leave_on_time_and_each_end_is_told(url: str) -> None:
    ended: list[Observation] = []
    kinds = ["slow", "good", "refused", "cut"]
    observed = await send_all(
        url,
        [body(50.0 * index, kind) for index, kind in enumerate(kinds)],
        clock=SystemClock(),
        on_end=ended.append,
    )
    slow, good, refused, cut = observed
    assert len(ended) == 4
    # Open loop: the slow first answer holds nobody back.
    assert good.sent_ms < slow.ended_ms
    assert all(seen.sent_ms >= 50.0 * index - 1 for index, seen in enumerate(observed))
    assert (good.error, good.tokens, good.engine) == ("", 2, "n1.e1")
    assert slow.ttft_ms is not None
    assert slow.ttft_ms >= 300
    assert refused.error.startswith("status 503")
    assert (refused.tokens, refused.ttft_ms) == (0, None)
    assert cut.error
    assert cut.tokens == 1


async def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    (seen,) = await send_all(
        "http://127.0.0.1:1",
        [body(0.0, "good")],
        clock=SystemClock(),
        on_end=lambda _: None,
    )
    assert "Connect" in seen.error
    assert seen.ttft_ms is None
