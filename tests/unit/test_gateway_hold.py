"""The hold queue: order, bounds, and no decision lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.decided_parts import decided
from tests.eventually import eventually

from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided
from axiom_gateway.hold import LANES_A_ROUND, HoldQueue, may_pass

FULL = decided(refusals={Reason.SATURATED: 1})


def taken(booking: int) -> Decided:
    return decided("n.e", booking=booking)


class Room:
    """Gives out as many decisions as there is room for, and counts what comes back."""

    def __init__(self) -> None:
        self.free = 0
        self.asked = 0
        self.given = 0
        self.back: list[int] = []
        self.queue = HoldQueue(held_max=4, release=lambda d: self.back.append(d.booking))

    def decide(self) -> Decided:
        self.asked += 1
        if not self.free:
            return FULL
        self.free -= 1
        self.given += 1
        return taken(self.given)

    def open(self, count: int) -> None:
        self.free += count
        self.queue.changed()


async def hold(room: Room, lane: str, order: list[str], name: str) -> Decided | None:
    decision = await room.queue.wait(lane, room.decide, timeout_ms=5_000)
    order.append(name)
    return decision


async def test_one_lane_is_served_in_order_of_arrival() -> None:
    room, order = Room(), list[str]()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(hold(room, "a", order, str(n)), name=f"held {n}") for n in range(4)
        ]
        await asyncio.sleep(0)
        assert room.queue.full
        room.open(2)
        await asyncio.wait(tasks[:2])
        assert order == ["0", "1"]
        assert room.queue.waits("a")
        room.open(2)
    assert order == ["0", "1", "2", "3"]
    assert (room.queue.count, room.queue.waits("a")) == (0, False)


async def test_what_was_freed_goes_to_who_waits_at_once() -> None:
    room, order = Room(), list[str]()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold(room, "a", order, "0"), name="held")
        await asyncio.sleep(0)
        room.open(1)
        # Two turns of the loop, in which no later request can have been read.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert room.given == 1


async def test_a_lane_without_room_costs_one_decision_a_round() -> None:
    room, order = Room(), list[str]()
    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(hold(room, "a", order, str(n)), name=f"held {n}")
        blocked = group.create_task(hold(room, "b", order, "b"), name="held b")
        await asyncio.sleep(0)
        room.queue.changed()
        await eventually(lambda: room.asked)
        assert room.asked == 2
        room.open(4)
        await blocked
    assert len(order) == 4


async def test_every_lane_has_its_turn() -> None:
    waiting = LANES_A_ROUND * 2 + 1
    seen: set[int] = set()
    queue = HoldQueue(held_max=waiting, release=lambda _: None)

    def refuse(lane: int) -> Callable[[], Decided]:
        def decide() -> Decided:
            seen.add(lane)
            return FULL

        return decide

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(queue.wait(n, refuse(n), timeout_ms=5_000), name=f"held {n}")
            for n in range(waiting)
        ]
        await asyncio.sleep(0)
        queue.changed()
        await eventually(lambda: len(seen) == waiting)
        for task in tasks:
            task.cancel()
    assert queue.count == 0


async def test_time_that_runs_out_yields_none_and_leaves_no_trace() -> None:
    room = Room()
    assert await room.queue.wait("a", room.decide, timeout_ms=1) is None
    assert (room.queue.count, room.queue.waits("a")) == (0, False)
    room.open(1)
    assert await room.queue.wait("b", room.decide, timeout_ms=1) is None
    assert room.asked == 0


async def test_what_no_waiting_can_help_ends_the_wait() -> None:
    gone = decided(refusals={Reason.NOT_READY: 1})
    queue = HoldQueue(held_max=1, release=lambda _: None)
    async with asyncio.TaskGroup() as group:
        held = group.create_task(queue.wait("a", lambda: gone, timeout_ms=5_000), name="held")
        await asyncio.sleep(0)
        queue.changed()
    assert held.result() == gone


async def test_a_decision_that_meets_a_cancelled_request_is_released() -> None:
    room, order = Room(), list[str]()
    async with asyncio.TaskGroup() as group:
        held = group.create_task(hold(room, "a", order, "0"), name="held")
        await asyncio.sleep(0)
        room.open(1)
        while not room.given:
            await asyncio.sleep(0)
        # The decision is in the future already and the request has not seen it.
        held.cancel()
    assert held.cancelled()
    assert (room.back, room.queue.count) == ([1], 0)


async def test_a_cancelled_head_does_not_block_its_lane() -> None:
    room, order = Room(), list[str]()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(hold(room, "a", order, "0"), name="held 0")
        second = group.create_task(hold(room, "a", order, "1"), name="held 1")
        await asyncio.sleep(0)
        first.cancel()
        room.open(1)
        await second
    assert (order, room.back) == (["1"], [])


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (FULL, True),
        (decided(refusals={Reason.QUARANTINED: 2}), True),
        (decided(refusals={Reason.NOT_READY: 2}), False),
        (decided(), False),
        (taken(1), False),
    ],
)
def test_waiting_helps_where_only_room_is_missing(decision: Decided, expected: bool) -> None:
    assert may_pass(decision) is expected
