"""What a feed of records keeps for a slow reader is bounded, and what it drops is noticed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo

from axiom_common.drivers import record_feed
from axiom_common.drivers.record_feed import RecordFeed
from axiom_common.errors import UnavailableError


def feed_of(pending: int) -> RecordFeed:
    consumer = ConsumerInfo(
        name="c",
        stream_name="KV_b",
        config=ConsumerConfig(),
        created=datetime.fromtimestamp(0, UTC),
        num_pending=pending,
    )
    return RecordFeed(JetStreamContext(Client()), consumer)


def message(number: int, size: int, *, left: int = 0) -> Msg:
    reply = f"$JS.ACK.KV_b.c.1.{number}.{number}.1700000000000000000.{left}"
    return Msg(Client(), subject="$KV.b.k", reply=reply, data=bytes(size))


async def test_messages_come_in_order_and_the_end_of_the_present_is_told_once() -> None:
    feed = feed_of(2)
    for number in (1, 2):
        await feed._receive(message(number, 1, left=2 - number))
    await feed._receive(message(3, 1))
    read = [await feed.read() for _ in range(4)]
    assert [one and one.metadata.sequence.consumer for one in read] == [1, 2, None, 3]


@pytest.mark.parametrize("bound", ["PENDING_MAX", "PENDING_BYTES_MAX"])
async def test_beyond_its_bounds_it_drops_and_says_so(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_feed, bound, 100)
    feed = feed_of(0)
    assert await feed.read() is None
    for number in range(1, 202):
        await feed._receive(message(number, 1))
    assert 100 <= feed._received.qsize() <= 101
    await until_gap(feed)


async def until_gap(feed: RecordFeed) -> None:
    """Read all that was kept; what comes after what was dropped is an error."""
    for _ in range(feed._received.qsize()):
        assert await feed.read() is not None
    await feed._receive(message(300, 1))
    with pytest.raises(UnavailableError, match="missed"):
        await feed.read()
