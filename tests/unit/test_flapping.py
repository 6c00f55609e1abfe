"""Which nodes come and go too often, step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_common.model.ids import NodeId
from axiom_common.state.flapping import (
    MASS_MS,
    REMEMBERED_MAX,
    STEADY_MS,
    STUMBLES,
    WINDOW_MS,
    Flapping,
)

NODE = NodeId("n")
MANY = 1000


def stumbling(*times_ms: float) -> Flapping:
    flapping = Flapping()
    for at_ms in times_ms:
        flapping.stumbled(NODE, at_ms, nodes=MANY)
    return flapping


@pytest.mark.parametrize(
    ("times_ms", "flaps"),
    [
        ((), False),
        ((0.0,), False),
        ((0.0, 1.0), False),
        ((0.0, 1.0, 2.0), True),
        ((0.0, 1.0, WINDOW_MS), True),
        ((0.0, 1.0, WINDOW_MS + 1.0), False),
        ((0.0, WINDOW_MS - 1.0, WINDOW_MS, WINDOW_MS + 1.0), True),
    ],
)
def test_three_stumbles_in_a_minute_make_a_node_flap(
    times_ms: tuple[float, ...], flaps: bool
) -> None:
    last_ms = max(times_ms, default=0.0)
    assert (NODE in stumbling(*times_ms).nodes(last_ms)) is flaps


def test_it_flaps_until_it_was_steady_for_long_enough() -> None:
    flapping = stumbling(0.0, 1_000.0, 2_000.0)
    assert flapping.nodes(2_000.0 + STEADY_MS - 1.0) == {NODE}
    assert flapping.nodes(2_000.0 + STEADY_MS) == frozenset()


def test_one_more_stumble_begins_the_wait_anew() -> None:
    flapping = stumbling(0.0, 1_000.0, 2_000.0, 20_000.0)
    assert flapping.nodes(2_000.0 + STEADY_MS) == {NODE}
    assert flapping.nodes(20_000.0 + STEADY_MS) == frozenset()


def test_only_who_is_there_can_be_steady() -> None:
    flapping = stumbling(0.0, 1_000.0, 2_000.0)
    flapping.returned(NODE, 25_000.0)
    assert flapping.nodes(2_000.0 + STEADY_MS) == {NODE}
    assert flapping.nodes(25_000.0 + STEADY_MS) == frozenset()


def test_what_happens_to_many_at_once_is_nobodys_fault() -> None:
    flapping = Flapping()
    nodes = [NodeId(f"n{number}") for number in range(10)]
    for round_ms in (0.0, MASS_MS, 2 * MASS_MS, 3 * MASS_MS):
        for node in nodes[:4]:
            flapping.stumbled(node, round_ms, nodes=len(nodes))
    assert flapping.nodes(3 * MASS_MS) == frozenset()
    for round_ms in (4 * MASS_MS, 4 * MASS_MS + 1.0, 4 * MASS_MS + 2.0):
        for node in nodes[:3]:
            flapping.stumbled(node, round_ms, nodes=len(nodes))
    assert flapping.nodes(4 * MASS_MS + 2.0) == set(nodes[:3])


def test_memory_is_bounded_and_comes_back() -> None:
    flapping = Flapping()
    for number in range(REMEMBERED_MAX + 10):
        flapping.stumbled(NodeId(f"n{number}"), float(number), nodes=10**9)
    assert len(flapping._histories) == REMEMBERED_MAX
    flapping.nodes(1e9)
    assert not flapping._histories
    flapping.stumbled(NODE, 2e9, nodes=MANY)
    assert len(flapping._latest) == 1


@given(
    st.lists(
        st.tuples(st.floats(1.0, 40_000.0), st.sampled_from(["stumble", "return", "look"])),
        max_size=40,
    )
)
def test_it_flaps_exactly_as_long_as_the_table_says(course: list[tuple[float, str]]) -> None:
    flapping, now_ms = Flapping(), 0.0
    stumbles: list[float] = []
    steady_since_ms, flaps = 0.0, False
    for passed_ms, event in course:
        now_ms += passed_ms
        if now_ms - steady_since_ms >= STEADY_MS:
            flaps = False
        if event == "stumble":
            stumbles.append(now_ms)
            steady_since_ms = now_ms
            latest = stumbles[-STUMBLES:]
            if len(latest) == STUMBLES and now_ms - latest[0] <= WINDOW_MS:
                flaps = True
            flapping.nodes(now_ms)
            flapping.stumbled(NODE, now_ms, nodes=MANY)
        elif event == "return" and stumbles:
            flapping.nodes(now_ms)
            flapping.returned(NODE, now_ms)
            steady_since_ms = now_ms
        assert (flapping.nodes(now_ms) == {NODE}) is flaps
