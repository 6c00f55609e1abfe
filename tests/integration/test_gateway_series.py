"""What clients send leaves the number of a gateway's series within its bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.gateway_region import CHAT, COMPLETIONS, Gateway, region_of, served

from axiom_common.runtime.metric_names import Gateway as Names
from axiom_common.runtime.metric_names import metrics_of
from axiom_gateway.asgi import Message

NAMES = 10_000
SERIES_MAX = 150
PROCESS = "process_"


async def asked(gateway: Gateway, method: str, path: str, body: Mapping[str, Any]) -> int:
    """The status of a request that comes without a socket."""
    statuses: list[int] = []

    parts = [json.dumps(body).encode()]

    async def receive() -> Message:
        if not parts:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    number = body["model"].encode()
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"x-request-id", number), (b"x-axiom-profile", number)],
    }
    await gateway.app._v1(scope, receive, send)
    return statuses[0]


def series(gateway: Gateway) -> int:
    families = gateway.app.metrics.registry.collect()
    return sum(len(f.samples) for f in families if not f.name.startswith(PROCESS))


async def test_ten_thousand_names_of_models() -> None:
    async with (
        region_of(engines=0, agent=False) as region,
        served(region, start_ms=1, allow_profile_header=True) as gateway,
    ):
        for number in range(NAMES):
            name = f"m{number}"
            method, path = [
                ("POST", COMPLETIONS),
                ("POST", CHAT),
                ("GET", f"/v1/models/{name}"),
                ("POST", f"/v1/{name}"),
            ][number % 4]
            status = await asked(gateway, method, path, {"model": name, "prompt": "x"})
            assert 400 <= status < 500
        counted = series(gateway)
        answered = gateway.counted("requests_total", endpoint=COMPLETIONS, status="404")
    assert counted <= sum(metric.series_max for metric in metrics_of(Names))
    assert counted < SERIES_MAX
    assert answered == NAMES / 4
