"""Servers that answer as a test wants: for clients that must not trust what they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from axiom_common.wire import rest


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


def problem(status: int, detail: str, code: str = "c") -> web.Response:
    body = rest.Problem(type="t", title="t", status=status, detail=detail, code=code, path="p")
    return web.Response(body=body.model_dump_json(), status=status)
