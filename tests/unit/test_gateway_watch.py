"""Watchers of a gateway's view: what each is told, how often, and what it costs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.eventually import eventually
from tests.watched_nodes import WatchedNodes

from axiom_common.errors import UnavailableError
from axiom_common.model.access import ApiKey, Role
from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.testing.clock import FakeClock
from axiom_gateway.seen import SeenNode
from axiom_gateway.watch import (
    TURN_SHARE,
    VIEWS_A_TURN,
    WATCHERS_MAX,
    TooManyWatchersError,
    Watcher,
    Watches,
)

KEY = ApiKey(name="someone", role=Role.VIEWER, digest="0" * 64)


def node(name: str, seq: int = 1) -> NodeState:
    engine = EngineState(
        engine=EngineId(f"{name}.a"),
        url="http://h:1",
        base_model="m",
        served_name="m",
        status=EngineStatus.READY,
        running=seq,
    )
    return NodeState(
        region=RegionId("r"), node=NodeId(name), incarnation=1, seq=seq, engines=(engine,)
    )


async def told(watches: Watches, watcher: Watcher) -> list[tuple[str, str, int | None]]:
    """(event, node, seq) of what is due, until nothing is."""
    found = []
    while watcher.untold:
        events = await watches.next_events(watcher)
        assert events is not None
        found += [_read(event) for event in events.split(b"\n\n")[:-1]]
    return found


def _read(event: bytes) -> tuple[str, str, int | None]:
    kind, data = event.split(b"\n")
    seen: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
    return kind.removeprefix(b"event: ").decode(), seen["node"], seen.get("seq")


async def test_a_watcher_is_told_its_nodes_at_once_and_then_each_change() -> None:
    it = WatchedNodes(node("a"), node("b"), node("c"))
    some, everything = it.watches.open([NodeId("b"), NodeId("x")], KEY), it.watches.open([], KEY)
    assert await told(it.watches, some) == [("node", "b", 1)]
    assert await told(it.watches, everything) == [("node", name, 1) for name in "abc"]
    it.put(node("c", 2))
    assert not some.untold
    it.put(node("x"))
    it.forget(NodeId("b"))
    assert await told(it.watches, some) == [("node", "x", 1), ("gone", "b", None)]
    assert await told(it.watches, everything) == [
        ("node", "c", 2),
        ("node", "x", 1),
        ("gone", "b", None),
    ]


async def test_a_client_that_takes_nothing_has_the_newest_waiting_and_no_more() -> None:
    it = WatchedNodes(node("a"), node("b"))
    watcher = it.watches.open([], KEY)
    for seq in range(2, 500):
        it.put(node("a", seq))
    assert len(watcher.untold) == 2
    assert await told(it.watches, watcher) == [("node", "a", 499), ("node", "b", 1)]
    assert it.views == 2


async def test_a_version_is_made_once_for_all_and_not_at_all_when_nobody_watches() -> None:
    it = WatchedNodes(node("a"))
    watchers = [it.watches.open([NodeId("a")] if n % 2 else [], KEY) for n in range(8)]
    for seq in (1, 2):
        it.put(node("a", seq))
        for watcher in watchers:
            assert await told(it.watches, watcher) == [("node", "a", seq)]
    assert it.views == 2
    for watcher in watchers:
        it.watches.leave(watcher)
    it.put(node("a", 3))
    assert (it.views, it.watches._events, len(it.watches)) == (2, {}, 0)
    it.watches.open([NodeId("other")], KEY)
    it.put(node("a", 4))
    assert it.watches._events == {}


async def test_figures_wait_for_others_of_their_kind_and_nothing_waits_for_figures() -> None:
    it = WatchedNodes(node("a"), node("b"))
    watcher = it.watches.open([], KEY)
    await told(it.watches, watcher)
    it.put(node("a", 2), figures_only=True)
    it.put(node("a", 3), figures_only=True)
    it.put(node("b", 2), figures_only=True)
    assert not watcher.untold
    it.put(node("b", 3))
    assert await told(it.watches, watcher) == [("node", "b", 3)]
    await eventually(lambda: watcher.untold)
    assert await told(it.watches, watcher) == [("node", "a", 3)]


async def test_the_end_and_too_many_are_told() -> None:
    it = WatchedNodes(node("a"))
    several = [replace(KEY, name=f"key-{n}") for n in range(4)]
    watchers = [it.watches.open([], several[n % 4]) for n in range(WATCHERS_MAX)]
    with pytest.raises(TooManyWatchersError):
        it.watches.open([], KEY)
    it.watches.leave(watchers[0])
    it.watches.close()
    with pytest.raises(UnavailableError):
        it.watches.open([], KEY)
    assert await it.watches.next_events(watchers[1]) is None


async def test_making_views_takes_its_share_of_the_time_and_no_more() -> None:
    clock = FakeClock()
    nodes = [node(f"n{n:02}") for n in range(2 * VIEWS_A_TURN)]
    it = WatchedNodes(*nodes, clock=clock)
    watcher = it.watches.open([], KEY)
    seen = it.seen_node

    def slow(name: NodeId) -> SeenNode | None:
        clock._now_ms += 1.0
        return seen(name)

    it.seen_node = slow  # type: ignore[method-assign]
    await it.watches.next_events(watcher)
    assert clock.now_ms() == VIEWS_A_TURN
    waited_ms = it.watches._next_turn_ms - clock.now_ms()
    assert waited_ms == pytest.approx(VIEWS_A_TURN * (1 / TURN_SHARE - 1))
    it.put(replace(nodes[0], seq=7))
    assert len(watcher.untold) == VIEWS_A_TURN + 1
