"""The feed of KV events over real ZeroMQ: gaps, replays, restarts, reconnects, bad data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from tests.eventually import eventually
from tests.kv_publisher import Publisher, publishing
from tests.owner import TestOwner, task_owner

from axiom_common.drivers import kv_event_feed
from axiom_common.drivers.kv_event_feed import KvEventFeed, KvEventSource, Loss
from axiom_common.model.kv_events import BlocksRemoved, KvEvent
from axiom_common.state.event_order import Position


class HurriedClock:
    """Waits cost no time."""

    def __init__(self) -> None:
        self.waited_ms: list[float] = []

    def now_ms(self) -> float:
        return 0.0

    async def sleep_ms(self, duration_ms: float) -> None:
        self.waited_ms.append(duration_ms)
        await asyncio.sleep(0)


@dataclass
class Heard:
    """What a feed told: the first block of each message, and losses, in order."""

    told: list[object] = field(default_factory=list)
    clock: HurriedClock = field(default_factory=HurriedClock)

    def events(self, events: Sequence[KvEvent]) -> None:
        first = events[0]
        assert isinstance(first, BlocksRemoved)
        self.told += first.hashes


def removed(number: int, life: int = 0) -> bytes:
    """A message of one event, that names `number`."""
    event = {"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU", "group_idx": 0}
    return msgspec.msgpack.encode([1_700_000_000.5 + life, [event], 0])


@dataclass
class Stage:
    """An engine, and a feed that hears it."""

    engine: Publisher
    heard: Heard
    feed: KvEventFeed

    async def publish(
        self, numbers: Sequence[int], *, life: int = 0, is_lost: bool = False
    ) -> None:
        for number in numbers:
            await self.engine.publish(removed(number, life), is_lost=is_lost)

    async def hears(self, *told: object) -> None:
        await eventually(lambda: len(self.heard.told) >= len(told), within_s=10.0)
        assert self.heard.told == list(told)


def listening(owner: TestOwner, source: KvEventSource, **more: Any) -> tuple[KvEventFeed, Heard]:
    heard = Heard()
    feed = KvEventFeed(source, heard.clock, heard.events, heard.told.append, **more)
    owner.create_task(feed.run(), name="feed")
    return feed, heard


@asynccontextmanager
async def stage(*, before: Sequence[int] = (), keeps: int = 10_000) -> AsyncIterator[Stage]:
    """A feed that subscribed to an engine which had told of `before`."""
    async with task_owner() as owner, publishing(owner, keeps=keeps) as engine:
        for number in before:
            await engine.publish(removed(number))
        feed, heard = listening(owner, engine.source)
        await engine.subscribed()
        await eventually(lambda: engine.asked)
        yield Stage(engine, heard, feed)


async def test_what_was_told_before_is_asked_for_then_it_follows() -> None:
    async with stage(before=[10, 11]) as it:
        await it.hears(10, 11)
        await it.publish([12, 13])
        await it.hears(10, 11, 12, 13)
        assert (it.engine.asked, it.feed.losses, it.feed.malformed) == ([0], 0, 0)


async def test_lost_messages_are_asked_for_from_the_last_one_on() -> None:
    async with stage() as it:
        await it.publish([1, 2])
        await it.hears(1, 2)
        await it.publish([3, 4], is_lost=True)
        await it.publish([5])
        await it.hears(1, 2, 3, 4, 5)
        assert it.engine.asked == [0, 1]
        assert it.feed.losses == 0
        assert it.heard.clock.waited_ms[-1] == kv_event_feed.ASK_EVERY_MS


async def test_an_answer_with_a_hole_is_asked_on() -> None:
    async with stage() as it:
        it.engine.holes = {2}
        await it.publish([1])
        await it.hears(1)
        await it.publish([2, 3, 4], is_lost=True)
        await it.publish([5])
        await it.hears(1, 2, 3, 4, 5)
        assert it.engine.asked == [0, 0, 1]


async def test_what_the_engine_no_longer_keeps_is_a_loss() -> None:
    async with stage(keeps=3) as it:
        await it.publish([1])
        await it.hears(1)
        await it.publish([2, 3, 4, 5], is_lost=True)
        await it.publish([6])
        await it.hears(1, Loss.GAP, 4, 5, 6)


async def test_a_restart_voids_what_was_heard_and_is_heard_from_its_first_message() -> None:
    async with stage() as it:
        await it.publish([1, 2, 3])
        await it.hears(1, 2, 3)
        it.engine.restart()
        await it.publish([7], life=1, is_lost=True)
        await it.publish([8], life=1)
        await it.hears(1, 2, 3, Loss.RESTARTED, 7, 8)


async def test_another_life_that_came_as_far_is_seen_by_what_its_last_message_says() -> None:
    """Its next number fits; only what was asked again does not."""
    async with stage() as it:
        await it.publish([1, 2])
        await it.hears(1, 2)
        it.engine.restart()
        await it.publish([7, 8, 9], life=1, is_lost=True)
        await it.publish([10], life=1)
        await it.hears(1, 2, Loss.RESTARTED, 7, 8, 9, 10)


@pytest.mark.parametrize("after", [0, 1])
async def test_an_agent_goes_on_where_the_one_before_it_ended(after: int) -> None:
    async with task_owner() as owner, publishing(owner) as engine:
        for number in (1, 2, 3):
            await engine.publish(removed(number))
        first, heard = listening(owner, engine.source)
        await eventually(lambda: len(heard.told) == 3)
        position = first.position
        assert position is not None
        assert position.seq == 2
        if not after:
            engine.restart()
        await engine.publish(removed(4, 1))
        _, again = listening(owner, engine.source, position=position)
        expected = [4] if after else [Loss.RESTARTED, 4]
        await eventually(lambda: len(again.told) == len(expected))
        assert again.told == expected


async def test_without_replay_a_gap_is_a_loss_and_hearing_goes_on() -> None:
    async with task_owner() as owner, publishing(owner) as engine:
        source = replace(engine.source, replay_endpoint=None)
        _, heard = listening(owner, source, position=Position(4, 0))
        await engine.subscribed()
        for number in range(9):
            await engine.publish(removed(number), is_lost=number in (0, 1, 2, 3, 6))
        # The first number heard is one that another life had used.
        expected = [Loss.RESTARTED, 4, 5, Loss.GAP, 7, 8]
        await eventually(lambda: len(heard.told) == len(expected))
        assert heard.told == expected
        assert engine.asked == []


async def test_an_engine_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_event_feed, "ANSWER_WITHIN_MS", 50.0)
    async with task_owner() as owner, publishing(owner) as engine:
        engine.answers = False
        _, heard = listening(owner, engine.source)
        await engine.subscribed()
        await engine.publish(removed(1), is_lost=True)
        await engine.publish(removed(2))
        await eventually(lambda: heard.told == [2])
        assert len(engine.asked) <= 2


BAD = {
    "no msgpack": b"\xc1\xc1",
    "no message": msgspec.msgpack.encode({"events": []}),
    "an unknown event": msgspec.msgpack.encode([1.0, [{"type": "BlockMoved"}], 0]),
    "a token below 0": msgspec.msgpack.encode(
        [1.0, [["BlockStored", [1], None, [-1], 1, None]], None]
    ),
    "nested deeply": b"\x91" * 100_000,
}


@pytest.mark.parametrize("payload", BAD.values(), ids=BAD.keys())
async def test_a_message_that_does_not_read_may_have_said_anything(payload: bytes) -> None:
    async with stage() as it:
        await it.publish([1])
        await it.hears(1)
        await it.engine.publish(payload)
        await it.publish([3])
        await it.hears(1, Loss.MALFORMED, 3)
        assert it.feed.malformed == 1


async def test_frames_without_a_number_are_counted_and_dropped() -> None:
    async with stage() as it:
        await it.engine.send(b"topic")
        await it.engine.send(b"topic", b"1", removed(1))
        await it.engine.send(b"topic", bytes(8), removed(1), b"more")
        await it.publish([1])
        await it.hears(1)
        assert it.feed.malformed == 3


async def test_what_was_said_while_nobody_listened_is_asked_for() -> None:
    """Nothing comes after it, so no number tells of the gap: the new connection does."""
    async with stage() as it:
        await it.publish([1])
        await it.hears(1)
        await it.engine.away()
        await it.publish([2], is_lost=True)
        await it.engine.back()
        await it.hears(1, 2)
