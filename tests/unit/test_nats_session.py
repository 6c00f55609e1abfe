"""A session that is lost ends all calls that wait on it."""

from __future__ import annotations

import asyncio

import pytest

from axiom_common.drivers.nats_connection import Session


async def test_a_call_whose_time_is_up_does_not_keep_others_waiting() -> None:
    session = Session()
    waiting = asyncio.Event()

    async def waits() -> None:
        async with session.bounded(60):
            waiting.set()
            await asyncio.Event().wait()

    async def is_late() -> None:
        async with session.bounded(0.001):
            try:
                await asyncio.Event().wait()
            finally:
                # Its time is up, and it has not left yet.
                session.lose()

    others = [asyncio.create_task(waits()) for _ in range(3)]
    await waiting.wait()
    with pytest.raises(TimeoutError):
        await is_late()
    async with asyncio.timeout(5):
        ended = await asyncio.gather(*others, return_exceptions=True)
    assert {type(end) for end in ended} == {TimeoutError}
