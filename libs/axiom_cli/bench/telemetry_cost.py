"""What it costs a gateway to tell of its requests.

Two gateways of one region, started alike: one counts, is scraped, keeps and sends its decisions and
has one of a hundred requests traced, to a collector; the other one tells nobody
(`untold_gateway`). They get the same load in turns, so that both see the same machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

TRACE_RATIO = 0.01
TURNS = 4
"""Of each of the two, in one round."""
SCRAPE_TIMEOUT_S = 10.0

T = TypeVar("T")


async def in_turns(
    told: Callable[[], Awaitable[T]], untold: Callable[[], Awaitable[T]], cost: Callable[[T], float]
) -> tuple[T, T]:
    """The cheapest turn of each; who begins changes with each pair of turns."""
    found: dict[Callable[[], Awaitable[T]], list[T]] = {told: [], untold: []}
    for turn in range(TURNS):
        for measure in (told, untold) if turn % 2 == 0 else (untold, told):
            found[measure].append(await measure())
    return min(found[told], key=cost), min(found[untold], key=cost)


async def scraped(metrics_url: str, measure: Awaitable[T]) -> T:
    """What is measured, with one scrape meanwhile."""
    async with asyncio.TaskGroup() as group:
        measuring = group.create_task(_awaited(measure))
        group.create_task(_scrape(metrics_url))
    return measuring.result()


async def _awaited(measure: Awaitable[T]) -> T:
    return await measure


async def _scrape(metrics_url: str) -> None:
    timeout = aiohttp.ClientTimeout(total=SCRAPE_TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as client,
        client.get(metrics_url, raise_for_status=True) as page,
    ):
        await page.read()


def share(told_us: float, untold_us: float) -> float:
    """The part of what a request costs that is spent on telling of it; negative is noise."""
    return 1.0 - untold_us / told_us
