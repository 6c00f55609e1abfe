"""What waits for one subscriber, and who waits for it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from axiom_common.drivers.inbox import TURN_MIN, TURN_SHARE, Delivery, Inbox
from axiom_common.errors import AxiomError


def _fail(subject: str, error: AxiomError) -> None:
    raise AssertionError(subject) from error


async def test_a_burst_lets_others_have_their_turn() -> None:
    inbox, handled = Inbox(_fail), 0
    seen = [0]

    async def handle(_: Delivery) -> None:
        nonlocal handled
        handled += 1

    async def other() -> None:
        while handled < 10 * TURN_MIN:
            seen.append(handled)
            await asyncio.sleep(0)
        seen.append(handled)

    for _ in range(10 * TURN_MIN):
        inbox.put(Delivery("s", b"x"))
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.run(handle), name="inbox")
        await group.create_task(other(), name="other")
        inbox.close()
    assert max(now - before for before, now in pairwise(seen)) <= 10 * TURN_MIN // TURN_SHARE


async def test_who_is_behind_catches_up_with_a_reader_that_brings_many_in_each_turn() -> None:
    inbox, handled = Inbox(_fail), 0

    async def handle(_: Delivery) -> None:
        nonlocal handled
        handled += 1

    async def reader() -> None:
        for _ in range(200):
            for _ in range(5 * TURN_MIN):
                inbox.put(Delivery("s", b"x"))
            await asyncio.sleep(0)
        while handled + inbox.dropped < 200 * 5 * TURN_MIN:
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.run(handle), name="inbox")
        await group.create_task(reader(), name="reader")
        inbox.close()
    assert inbox.dropped == 0
