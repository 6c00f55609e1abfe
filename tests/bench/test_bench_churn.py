"""What the figures of `axiom bench churn` mean."""

from __future__ import annotations

import pytest

from axiom_cli.bench.churn import ALLOWED, ChurnOptions, Level, figures_of
from axiom_cli.bench.telemetry_region import GATEWAY, REDIS, TELEMETRY

OPTIONS = ChurnOptions(nodes=10, rounds=3, silent=False, same_names=True, as_json=True)


def level(held: int) -> Level:
    return Level(full=dict.fromkeys((TELEMETRY, GATEWAY, REDIS), 10 * held), empty=held_by(held))


def held_by(held: int, **others: int) -> dict[str, int]:
    return dict.fromkeys((TELEMETRY, GATEWAY, REDIS), held) | others


@pytest.mark.parametrize(("last", "allowed"), [(100, True), (110, True), (111, False), (90, True)])
def test_the_last_round_is_held_against_the_first(last: int, allowed: bool) -> None:
    figures = figures_of(OPTIONS, [level(100), level(500), level(last)])
    assert figures["last_to_first"] == dict.fromkeys((TELEMETRY, GATEWAY, REDIS), last / 100)
    assert figures["within_allowed"] is allowed


def test_one_part_that_grows_is_enough() -> None:
    grown = Level(full=held_by(1000), empty=held_by(100, gateway=int(100 * ALLOWED) + 1))
    assert not figures_of(OPTIONS, [level(100), grown])["within_allowed"]
