"""The sample of decisions that is told: bounded, and fair at any share."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_gateway.decision_sampling import Sampler

SECOND_MS = 1_000.0


def taken(sampler: Sampler, hashes: random.Random, offered: int, at_ms: float) -> list[float]:
    """The shares of those taken of so many requests, spread over the second from `at_ms`."""
    shares = [
        sampler.share_of(hashes.getrandbits(64), at_ms + SECOND_MS * number / offered)
        for number in range(offered)
    ]
    return [share for share in shares if share]


def test_all_are_told_while_they_are_few() -> None:
    sampler, hashes = Sampler(100.0, 0.0), random.Random(1)
    for second in range(5):
        assert taken(sampler, hashes, 90, SECOND_MS * second) == [1.0] * 90


@given(
    per_s=st.sampled_from([1.0, 7.0, 100.0]),
    loads=st.lists(st.sampled_from([0, 1, 10, 150, 3_000]), min_size=1, max_size=6),
    seed=st.integers(0, 1 << 32),
)
def test_no_second_tells_more_than_twice_the_rate(
    per_s: float, loads: list[int], seed: int
) -> None:
    sampler, hashes = Sampler(per_s, 0.0), random.Random(seed)
    for second, offered in enumerate(loads):
        shares = taken(sampler, hashes, offered, SECOND_MS * second)
        assert len(shares) <= 2.0 * per_s
        assert all(0.0 < share <= 1.0 for share in shares)


@pytest.mark.parametrize("offered", [120, 1_000, 10_000])
def test_under_load_about_the_rate_is_told_and_stands_for_all(offered: int) -> None:
    sampler, hashes = Sampler(100.0, 0.0), random.Random(2)
    seconds, told, stands_for = 40, 0, 0.0
    taken(sampler, hashes, offered, 0.0)
    for second in range(1, seconds + 1):
        shares = taken(sampler, hashes, offered, SECOND_MS * second)
        told += len(shares)
        stands_for += sum(1.0 / share for share in shares)
    assert 0.7 * 100 < told / seconds <= 110
    assert stands_for / seconds == pytest.approx(offered, rel=0.1)


def test_a_request_is_taken_by_its_hash_alone() -> None:
    sampler = Sampler(10.0, 0.0)
    for number in range(10_000):
        sampler.share_of(number << 50, number / 10)
    low, high = sampler.share_of(0, 1_001.0), sampler.share_of((1 << 64) - 1, 1_001.0)
    assert 0.0 < low < 0.01
    assert high == 0.0


def test_after_a_quiet_time_all_are_told_again() -> None:
    sampler, hashes = Sampler(10.0, 0.0), random.Random(3)
    taken(sampler, hashes, 5_000, 0.0)
    taken(sampler, hashes, 1, 60_000.0)
    assert taken(sampler, hashes, 5, 62_000.0) == [1.0] * 5
