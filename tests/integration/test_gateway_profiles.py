"""Requests that are decided with a profile that people declared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.gateway_region import BASE_MODEL, COMPLETIONS, Gateway, region_of, served

from axiom_common.wire import headers

KEEN = "/admin/v1/profiles/keen"


async def ended(gateway: Gateway, decision_id: str) -> dict[str, Any]:
    """What is told of a request once it has ended."""
    async with asyncio.timeout(10):
        while True:
            told = (await gateway.get(f"/admin/v1/decisions/{decision_id}")).json
            if told["outcome"] is not None:
                return dict(told)
            await asyncio.sleep(0.01)


def adds_up(decision: dict[str, Any]) -> dict[str, float]:
    """The weights of a decision whose parts are its cost."""
    winner = decision["winner"]
    assert sum(part["cost_ms"] for part in winner["parts"]) == pytest.approx(
        winner["cost_ms"], abs=1e-3
    )
    return {part["term"]: part["weight"] for part in winner["parts"]}


async def declare(gateway: Gateway, method: str, body: Any = None, **given: str) -> int:
    """Declare the profile, or withdraw it; the answer's status."""
    async with gateway.client.request(method, KEEN, json=body, headers=given) as response:
        return response.status


async def test_a_decision_keeps_the_weights_that_it_was_made_with() -> None:
    asked = {"model": BASE_MODEL, "prompt": "hi " * 200, "max_tokens": 2}
    keen = {headers.PROFILE: "keen"}
    async with region_of(engines=2) as region, served(region, allow_profile_header=True) as gateway:
        await gateway.knows(BASE_MODEL)
        assert await declare(gateway, "PUT", {"weights": {"prefill": 4}}) == 201
        first = await gateway.post(COMPLETIONS, asked, **keen)
        anew = {headers.IF_MATCH: "*"}
        assert await declare(gateway, "PUT", {"weights": {"prefill": 9}}, **anew) == 200
        second = await gateway.post(COMPLETIONS, asked, **keen)
        assert await declare(gateway, "DELETE") == 204
        refused = await gateway.post(COMPLETIONS, asked, **keen)
        assert (first.status, second.status, refused.status) == (200, 200, 400)
        for answer, weight in ((first, 4.0), (second, 9.0)):
            told = await ended(gateway, answer.headers[headers.DECISION])
            (attempt,) = told["attempts"]
            assert attempt["decision"]["profile"] == "keen"
            assert adds_up(attempt["decision"])["prefill"] == weight
