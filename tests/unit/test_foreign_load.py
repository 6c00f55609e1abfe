"""Foreign load is the least surplus over the last two samples."""

from __future__ import annotations

import pytest
from tests.fleet_parts import engine

from axiom_common.state.foreign_load import ForeignLoad


@pytest.mark.parametrize(
    ("beats", "expected"),
    [
        ([(9, 0)], [0]),  # nothing confirms the first sample
        ([(9, 0), (9, 0)], [0, 9]),
        ([(5, 5), (6, 5), (5, 5)], [0, 0, 0]),  # one late report is no foreign load
        ([(8, 5), (9, 5), (6, 5), (9, 5)], [0, 3, 1, 1]),
        ([(2, 5), (2, 5)], [0, 0]),  # the engine has not seen the newest: never below 0
    ],
)
def test_beats(beats: list[tuple[int, int]], expected: list[int]) -> None:
    foreign = ForeignLoad()
    found = [foreign.beat(engine(0), reported=r, gateways=g) for r, g in beats]
    assert found == expected


def test_engines_are_apart_and_forgotten() -> None:
    foreign = ForeignLoad()
    foreign.beat(engine(0), reported=4, gateways=0)
    assert foreign.beat(engine(1), reported=4, gateways=0) == 0
    foreign.forget(engine(0))
    foreign.forget(engine(0))
    assert foreign.beat(engine(0), reported=4, gateways=0) == 0
