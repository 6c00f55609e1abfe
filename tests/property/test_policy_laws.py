"""Laws of decisions over random fleets, requests and histories."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine_parts import engine_state
from tests.fleet_parts import adapter, engine, fleet, held, query, row

from axiom_common.model.adapter import AdapterState, Residency
from axiom_common.model.decision import Candidate, Query, Refused, Term
from axiom_common.model.engine import EngineLimits, EngineState
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.policy.batching import load_slowdown
from axiom_common.policy.cohort import Cohort
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.evidence import Evidence
from axiom_common.policy.fleet import Fleet
from axiom_common.policy.profile import BUILT_IN
from axiom_common.policy.rules import engine_row
from axiom_common.wire.decisions import DecisionView

ADAPTERS = [adapter(i) for i in range(5)]
PROFILES = st.sampled_from(["axiom", "round-robin", "least-loaded"])
BUSY_STATES = [AdapterState.RESIDENT, AdapterState.LOADING, AdapterState.DRAINING]


@st.composite
def residents(draw: st.DrawFn, slots: int) -> tuple[Residency, ...]:
    names = draw(st.lists(st.sampled_from(ADAPTERS), unique=True, max_size=5))
    hbm, host = names[:slots], names[slots:]
    return (
        *(held(name, AdapterState.HOST) for name in host),
        *(
            held(
                name,
                draw(st.sampled_from(BUSY_STATES)),
                in_flight=draw(st.sampled_from([None, 0, 2])),
                remaining_ms=draw(st.sampled_from([0.0, 25.0])),
            )
            for name in hbm
        ),
    )


@st.composite
def rows(draw: st.DrawFn, number: int) -> EngineRow:
    slots = draw(st.integers(0, 3))
    slowdowns = st.sampled_from([1.0, 1.25, 2.0])
    return row(
        number,
        base_model=draw(st.sampled_from(["base", "base", "base", "other"])),
        refusal=draw(st.sampled_from([None] * 5 + [Reason.NOT_READY, Reason.DRAINING])),
        stale=draw(st.booleans()),
        unheard=draw(st.sampled_from([False, False, False, True])),
        max_lora_rank=draw(st.sampled_from([0, 8, 64])) if slots else 0,
        hbm_slots=slots,
        load_queue_ms=draw(st.sampled_from([0.0, 40.0])),
        wait=WaitRule(
            base_ms=draw(st.sampled_from([0.0, 5.0, 120.0, 499.0, 501.0])),
            per_request_ms=draw(st.sampled_from([0.0, 60.0])),
            per_token_ms=0.1,
            seats=draw(st.integers(1, 4)),
            slowdown_per_request_ms=draw(st.sampled_from([0.0, 10.0])),
        ),
        kv_slowdown=draw(slowdowns),
        latency_slowdown=draw(slowdowns),
        residents=draw(residents(slots)),
        failures=frozenset(draw(st.lists(st.sampled_from(ADAPTERS), max_size=1))),
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[EngineRow]:
    return [draw(rows(n)) for n in range(draw(st.integers(1, 6)))]


@st.composite
def queries(draw: st.DrawFn) -> Query:
    name = draw(st.sampled_from([None, *ADAPTERS]))
    return query(
        name,
        rank=draw(st.sampled_from([4, 16])) if name else 0,
        prompt_tokens=draw(st.integers(0, 2000)),
        affinity_hash=draw(st.integers(0, 2**64 - 1)),
        request_hash=draw(st.integers(0, 2**64 - 1)),
    )


def loaded(made: Fleet, asked: list[Query], profile: str = "axiom") -> list[int]:
    return [made.decide(one, profile, float(i)).booking for i, one in enumerate(asked)]


@given(fleets(), st.lists(queries(), max_size=12), queries(), PROFILES)
def test_the_winner_survived_every_filter(
    found: list[EngineRow], before: list[Query], asked: Query, profile: str
) -> None:
    made = fleet(*found)
    loaded(made, before)
    by_engine = {one.engine: one for one in found}
    seen = {one.engine: one for one in made.explain(asked, profile, 50.0)}
    assert set(seen) == set(by_engine)
    decision = made.decide(asked, profile, 50.0)
    refused = [one for one in seen.values() if isinstance(one, Refused)]
    assert sum(decision.refusals.values()) == len(refused)
    if decision.winner is None:
        assert len(refused) == len(seen)
        return
    assert decision.winner == seen[decision.winner.engine]
    engine_row = by_engine[decision.winner.engine]
    assert engine_row.base_model == asked.base_model
    assert engine_row.refusal is None
    if asked.adapter != BASE:
        assert engine_row.max_lora_rank >= asked.rank
        assert engine_row.max_lora_rank > 0
        assert asked.adapter not in engine_row.failures
    if profile == "axiom":
        assert decision.winner.scores["adapter-affinity"] >= 0.0
        assert decision.winner.scores["queue-pressure"] > 0.0
    for candidate in (decision.winner, *decision.runners_up):
        assert 0.0 <= candidate.composite <= 1.0
        assert all(term_ms >= 0.0 for term_ms in candidate.terms_ms)
        assert all(-1.0 <= score <= 1.0 for score in candidate.scores.values())


@given(fleets(), st.lists(queries(), max_size=12), queries(), PROFILES)
def test_choosing_is_pure_and_deciding_chooses_the_same(
    found: list[EngineRow], before: list[Query], asked: Query, profile: str
) -> None:
    made, twin = fleet(*found), fleet(*found)
    assert loaded(made, before) == loaded(twin, before)
    first = made.choose(asked, profile, 50.0)
    assert made.choose(asked, profile, 50.0) == first
    assert twin.choose(asked, profile, 50.0) == first
    assert made.decide(asked, profile, 50.0)._replace(booking=0) == first


@given(fleets(), st.lists(queries(), max_size=8), queries(), PROFILES, st.randoms())
def test_the_order_of_engines_does_not_matter(
    found: list[EngineRow],
    before: list[Query],
    asked: Query,
    profile: str,
    chance: random.Random,
) -> None:
    made = fleet(*found)
    other = fleet(*(row(90 + i) for i in range(4)))
    mixed = list(found)
    chance.shuffle(mixed)
    for i, one in enumerate(mixed):
        other.set_row(one)
        other.remove(engine(90 + i))
    for i in range(4):
        other.remove(engine(90 + i))
    loaded(made, before, profile)
    loaded(other, before, profile)
    assert made.choose(asked, profile, 50.0) == other.choose(asked, profile, 50.0)


@given(fleets(), queries(), st.integers(1, 50), st.sampled_from([BASE, EngineAdapter("own-name")]))
def test_more_load_never_raises_a_score(
    found: list[EngineRow], asked: Query, more: int, name: EngineAdapter
) -> None:
    """Load of others: an adapter's own load can only raise its affinity, by bringing it there."""
    made = fleet(*found)
    before = {one.engine: one for one in made.explain(asked, "axiom", 0.0)}
    for one in found:
        made.set_peer_load(one.engine, {name: more})
    for after in made.explain(asked, "axiom", 0.0):
        unloaded = before[after.engine]
        if isinstance(after, Candidate):
            if isinstance(unloaded, Refused):
                # a fresh engine that got saturated no longer pushes the stale one aside
                assert unloaded.reason is Reason.STALE_TELEMETRY
                continue
            assert all(after.scores[name] <= s for name, s in unloaded.scores.items())
            assert after.cost_ms >= unloaded.cost_ms


@given(fleets(), st.lists(queries(), min_size=1, max_size=30))
def test_no_slot_is_promised_twice(found: list[EngineRow], asked: list[Query]) -> None:
    made = fleet(*found)
    loaded(made, asked)
    for one in found:
        busy = {
            r.adapter
            for r in one.residents
            if r.state in BUSY_STATES and (r.in_flight or r.state is not AdapterState.RESIDENT)
        }
        booked = {name for where, name in made.in_flight() if where == one.engine} - {BASE}
        assert len(busy | booked) <= max(one.hbm_slots, len(busy))


@given(fleets(), st.lists(queries(), max_size=12), queries(), PROFILES, st.integers(0, 5))
def test_an_engine_that_comes_back_was_never_away(
    found: list[EngineRow], before: list[Query], asked: Query, profile: str, which: int
) -> None:
    made, twin = fleet(*found), fleet(*found)
    bookings = loaded(made, before)
    assert loaded(twin, before) == bookings
    away = found[which % len(found)]
    made.remove(away.engine)
    assert made.in_flight() == twin.in_flight()
    for booking in bookings[::2]:
        made.release(booking)
        twin.release(booking)
    made.set_row(away)
    assert made.explain(asked, profile, 50.0) == twin.explain(asked, profile, 50.0)


@given(rows(0), rows(0), st.lists(queries(), max_size=3))
def test_a_row_replaces_all_of_the_one_before_it(
    old: EngineRow, new: EngineRow, before: list[Query]
) -> None:
    made, twin = fleet(old), fleet(old)
    assert loaded(made, before) == loaded(twin, before)
    twin.remove(old.engine)
    for one in (made, twin):
        one.set_row(new)
    for asked in (query(), *map(query, ADAPTERS)):
        assert made.explain(asked, "round-robin", 50.0) == twin.explain(asked, "round-robin", 50.0)


def reported(number: int, tenants: tuple[Residency, ...], slots: int, running: int) -> EngineState:
    """A small engine that runs so many requests, as its agent reports it."""
    return engine_state(
        engine(number),
        limits=EngineLimits(max_num_seqs=4, hbm_slots=slots, max_lora_rank=64),
        running=running,
        tpot_ms=10.0 * load_slowdown(running, 4),
        residents=tenants,
    )


def confirmed(
    tenants: tuple[Residency, ...], slots: int, booked: dict[EngineAdapter, int], arrived: bool
) -> tuple[Residency, ...]:
    """What the engine holds once it has begun all that is booked: idle tenants went to host RAM."""
    now = {r.adapter: r for r in tenants if r.state is not AdapterState.HOST}
    for name in booked:
        if name in now:
            continue
        idle = (
            r.adapter
            for r in now.values()
            if r.state is AdapterState.RESIDENT and not r.in_flight and r.adapter not in booked
        )
        if len(now) >= slots:
            del now[next(idle)]
        state = AdapterState.RESIDENT if arrived else AdapterState.LOADING
        now[name] = held(name, state, remaining_ms=0.0 if arrived else 30.0)
    for name in now.keys() & booked.keys():
        now[name] = replace(now[name], in_flight=booked[name])
    return tuple(now.values())


@given(st.data(), st.booleans())
def test_telemetry_that_confirms_bookings_changes_no_wait_and_no_slot(
    data: st.DataObject, arrived: bool
) -> None:
    slots = data.draw(st.integers(1, 3))
    told = {engine(n): data.draw(residents(slots)) for n in range(3)}
    made = fleet()
    for n, tenants in enumerate(told.values()):
        made.set_row(engine_row(reported(n, tenants, slots, 0), Evidence(), Cohort(), 0.0))
    loaded(made, data.draw(st.lists(queries(), max_size=16)))
    asked = query(adapter(99))
    before = made.explain(asked, "axiom", 50.0)
    for n, (where, tenants) in enumerate(told.items()):
        booked = {a: c for (e, a), c in made.in_flight().items() if e == where}
        running = sum(booked.values())
        booked.pop(BASE, None)
        now = confirmed(tenants, slots, booked, arrived)
        made.set_row(engine_row(reported(n, now, slots, running), Evidence(), Cohort(), 0.0))
    after = made.explain(asked, "axiom", 50.0)
    assert [waits_and_slot(one) for one in after] == [waits_and_slot(one) for one in before]


def waits_and_slot(seen: Candidate | Refused) -> object:
    if isinstance(seen, Refused):
        return seen
    wait_ms = seen.terms_ms[list(Term).index(Term.WAIT)]
    return seen.engine, wait_ms, seen.scores["queue-pressure"], seen.scores["adapter-affinity"]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "decide", "first", "release", "remove", "row", "peer"]),
        st.integers(0, 40),
        queries(),
    ),
    max_size=50,
)


@settings(max_examples=60)
@given(fleets(), EVENTS, queries())
def test_sums_return_to_zero(
    found: list[EngineRow],
    events: list[tuple[str, int, Query]],
    asked: Query,
) -> None:
    """After any history, once all is released, the fleet is as if nothing had happened."""
    made = fleet(*found)
    bookings = [0]
    for i, (what, number, one) in enumerate(events):
        target = found[number % len(found)]
        booking = bookings[number % len(bookings)]
        if what == "decide":
            bookings.append(made.decide(one, "axiom", float(i)).booking)
        elif what == "first":
            made.first_token(booking)
        elif what == "release":
            made.release(booking)
        elif what == "remove":
            made.remove(target.engine)
        elif what == "row":
            made.set_row(target._replace(residents=(), failures=frozenset()))
        else:
            made.set_peer_load(target.engine, {one.adapter: number, adapter(3): 1})
        assert all(count > 0 for count in made.in_flight().values())
    for booking in bookings:
        made.release(booking)
    assert made.in_flight() == {}
    for one_row in found:
        made.set_row(one_row)
        made.set_peer_load(one_row.engine, {})
    fresh = fleet(*found)
    for profile in ("axiom", "round-robin", "least-loaded"):
        assert made.explain(asked, profile, 99.0) == fresh.explain(asked, profile, 99.0)


@given(fleets(), st.lists(queries(), max_size=12), queries(), PROFILES)
def test_the_parts_of_every_decision_add_up_to_its_cost(
    found: list[EngineRow], before: list[Query], asked: Query, profile: str
) -> None:
    """To half a microsecond, for that is what costs are rounded to before they are compared."""
    made = fleet(*found)
    loaded(made, before)
    decision = made.decide(asked, profile, 50.0)
    shown = DecisionView.of(decision.whole(), BUILT_IN[profile].weights)
    for one in (shown.winner, *shown.runners_up):
        if one is not None:
            assert abs(sum(part.cost_ms for part in one.parts) - one.cost_ms) <= 0.000_501
            assert [part.term for part in one.parts] == list(Term)
