"""Rows and queries for tests of decisions: idle engines of one base model, changed by keyword."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.decision import Query
from axiom_common.model.engine import LinkModel, Role
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.fleet import Fleet
from axiom_common.policy.profile import BUILT_IN
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.runtime.native import native_fleet_or_twin

AnyFleet = TypeVar("AnyFleet", bound=Fleet)
MEBIBYTE = 1 << 20
LINK = LinkModel(h2d_fixed_ms=20.0, h2d_gbps=10.0, store_fixed_ms=40.0, store_gbps=1.0)
"""A 10 MB adapter: 21 ms from host RAM, 71 ms from the store."""
SIZE_BYTES = 10_000_000
H2D_MS = 21.0
COLD_MS = 71.0
WAIT = WaitRule(
    base_ms=0.0,
    per_request_ms=100.0,
    per_token_ms=0.1,
    seats=8,
    slowdown_per_request_ms=10.0,
)


def engine(number: int) -> EngineId:
    """`n<number>.e0`."""
    return EngineId(f"n{number}.e0")


def adapter(number: int) -> EngineAdapter:
    """`a<number>~1`."""
    return EngineAdapter(f"a{number}~1")


def held(
    name: EngineAdapter,
    state: AdapterState = AdapterState.RESIDENT,
    *,
    in_flight: int | None = 0,
    remaining_ms: float = 0.0,
) -> Residency:
    """One adapter on an engine."""
    return Residency(
        adapter=name,
        state=state,
        source=ResidencySource.EXTENSION,
        in_flight=in_flight,
        remaining_ms=remaining_ms,
    )


def row(number: int = 0, **changes: Any) -> EngineRow:
    """An idle, healthy, empty engine with two HBM slots."""
    plain = EngineRow(
        engine=engine(number),
        base_model="base",
        role=Role.BOTH,
        refusal=None,
        stale=False,
        unheard=False,
        max_lora_rank=64,
        hbm_slots=2,
        link=LINK,
        load_queue_ms=0.0,
        wait=WAIT,
        prefill_ms_per_token=0.1,
        service_ms=2000.0,
        kv_slowdown=1.0,
        thermal_slowdown=1.0,
        latency_slowdown=1.0,
        kv_headroom=1.0,
        thermal_safety=1.0,
        latency_health=1.0,
    )
    return plain._replace(**changes)


def fleet(*rows: EngineRow) -> Fleet:
    """A fleet of these rows with the built-in profiles, of the kind that runs here."""
    return filled(native_fleet_or_twin(BUILT_IN), *rows)


def filled(made: AnyFleet, *rows: EngineRow) -> AnyFleet:
    """`made`, with these rows."""
    for one in rows:
        made.set_row(one)
    return made


def query(name: EngineAdapter | None = None, number: int = 1, **changes: Any) -> Query:
    """A short request for an adapter, or for the base model.

    `number` sets the request's hash; no multiple of 20 is used as one, so it never probes.
    """
    plain = Query(
        base_model="base",
        adapter=name if name is not None else EngineAdapter(""),
        rank=16 if name is not None else 0,
        size_bytes=SIZE_BYTES,
        prompt_tokens=10,
        affinity_hash=stable_hash(name or ""),
        request_hash=number * 20 + 1,
    )
    return plain._replace(**changes)


def winners(made: Fleet, queries: Iterable[Query], profile: str = "axiom") -> list[EngineId]:
    """Decide on each in turn at time 0, all of them staying in flight."""
    found = []
    for one in queries:
        decision = made.decide(one, profile, 0.0)
        assert decision.winner is not None, decision.refusals
        found.append(decision.winner.engine)
    return found
