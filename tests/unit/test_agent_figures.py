"""Differences of counters, the link's correction, and leases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import name, names, sample, spec

from axiom_common.model.engine import LinkModel
from axiom_common.ports.engine import EngineSample, Histogram
from axiom_node_agent.leases import LEASE_MS, VECTOR_DELAY_MS, Leases
from axiom_node_agent.link_correction import FACTOR_MAX, LinkCorrection, load_bytes
from axiom_node_agent.rates import (
    LATENCY_POLLS,
    Latencies,
    Rates,
    RecentSamples,
    is_new_process,
)


def counted(requests: int, *, ttft_s: float = 0.0, prompt_tokens: float = 0.0) -> EngineSample:
    return EngineSample(
        running=0,
        waiting=0,
        ttft=Histogram(sum_s=ttft_s, count=requests),
        prefill=Histogram(sum_s=ttft_s / 2, count=requests),
        prompt_tokens=prompt_tokens,
    )


def test_latencies_are_differences_and_unknown_without_requests() -> None:
    recent = RecentSamples()
    recent.add(counted(100, ttft_s=50.0, prompt_tokens=1000.0), 0.0)
    assert recent.latencies() == Latencies()
    recent.add(counted(100, ttft_s=50.0, prompt_tokens=1000.0), 0.0)
    assert recent.latencies() == Latencies()
    recent.add(counted(104, ttft_s=50.8, prompt_tokens=1200.0), 0.0)
    latencies = recent.latencies()
    assert latencies.ttft_ms == pytest.approx(200.0)
    assert latencies.tpot_ms is None
    assert latencies.prefill_ms_per_token == pytest.approx(2.0)


def test_a_sum_that_goes_back_is_no_latency() -> None:
    recent = RecentSamples()
    recent.add(counted(100, ttft_s=50.0, prompt_tokens=1000.0), 0.0)
    recent.add(counted(104, ttft_s=49.0, prompt_tokens=1200.0), 0.0)
    assert recent.latencies() == Latencies()


def test_latencies_forget_while_prefill_looks_further_back() -> None:
    recent = RecentSamples()
    recent.add(counted(0), 0.0)
    for _ in range(LATENCY_POLLS + 1):
        recent.add(counted(1, ttft_s=0.2, prompt_tokens=100.0), 0.0)
    assert recent.latencies().ttft_ms is None
    assert recent.latencies().prefill_ms_per_token == pytest.approx(1.0)


def counters(**totals: float) -> EngineSample:
    return EngineSample(running=0, waiting=0, **totals)  # type: ignore[arg-type]


def test_rates_are_over_the_time_of_the_last_polls() -> None:
    recent = RecentSamples()
    first = {"preemptions": 10.0, "rejections": 4.0, "prefix_queries": 100.0, "prefix_hits": 50.0}
    last = {"preemptions": 16.0, "rejections": 4.0, "prefix_queries": 300.0, "prefix_hits": 100.0}
    recent.add(counters(**first), 1000.0)
    assert recent.rates() == Rates()
    recent.add(counters(**last), 3000.0)
    assert recent.rates() == Rates(
        preemptions_per_s=3.0, rejections_per_s=0.0, prefix_hit_share=0.25
    )
    for poll in range(LATENCY_POLLS):
        recent.add(counters(**last), 3250.0 + 250.0 * poll)
    assert recent.rates() == Rates(preemptions_per_s=0.0, rejections_per_s=0.0)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, Rates()),
        ({"preemptions": 1.0}, {}, Rates()),
        ({}, {"preemptions": 1.0}, Rates()),
        ({"preemptions": 5.0}, {"preemptions": 1.0}, Rates()),
        ({"prefix_queries": 1.0}, {"prefix_queries": 9.0}, Rates()),
        (
            {"prefix_queries": 10.0, "prefix_hits": 0.0},
            {"prefix_queries": 12.0, "prefix_hits": 8.0},
            Rates(prefix_hit_share=1.0),
        ),
    ],
    ids=["none", "gone", "new", "back", "no-hits-told", "hits-before-queries"],
)
def test_what_is_not_counted_has_no_rate(
    before: dict[str, float], after: dict[str, float], expected: Rates
) -> None:
    recent = RecentSamples()
    recent.add(counters(**before), 0.0)
    recent.add(counters(**after), 1000.0)
    assert recent.rates() == expected
    recent.clear()
    assert recent.rates() == Rates()


@pytest.mark.parametrize(
    ("before", "after", "gap", "new"),
    [
        (sample(started_s=1.0), sample(started_s=2.0), False, True),
        (sample(started_s=1.0), sample(started_s=1.0), True, False),
        (sample(started_s=None), sample(started_s=None), False, False),
        (sample(started_s=None), sample(started_s=None), True, True),
        (
            sample(started_s=None, generation_tokens=5.0),
            sample(started_s=None, generation_tokens=4.0),
            False,
            True,
        ),
        (
            sample(started_s=None, prompt_tokens=5.0),
            sample(started_s=None, prompt_tokens=6.0),
            False,
            False,
        ),
    ],
)
def test_when_an_engine_is_a_new_process(
    before: EngineSample, after: EngineSample, gap: bool, new: bool
) -> None:
    assert is_new_process(before, after, gap=gap) is new


def test_the_correction_converges_to_what_loads_take_and_forgets_one_stall() -> None:
    correction = LinkCorrection()
    for _ in range(20):
        correction = correction.learnt(predicted_ms=100.0, took_ms=20.0)
    assert correction.factor == pytest.approx(0.2, rel=0.01)
    stalled = correction.learnt(predicted_ms=100.0, took_ms=10_000.0)
    assert stalled.factor < 2.0
    for _ in range(100):
        stalled = stalled.learnt(predicted_ms=1.0, took_ms=1e9)
    assert stalled.factor == pytest.approx(FACTOR_MAX)
    assert correction.learnt(predicted_ms=0.0, took_ms=5.0) == correction


def test_the_corrected_link_predicts_the_corrected_times() -> None:
    link = LinkModel()
    corrected = LinkCorrection(0.25).corrected(link)
    assert corrected.cold_ms(10**8) == pytest.approx(0.25 * link.cold_ms(10**8))
    assert corrected.h2d_ms(10**8) == pytest.approx(0.25 * link.h2d_ms(10**8))


def test_an_unknown_size_grows_with_the_rank() -> None:
    assert load_bytes(spec("a")) == spec("a").size_bytes
    small, large = (load_bytes(replace(spec("a", rank=r), size_bytes=0)) for r in (8, 64))
    assert large == 8 * small > 0


def test_a_lease_ends_with_its_time() -> None:
    leases = Leases()
    leases.grant(name("a"), 0.0)
    assert leases.held(LEASE_MS - 1) == names("a")
    assert leases.held(LEASE_MS) == frozenset()


@pytest.mark.parametrize(
    ("ended_ms", "until_ms"),
    [(10.0, VECTOR_DELAY_MS), (500.0, 500.0), (LEASE_MS - 1, LEASE_MS - 1)],
    ids=["perhaps of an older request", "its request came and went", "late"],
)
def test_a_lease_ends_with_its_request(ended_ms: float, until_ms: float) -> None:
    leases = Leases()
    leases.requests_ended(name("a"), 0.0)
    assert leases.held(0.0) == frozenset()
    leases.grant(name("a"), 0.0)
    leases.requests_ended(name("a"), ended_ms)
    assert leases.held(until_ms - 1) == names("a")
    assert leases.held(until_ms) == frozenset()
