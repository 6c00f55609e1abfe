"""Small inputs that routers get wrong, with the right answer to each."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from tests.fleet_parts import adapter, engine, fleet, held, query, row, winners

from axiom_common.model.decision import Candidate
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.cohort import Cohort
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.evidence import Evidence
from axiom_common.policy.fleet import Fleet
from axiom_common.policy.kernel import PROBE_ONE_IN
from axiom_common.policy.rules import engine_row


def real_row(number: int, *names: EngineAdapter, slots: int = 4, **evidence: object) -> EngineRow:
    """The row of a real engine: 64 sequences, all residents idle and in no running list."""
    state = EngineState(
        engine=engine(number),
        url="http://e",
        base_model="base",
        served_name="base",
        status=EngineStatus.READY,
        limits=EngineLimits(
            max_num_seqs=64, hbm_slots=slots, host_slots=2 * slots, max_lora_rank=64
        ),
        residents=tuple(held(name, in_flight=None) for name in names),
    )
    return engine_row(state, Evidence(**evidence), Cohort(), 0.0)  # type: ignore[arg-type]


def four_holders() -> tuple[Fleet, dict[EngineAdapter, EngineId]]:
    rows = [real_row(n, *(adapter(4 * n + i) for i in range(4))) for n in range(4)]
    return fleet(*rows), {adapter(k): engine(k // 4) for k in range(16)}


def shuffled(count: int) -> list[int]:
    """0..15 over and over, in an order that is fixed and far from sorted."""
    return [(i * 7 + i // 16 * 5) % 16 for i in range(count)]


def test_an_idle_resident_is_still_resident_one_by_one() -> None:
    made, holder = four_holders()
    for i, k in enumerate(shuffled(320)):
        decision = made.decide(query(adapter(k), i), "axiom", float(i))
        assert decision.winner is not None
        assert decision.winner.scores["adapter-affinity"] == 1.0
        assert decision.winner.engine == holder[adapter(k)]
        made.first_token(decision.booking)
        made.release(decision.booking)


def test_an_idle_resident_is_still_resident_under_32_streams() -> None:
    made, holder = four_holders()
    open_bookings: deque[int] = deque()
    served: Counter[EngineId] = Counter()
    at_home = 0
    for i, k in enumerate(shuffled(320)):
        if len(open_bookings) == 32:
            made.release(open_bookings.popleft())
        decision = made.decide(query(adapter(k), i), "axiom", float(i))
        assert decision.winner is not None
        open_bookings.append(decision.booking)
        made.first_token(decision.booking)
        served[decision.winner.engine] += 1
        at_home += decision.winner.engine == holder[adapter(k)]
    assert at_home >= 310
    assert max(served.values()) <= 1.5 * 320 / 4


@pytest.mark.parametrize("name", [BASE, adapter(1)])
def test_a_burst_between_two_ticks_spreads_as_if_each_had_been_seen(name: EngineAdapter) -> None:
    made = fleet(*(real_row(n, adapter(1)) for n in range(8)))
    found = Counter(winners(made, [query(name, i) for i in range(64)]))
    assert len(found) == 8
    assert min(found.values()) >= 7
    assert max(found.values()) <= 9


def test_a_burst_of_new_adapters_fills_each_slot_once() -> None:
    made = fleet(*(real_row(n, slots=8) for n in range(8)))
    found = Counter(winners(made, [query(adapter(i), i) for i in range(64)]))
    assert sorted(found.values()) == [8] * 8
    assert made.choose(query(adapter(99)), "axiom", 0.0).refusals == {Reason.QUARANTINED: 8}


def test_the_only_engine_is_stale_and_still_serves() -> None:
    made = fleet(real_row(0, adapter(1), heard_age_ms=60_000.0))
    decision = made.decide(query(adapter(1)), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.stale


def test_a_stale_engine_gives_way_to_a_fresh_one() -> None:
    made = fleet(real_row(0, adapter(1), heard_age_ms=60_000.0), real_row(1))
    decision = made.decide(query(adapter(1)), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.winner.engine == engine(1)
    assert not decision.stale
    assert decision.refusals == {Reason.STALE_TELEMETRY: 1}


@pytest.mark.parametrize("profile", ["axiom", "round-robin", "least-loaded"])
def test_an_engine_never_heard_from_gets_a_probe_share(profile: str) -> None:
    made = fleet(real_row(0), real_row(1), real_row(2, heard_age_ms=None))
    found: Counter[EngineId] = Counter()
    for number in range(400):
        decision = made.decide(query(request_hash=number), profile, 0.0)
        assert decision.winner is not None
        found[decision.winner.engine] += 1
        made.release(decision.booking)
    assert found[engine(2)] == 400 / PROBE_ONE_IN


def test_engines_never_heard_from_serve_when_there_are_no_others() -> None:
    made = fleet(real_row(0, heard_age_ms=None))
    decision = made.decide(query(number=1), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.stale


def test_one_overloaded_engine_leaves_the_affinity_of_the_others_alone() -> None:
    made = fleet(*(real_row(n, adapter(1), adapter(n + 10)) for n in range(8)))

    def affinities() -> list[float]:
        seen = made.explain(query(adapter(1)), "axiom", 0.0)
        return [
            one.scores["adapter-affinity"]
            for one in seen
            if isinstance(one, Candidate) and one.engine != engine(3)
        ]

    before = affinities()
    made.set_peer_load(engine(3), {BASE: 500})
    assert before == affinities() == [1.0] * 7


def test_averages_never_hide_a_saturated_engine() -> None:
    made = fleet(*(real_row(n, adapter(1)) for n in range(8)))
    made.set_peer_load(engine(5), {BASE: 200})
    found = winners(made, [query(adapter(1), i) for i in range(64)])
    assert engine(5) not in found
    decision = made.choose(query(adapter(1)), "axiom", 0.0)
    assert decision.refusals == {Reason.SATURATED: 1}


def test_no_engine_is_picked_when_all_are_saturated() -> None:
    full = WaitRule(base_ms=500.0, per_request_ms=0.0, per_token_ms=0.0)
    made = fleet(*(row(n, residents=(held(adapter(1)),), wait=full) for n in range(3)))
    decision = made.decide(query(adapter(1)), "axiom", 0.0)
    assert decision.winner is None
    assert decision.refusals == {Reason.SATURATED: 3}
    assert made.in_flight() == {}


def test_counts_return_to_zero_when_an_engine_flaps() -> None:
    made = fleet(real_row(0, adapter(1)), real_row(1, adapter(1)))
    bookings = []
    for flap in range(10):
        for i in range(8):
            decision = made.decide(query(adapter(1), 8 * flap + i), "axiom", float(flap))
            bookings.append(decision.booking)
        made.remove(engine(flap % 2))
        for booking in bookings[::3]:
            made.release(booking)
        made.set_row(real_row(flap % 2, adapter(1)))
        assert all(count > 0 for count in made.in_flight().values())
    for booking in bookings:
        made.first_token(booking)
        made.release(booking)
    assert made.in_flight() == {}
    fresh = fleet(real_row(0, adapter(1)), real_row(1, adapter(1)))
    asked = query(adapter(1))
    assert made.explain(asked, "axiom", 99.0) == fresh.explain(asked, "axiom", 99.0)
