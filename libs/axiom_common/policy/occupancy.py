"""HBM slots of one engine: who has one, who is about to take one, and what a load would get.

Derived from the engine's report and from the requests in flight, so nothing is counted twice: a
booked adapter that the report does not list claims a slot; once it is listed, it is its tenant. Two
requests for the same adapter claim one slot, because the second joins the first one's load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from axiom_common.model.adapter import AdapterState, Residency
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.policy.scorers.adapter_affinity import Held, Slot
from axiom_common.state.bookings import NO_LOAD_MS, AdapterBooks, EngineBooks

_HELD = {
    AdapterState.RESIDENT: Held.RESIDENT,
    AdapterState.FETCHING: Held.LOADING,
    AdapterState.LOADING: Held.LOADING,
    AdapterState.HOST: Held.HOST,
}
"""Other states are on their way out, or failed: a new request would have to load it again."""

TENANTS = frozenset(
    {
        AdapterState.RESIDENT,
        AdapterState.FETCHING,
        AdapterState.LOADING,
        AdapterState.DRAINING,
        AdapterState.UNLOADING,
    }
)

VICTIMS = frozenset({AdapterState.RESIDENT, AdapterState.UNLOADING})
"""What a load may push out while it is idle. `UNLOADING` is a copy without a name: it lasts until
the engine needs its slot, and would block it for ever if it did not count here."""


@dataclass(frozen=True, slots=True)
class Holding:
    """How (`Held`) an engine holds one adapter; the rest of a load is the larger of the times."""

    held: int
    remaining_ms: float = 0.0
    ready_at_ms: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What a load of one more adapter would get (a `Slot`), and which tenants are to be evicted
    by the loads that are booked already."""

    slot: int
    evicted: frozenset[EngineAdapter] = frozenset()


def occupancy(
    hbm_slots: int,
    residents: Mapping[EngineAdapter, Residency],
    in_flight: Collection[EngineAdapter],
) -> Occupancy:
    """Who has the slots of an engine. `residents` stand in its LRU order, oldest first.

    `in_flight` are the adapters that gateways have requests of there. A tenant is busy when they or
    the engine say so. Claims take free slots first, then those of the idle tenants, oldest first:
    an adapter that is about to lose its slot is not resident for the next request.
    """
    tenants = [r for r in residents.values() if r.state in TENANTS]
    idle = [
        r for r in tenants if r.state in VICTIMS and not r.in_flight and r.adapter not in in_flight
    ]
    has_slot = {r.adapter for r in tenants}
    claims = sum(adapter != BASE and adapter not in has_slot for adapter in in_flight)
    free = max(0, hbm_slots - len(tenants)) - claims
    if free > 0:
        return Occupancy(Slot.FREE)
    pushed_out = idle[:-free] if free else []
    return Occupancy(
        Slot.IDLE_VICTIM if len(idle) > len(pushed_out) else Slot.BUSY,
        evicted=frozenset(r.adapter for r in pushed_out if r.state is AdapterState.RESIDENT),
    )


def loads_done_at_ms(booked: EngineBooks, residents: Mapping[EngineAdapter, Residency]) -> float:
    """When the last load ends that is booked and not yet reported; NO_LOAD_MS without one."""
    done_at_ms = NO_LOAD_MS
    for adapter, books in booked.adapters.items():
        is_later = books.ready_at_ms > done_at_ms
        if is_later and held_by_report(residents.get(adapter)) < Held.LOADING:
            done_at_ms = books.ready_at_ms
    return done_at_ms


def holding(
    reported: Residency | None, booked: AdapterBooks | None, *, at_peers: bool, evicted: bool
) -> Holding | None:
    """How the engine holds an adapter, by its report and by what is in flight; None: not at all.

    `booked` are this gateway's requests there; `at_peers`: other gateways have some. Either way the
    adapter's load is under way or done. A peer's load counts as done: its rest is not known, and
    the peer's first requests bear it. `evicted`: a booked load takes its slot, and only the host
    copy is left.
    """
    if evicted:
        return Holding(Held.HOST)
    held = held_by_report(reported)
    if held == Held.RESIDENT:
        return Holding(held)
    if reported is not None and held == Held.LOADING:
        return Holding(held, remaining_ms=reported.remaining_ms)
    if booked is not None:
        return Holding(Held.LOADING, ready_at_ms=booked.ready_at_ms)
    if at_peers:
        return Holding(Held.LOADING)
    return Holding(held) if held == Held.HOST else None


def held_by_report(reported: Residency | None) -> int:
    """How (`Held`) an engine holds an adapter, by its report alone."""
    return _HELD.get(reported.state, Held.NOT) if reported is not None else Held.NOT
