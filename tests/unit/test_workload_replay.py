"""From traces to a run: rate, order, popularity, flips, caps."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from axiom_common.errors import InvalidInputError
from axiom_sim.workload.replay import ReplayShape, popularity, replay
from axiom_sim.workload.traces import (
    ClientRate,
    TracedRequest,
    azure_slice,
    servegen_slice,
)

SHAPE = ReplayShape(
    duration_ms=40_000,
    rate_rps=10,
    prompt_tokens_max=2048,
    output_tokens_max=128,
    flip_ms=(20_000,),
)


def test_the_run_has_the_rate_the_span_and_the_caps_that_were_asked_for() -> None:
    requests = replay(azure_slice(), popularity(servegen_slice(), 24), SHAPE, Random(7))
    assert len(requests) == 400
    assert requests[0].at_ms == 0
    assert 39_000 < requests[-1].at_ms < 40_000
    assert [r.at_ms for r in requests] == sorted(r.at_ms for r in requests)
    assert max(r.prompt_tokens for r in requests) == 2048
    assert max(r.output_tokens for r in requests) == 128
    assert all(0 <= r.adapter < 24 for r in requests)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    windows = popularity(servegen_slice(), 24)
    trace = azure_slice()
    assert replay(trace, windows, SHAPE, Random(1)) == replay(trace, windows, SHAPE, Random(1))
    assert replay(trace, windows, SHAPE, Random(1)) != replay(trace, windows, SHAPE, Random(2))


def test_gaps_keep_their_proportions() -> None:
    trace = [TracedRequest(at_ms=t, prompt_tokens=5, output_tokens=5) for t in (0, 10, 40, 50)]
    shape = ReplayShape(duration_ms=4_000, rate_rps=1, prompt_tokens_max=9, output_tokens_max=9)
    requests = replay(trace, [(1.0,)], shape, Random(0))
    gaps = [b.at_ms - a.at_ms for a, b in itertools.pairwise(requests)]
    assert gaps == pytest.approx([600, 1800, 600])


def test_a_flip_gives_every_rank_another_adapter() -> None:
    trace = [TracedRequest(at_ms=t, prompt_tokens=1, output_tokens=1) for t in range(400)]
    for top in range(3):
        shares = tuple(float(i == top) for i in range(3))
        requests = replay(trace, [shares], SHAPE, Random(3))
        before = Counter(r.adapter for r in requests if r.at_ms < 20_000)
        after = Counter(r.adapter for r in requests if r.at_ms >= 20_000)
        assert set(before) == {top}
        assert len(after) == 1
        assert top not in after


def client_rate(*, client: int, at_s: float, rate_rps: float) -> ClientRate:
    return ClientRate(client=client, at_s=at_s, rate_rps=rate_rps, gaps="Gamma", shape=1.0)


def test_popularity_takes_the_busiest_clients_and_follows_the_windows() -> None:
    rates = [
        client_rate(client=9, at_s=0, rate_rps=6),
        client_rate(client=4, at_s=0, rate_rps=2),
        client_rate(client=4, at_s=600, rate_rps=3),
        client_rate(client=1, at_s=600, rate_rps=0.5),
    ]
    assert popularity(rates, 2) == ((0.75, 0.25), (0.0, 1.0))


def test_windows_are_spread_over_the_run() -> None:
    trace = [TracedRequest(at_ms=t, prompt_tokens=1, output_tokens=1) for t in range(400)]
    shape = ReplayShape(duration_ms=40_000, rate_rps=10, prompt_tokens_max=1, output_tokens_max=1)
    requests = replay(trace, [(1.0, 0.0), (0.0, 1.0)], shape, Random(0))
    assert {r.adapter for r in requests if r.at_ms < 19_999} == {0}
    assert {r.adapter for r in requests if r.at_ms > 20_001} == {1}


@pytest.mark.parametrize("duration_ms", [100, 10_000_000])
def test_more_or_fewer_requests_than_the_trace_can_give_are_refused(duration_ms: float) -> None:
    shape = ReplayShape(
        duration_ms=duration_ms, rate_rps=10, prompt_tokens_max=1, output_tokens_max=1
    )
    with pytest.raises(InvalidInputError, match="the trace has 5002"):
        replay(azure_slice(), [(1.0,)], shape, Random(0))


def test_more_adapters_than_clients_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="clients"):
        popularity(servegen_slice(), 1000)
