"""What waits for one subscriber, and who waits for it."""

from __future__ import annotations

import asyncio

from axiom_common.drivers.inbox import TURN_MAX, Delivery, Inbox
from axiom_common.errors import AxiomError


def _fail(subject: str, error: AxiomError) -> None:
    raise AssertionError(subject) from error


async def test_a_burst_lets_others_have_their_turn() -> None:
    inbox, handled, turns = Inbox(_fail), 0, 0

    async def handle(_: Delivery) -> None:
        nonlocal handled
        handled += 1

    async def other() -> None:
        nonlocal turns
        while handled < 10 * TURN_MAX:
            turns += 1
            await asyncio.sleep(0)

    for _ in range(10 * TURN_MAX):
        inbox.put(Delivery("s", b"x"))
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.run(handle), name="inbox")
        await group.create_task(other(), name="other")
        inbox.close()
    assert turns >= 10
