"""The lease machine: its transitions, and that two candidates never lead at the same time."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_common.errors import InvalidInputError
from axiom_common.state.lease import (
    Acquire,
    Found,
    LeaseState,
    LeaseTimes,
    Renew,
    attempt,
    failed,
    leads,
    refused,
    resigned,
    wait_ms,
    written,
)

TIMES = LeaseTimes(ttl_ms=3000.0, margin_ms=500.0, renew_ms=1000.0, retry_ms=200.0)
IDLE = LeaseState(holder="a", times=TIMES)
LEADING = written(IDLE, sent_ms=1000.0, revision=7)


def test_a_candidate_acquires_then_renews_under_the_same_fence() -> None:
    assert attempt(IDLE, 0.0) == Acquire()
    assert not leads(IDLE, 0.0)
    assert leads(LEADING, 1000.0)
    assert attempt(LEADING, 1999.0) is None
    assert attempt(LEADING, 2000.0) == Renew(7, 7)
    renewed = written(LEADING, sent_ms=2000.0, revision=9)
    assert (renewed.fence, renewed.revision, renewed.valid_until_ms) == (7, 9, 4500.0)


def test_a_leader_steps_down_a_margin_before_the_lease_can_end() -> None:
    assert leads(LEADING, 3499.9)
    assert not leads(LEADING, 3500.0)


def test_without_an_answer_leadership_goes_on_to_its_old_end_and_no_further() -> None:
    unanswered = failed(LEADING, 2100.0)
    assert leads(unanswered, 3499.9)
    assert not leads(unanswered, 3500.0)
    assert attempt(unanswered, 2299.0) is None
    assert attempt(unanswered, 2300.0) == Renew(7, 7)


def test_a_lapsed_holder_goes_on_under_its_fence_if_its_record_still_stood() -> None:
    assert attempt(LEADING, 9000.0) == Renew(7, 7)
    again = written(LEADING, sent_ms=9000.0, revision=12)
    assert leads(again, 9000.0)
    assert again.fence == 7


@pytest.mark.parametrize(
    ("found", "retry_at_ms"),
    [(None, 2000.0), (Found("b", 8, 9), 2200.0), (Found("", 0, 9), 2200.0)],
)
def test_who_lost_the_record_leads_no_more_and_starts_over(
    found: Found | None, retry_at_ms: float
) -> None:
    lost = refused(LEADING, found=found, now_ms=2000.0)
    assert not leads(lost, 2000.0)
    assert (lost.fence, lost.revision) == (0, 0)
    assert attempt(lost, retry_at_ms - 0.1) is None
    assert attempt(lost, retry_at_ms) == Acquire()


@pytest.mark.parametrize(("told", "fence"), [(0, 9), (8, 8)])
def test_an_own_record_whose_answer_was_lost_is_written_again_before_it_grants(
    told: int, fence: int
) -> None:
    adopted = refused(IDLE, found=Found("a", told, 9), now_ms=50.0)
    assert not leads(adopted, 50.0)
    assert attempt(adopted, 50.0) == Renew(9, fence)
    assert written(adopted, sent_ms=50.0, revision=10).fence == fence


def test_who_resigns_stops_at_once() -> None:
    left = resigned(LEADING, 1100.0)
    assert not leads(left, 1100.0)
    assert attempt(left, 1100.0) is None
    assert attempt(left, 1300.0) == Acquire()


def test_the_shell_waits_for_the_next_attempt_or_the_end_of_leadership() -> None:
    assert wait_ms(IDLE, 5.0) == 0.0
    assert wait_ms(LEADING, 1200.0) == 800.0
    assert wait_ms(failed(LEADING, 3450.0), 3450.0) == 50.0


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"margin_ms": 3000.0}, "margin_ms"),
        ({"margin_ms": 0.0}, "margin_ms"),
        ({"renew_ms": 2500.0}, "renew_ms"),
        ({"renew_ms": 0.0}, "renew_ms"),
        ({"retry_ms": 0.0}, "retry_ms"),
    ],
)
def test_times_that_can_not_work_are_refused(change: dict[str, float], path: str) -> None:
    good = {"ttl_ms": 3000.0, "margin_ms": 500.0, "renew_ms": 1000.0, "retry_ms": 200.0}
    with pytest.raises(InvalidInputError) as error:
        LeaseTimes(**(good | change))
    assert error.value.path == path


@dataclass
class Server:
    """The registry's side of a lease: one record, its time to live, revisions that only grow."""

    revision: int = 0
    holder: str = ""
    fence: int = 0
    at: int = 0
    ends_ms: float = float("-inf")

    def read(self, now_ms: float) -> Found | None:
        return Found(self.holder, self.fence, self.at) if now_ms < self.ends_ms else None

    def write(self, now_ms: float, holder: str, tried: Acquire | Renew) -> int | None:
        stands = now_ms < self.ends_ms
        if isinstance(tried, Acquire) if stands else isinstance(tried, Renew):
            return None
        if isinstance(tried, Renew) and tried.revision != self.at:
            return None
        self.revision += 1
        self.holder, self.at, self.ends_ms = holder, self.revision, now_ms + TIMES.ttl_ms
        self.fence = tried.fence if isinstance(tried, Renew) else 0
        return self.revision


@dataclass
class Candidate:
    """A candidate whose clock runs at `rate` times the server's, from an origin of its own."""

    state: LeaseState
    rate: float
    origin_ms: float
    terms: list[int] = field(default_factory=list)

    def clock_ms(self, now_ms: float) -> float:
        return self.origin_ms + now_ms * self.rate


class World:
    """Candidates and a server; every trip takes a drawn time, and messages and answers get lost."""

    def __init__(self, candidates: list[Candidate], delays: st.DataObject) -> None:
        self.candidates = candidates
        self.server = Server()
        self.delays = delays
        self.events: list[tuple[float, int, Any]] = []
        self.order = itertools.count()

    def later(self, now_ms: float, delay_ms: float, event: Any) -> None:
        heapq.heappush(self.events, (now_ms + delay_ms, next(self.order), event))

    def draw_ms(self) -> float:
        return self.delays.draw(st.sampled_from([0.0, 1.0, 40.0, 400.0, 2600.0, 3100.0, 7000.0]))

    def lost(self) -> bool:
        return self.delays.draw(st.integers(0, 9)) == 0

    def run(self, until_ms: float) -> None:
        for candidate in self.candidates:
            self.later(0.0, 0.0, lambda now, c=candidate: self.act(now, c))
        while self.events:
            now_ms, _, event = heapq.heappop(self.events)
            if now_ms > until_ms:
                return
            event(now_ms)
            self.check(now_ms)

    def check(self, now_ms: float) -> None:
        leading = [c for c in self.candidates if leads(c.state, c.clock_ms(now_ms))]
        assert len(leading) <= 1
        for candidate in leading:
            if candidate.state.fence not in candidate.terms:
                others = [f for c in self.candidates for f in c.terms]
                assert all(candidate.state.fence > fence for fence in others)
                candidate.terms.append(candidate.state.fence)

    def act(self, now_ms: float, c: Candidate) -> None:
        """One round of the shell: an attempt goes out, or the shell sleeps on."""
        clock_ms = c.clock_ms(now_ms)
        tried = attempt(c.state, clock_ms)
        if tried is None:
            wait = max(1.0, wait_ms(c.state, clock_ms) / c.rate)
            self.later(now_ms, wait, lambda now: self.act(now, c))
        elif self.lost():
            self.later(now_ms, 300.0, lambda now: self.unanswered(now, c))
        else:
            self.later(now_ms, self.draw_ms(), lambda now: self.arrive(now, c, tried, clock_ms))

    def arrive(self, now_ms: float, c: Candidate, tried: Acquire | Renew, sent_ms: float) -> None:
        revision = self.server.write(now_ms, c.state.holder, tried)
        found = self.server.read(now_ms)
        if self.lost():
            self.later(now_ms, 300.0, lambda now: self.unanswered(now, c))
        else:
            self.later(
                now_ms, self.draw_ms(), lambda now: self.answer(now, c, sent_ms, revision, found)
            )

    def answer(
        self, now_ms: float, c: Candidate, sent_ms: float, revision: int | None, found: Found | None
    ) -> None:
        if revision is None:
            c.state = refused(c.state, found=found, now_ms=c.clock_ms(now_ms))
        else:
            c.state = written(c.state, sent_ms=sent_ms, revision=revision)
        self.act(now_ms, c)

    def unanswered(self, now_ms: float, c: Candidate) -> None:
        c.state = failed(c.state, c.clock_ms(now_ms))
        self.act(now_ms, c)


# The margin is a sixth of the time to live, so rates may differ by up to that.
RATES = st.floats(0.93, 1.07)


@given(st.lists(st.tuples(RATES, st.floats(0, 1e6)), min_size=2, max_size=4), st.data())
def test_two_candidates_never_lead_at_the_same_time(
    clocks: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Whatever trips take and whatever gets lost; and each new leader has a higher fence."""
    candidates = [
        Candidate(LeaseState(holder=f"c{n}", times=TIMES), rate, origin)
        for n, (rate, origin) in enumerate(clocks)
    ]
    World(candidates, data).run(30_000.0)


def test_the_world_of_the_law_does_elect_leaders() -> None:
    """The law above would hold for candidates that never lead."""

    class Prompt(World):
        def draw_ms(self) -> float:
            return 5.0

        def lost(self) -> bool:
            return False

    candidates = [Candidate(LeaseState(holder=f"c{n}", times=TIMES), 1.0, 0.0) for n in range(2)]
    world = Prompt(candidates, None)  # type: ignore[arg-type]
    world.run(10_000.0)
    assert [len(c.terms) for c in candidates] == [1, 0]
