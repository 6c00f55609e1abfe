"""The small parts of a decision: registry, profiles, hashes, load times, slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fleet_parts import adapter, held

import axiom_common.policy
from axiom_common.model.adapter import AdapterState, Residency
from axiom_common.model.decision import SCORES, Term
from axiom_common.model.ids import BASE
from axiom_common.policy.load_times import assumed_size_bytes, load_ms
from axiom_common.policy.occupancy import Holding, Occupancy, holding, loads_done_at_ms, occupancy
from axiom_common.policy.profile import BUILT_IN
from axiom_common.policy.registry import (
    CAPABILITY_FILTERS,
    ENGINE_FILTERS,
    LATE_FILTERS,
    PICKERS,
    REQUEST_FILTERS,
    SCORERS,
)
from axiom_common.policy.rendezvous import rendezvous, stable_hash
from axiom_common.policy.scorers.adapter_affinity import Held, Slot
from axiom_common.state.bookings import NO_LOAD_MS, AdapterBooks, EngineBooks

POLICY = Path(axiom_common.policy.__path__[0])
MEBIBYTE = 1 << 20
A, B, C, D, E = (adapter(i) for i in range(5))


def files(folder: str) -> set[str]:
    return {p.stem for p in (POLICY / folder).glob("*.py")} - {"__init__"}


def test_the_registry_is_complete() -> None:
    filters = (*ENGINE_FILTERS.items(), *REQUEST_FILTERS.items())
    filters += (*CAPABILITY_FILTERS.items(), *LATE_FILTERS.items())
    modules = {f.__module__.rpartition(".")[2] for _, f in filters}
    assert modules | {"staleness"} == files("filters")
    assert {name.replace("-", "_") for name in SCORES.values()} == files("scorers")
    assert {p.__module__.rpartition(".")[2] for p in PICKERS.values()} == files("pickers")
    assert tuple(SCORERS) == tuple(SCORES) == tuple(Term)
    assert len({reason for reason, _ in filters}) == len(filters)


def test_profiles_name_pickers_that_exist() -> None:
    assert set(BUILT_IN) == {"axiom", "round-robin", "least-loaded"}
    for name, profile in BUILT_IN.items():
        assert profile.name == name
        assert profile.picker in PICKERS
        assert set(profile.weights) == set(Term)
    assert BUILT_IN["axiom"].wait_cap_ms == 500.0


def test_hashes_are_the_same_on_every_machine() -> None:
    # XXH3 of no input, from its specification
    assert stable_hash("") == 0x2D06800538D394C2
    identities = np.array([1, 2, 3], np.uint64)
    assert rendezvous(identities, 5).tolist() == rendezvous(identities, 5 + (1 << 64)).tolist()
    # the finaliser of splitmix64: the first output of its generator with seed 0
    golden = np.array([0x9E3779B97F4A7C15], np.uint64)
    assert rendezvous(golden, 0).tolist() == [0xE220A8397B1DCDAF]


def test_rendezvous_spreads_evenly_and_moves_little() -> None:
    engines = np.array([stable_hash(f"n{i}.e0") for i in range(8)], np.uint64)
    before = [int(np.argmax(rendezvous(engines, stable_hash(f"a{k}")))) for k in range(4000)]
    counts = np.bincount(before, minlength=8)
    assert counts.min() > 400
    assert counts.max() < 600
    after = [int(np.argmax(rendezvous(engines[:7], stable_hash(f"a{k}")))) for k in range(4000)]
    moved = [b for b, a in zip(before, after, strict=True) if a != b]
    assert set(moved) == {7}


@pytest.mark.parametrize(("rank", "mebibytes"), [(8, 40), (16, 80), (64, 320), (0, 80)])
def test_an_unknown_size_comes_from_the_rank(rank: int, mebibytes: int) -> None:
    assert assumed_size_bytes(rank) == mebibytes * MEBIBYTE


def test_load_time_by_how_it_is_held() -> None:
    found = load_ms(
        np.array([Held.NOT, Held.HOST, Held.LOADING, Held.RESIDENT], np.int8),
        remaining_ms=np.full(4, 5.0),
        h2d_ms=np.full(4, 20.0),
        cold_ms=np.full(4, 90.0),
    )
    assert found.tolist() == [90.0, 20.0, 5.0, 0.0]


RESIDENT, LOADING, HOST = AdapterState.RESIDENT, AdapterState.LOADING, AdapterState.HOST


@pytest.mark.parametrize(
    ("residents", "in_flight", "expected"),
    [
        ((), (), Slot.FREE),
        ((), (BASE,), Slot.FREE),
        ((held(A), held(B, HOST)), (), Slot.FREE),  # host copies take no slot
        ((held(A), held(B)), (), Slot.IDLE_VICTIM),
        ((held(A, in_flight=1), held(B)), (), Slot.IDLE_VICTIM),
        ((held(A, in_flight=None), held(B, in_flight=1)), (), Slot.IDLE_VICTIM),
        ((held(A, in_flight=1), held(B, in_flight=1)), (), Slot.BUSY),
        ((held(A), held(B)), (A, B), Slot.BUSY),  # a gateway says so
        ((held(A), held(B, LOADING)), (A,), Slot.BUSY),  # what loads is no victim
        ((held(A, in_flight=1), held(B, AdapterState.DRAINING)), (), Slot.BUSY),
        ((held(A, in_flight=1), held(B, AdapterState.FAILED)), (), Slot.FREE),
        # a copy that lost its name stays until its slot is wanted
        ((held(A, in_flight=1), held(B, AdapterState.UNLOADING)), (), Slot.IDLE_VICTIM),
        ((held(A, in_flight=1), held(B, AdapterState.UNLOADING)), (C,), Slot.BUSY),
        # what is booked and not yet reported claims a slot, once an adapter
        ((), (A,), Slot.FREE),
        ((), (A, B), Slot.BUSY),
        ((held(A),), (B,), Slot.IDLE_VICTIM),
        ((held(A), held(B)), (C,), Slot.IDLE_VICTIM),
        ((held(A), held(B)), (B, C), Slot.BUSY),
        ((held(A), held(B, HOST)), (B,), Slot.IDLE_VICTIM),
    ],
)
def test_what_a_load_would_get(
    residents: tuple[object, ...], in_flight: tuple[object, ...], expected: int
) -> None:
    by_name = {r.adapter: r for r in residents}  # type: ignore[attr-defined]
    assert occupancy(2, by_name, in_flight).slot == expected  # type: ignore[arg-type]


def test_claims_evict_the_idle_tenants_oldest_first() -> None:
    tenants = {r.adapter: r for r in (held(A), held(B, in_flight=1), held(C))}
    assert occupancy(4, tenants, (D,)) == Occupancy(Slot.IDLE_VICTIM)
    assert occupancy(3, tenants, (D,)) == Occupancy(Slot.IDLE_VICTIM, frozenset({A}))
    assert occupancy(3, tenants, (D, A)) == Occupancy(Slot.BUSY, frozenset({C}))
    assert occupancy(3, tenants, (D, E)) == Occupancy(Slot.BUSY, frozenset({A, C}))
    assert occupancy(3, tenants, (D, E, A)) == Occupancy(Slot.BUSY, frozenset({C}))


@pytest.mark.parametrize(
    ("residents", "done_at_ms"),
    [
        ((), 90.0),
        ((held(B, LOADING), held(A, HOST)), 70.0),
        ((held(B), held(A, LOADING)), NO_LOAD_MS),
        # a copy without a name is not what is being loaded
        ((held(B, AdapterState.UNLOADING),), 90.0),
    ],
)
def test_a_booked_load_counts_until_it_is_reported(
    residents: tuple[Residency, ...], done_at_ms: float
) -> None:
    booked = EngineBooks(
        requests=3,
        adapters={
            A: AdapterBooks(requests=1, ready_at_ms=70.0),
            B: AdapterBooks(requests=1, ready_at_ms=90.0),
            C: AdapterBooks(requests=1),
        },
    )
    assert loads_done_at_ms(booked, {r.adapter: r for r in residents}) == done_at_ms


BOOKED = AdapterBooks(requests=1, ready_at_ms=70.0)


@pytest.mark.parametrize(
    ("reported", "booked", "at_peers", "expected"),
    [
        (None, None, False, None),
        (held(A), BOOKED, True, Holding(Held.RESIDENT)),
        (held(A, HOST), None, False, Holding(Held.HOST)),
        (held(A, HOST), BOOKED, False, Holding(Held.LOADING, ready_at_ms=70.0)),
        (None, BOOKED, True, Holding(Held.LOADING, ready_at_ms=70.0)),
        (None, None, True, Holding(Held.LOADING, ready_at_ms=NO_LOAD_MS)),
        (held(A, LOADING, remaining_ms=9.0), None, False, Holding(Held.LOADING, remaining_ms=9.0)),
        (
            held(A, AdapterState.FETCHING, remaining_ms=9.0),
            None,
            False,
            Holding(Held.LOADING, remaining_ms=9.0),
        ),
        (held(A, AdapterState.DRAINING), None, False, None),
        (held(A, AdapterState.UNLOADING), None, False, None),
        (held(A, AdapterState.FAILED), None, False, None),
    ],
)
def test_how_an_adapter_is_held(
    reported: object, booked: AdapterBooks | None, at_peers: bool, expected: Holding | None
) -> None:
    assert holding(reported, booked, at_peers=at_peers, evicted=False) == expected  # type: ignore[arg-type]


def test_an_adapter_about_to_be_evicted_is_left_in_host_ram() -> None:
    assert holding(held(A), None, at_peers=False, evicted=True) == Holding(Held.HOST)
