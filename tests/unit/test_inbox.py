"""What waits for one subscriber, and who waits for it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from axiom_common.drivers.inbox import TURN_MAX, Delivery, Inbox
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
        while handled < 10 * TURN_MAX:
            seen.append(handled)
            await asyncio.sleep(0)
        seen.append(handled)

    for _ in range(10 * TURN_MAX):
        inbox.put(Delivery("s", b"x"))
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.run(handle), name="inbox")
        await group.create_task(other(), name="other")
        inbox.close()
    assert max(now - before for before, now in pairwise(seen)) <= TURN_MAX
