"""Means over seeds: the same keys, an interval beside each, unknown stays unknown."""

from __future__ import annotations

import pytest

from axiom_sim.exam.means import half_width, means, rounded


def test_one_seed_is_told_as_it_is() -> None:
    told = means([{"loads": 12, "ttft": 1234.56789, "none": None, "in": {"share": 1 / 3}}])
    assert told == {"loads": 12, "ttft": 1234.57, "none": None, "in": {"share": 0.333333}}
    assert isinstance(told["loads"], int)


def test_of_several_seeds_the_mean_and_half_of_the_interval_are_told() -> None:
    told = means([{"a": 10, "in": {"b": None}}, {"a": 12, "in": {"b": 3.0}}])
    # t of one degree of freedom is 12.706; the standard error of 10 and 12 is 1.
    assert told == {"a": 11.0, "a_ci95": 12.706, "in": {"b": 3.0, "b_ci95": None}}
    assert list(told) == ["a", "a_ci95", "in"]


def test_equal_values_have_no_width_and_many_values_a_small_one() -> None:
    assert half_width([5.0, 5.0, 5.0]) == 0.0
    assert half_width([1.0]) is None
    values = [float(n % 2) for n in range(100)]
    assert half_width(values) == pytest.approx(2.042 * 0.5025 / 10, rel=1e-3)


def test_the_last_bits_of_a_sum_are_not_told() -> None:
    assert rounded(0.1 + 0.2) == 0.3
    assert rounded(1234567.0) == 1234570.0
