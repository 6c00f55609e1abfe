"""Rows and queries drawn by a seed: everything that a decision looks at, in all its kinds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.fleet_parts import LINK, SIZE_BYTES, adapter, engine, held, query, row

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import Query
from axiom_common.model.engine import Role
from axiom_common.model.reason import Reason
from axiom_common.policy.engine_row import EngineRow, WaitRule

ADAPTERS = [adapter(n) for n in range(12)]
STATES = [AdapterState.RESIDENT] * 3 + [
    AdapterState.LOADING,
    AdapterState.DRAINING,
    AdapterState.UNLOADING,
]
PROFILES = ["axiom"] * 4 + ["round-robin", "least-loaded"]


def drawn_row(chance: Random, number: int) -> EngineRow:
    pick = chance.choice
    slots = chance.randint(0, 3)
    names = chance.sample(ADAPTERS, chance.randint(0, 4))
    # Half of the engines have figures that no sum of floats is exact for; the others tie.
    odd = chance.uniform(0.7, 1.3) if chance.random() < 0.5 else 1.0
    return row(
        number,
        base_model=pick(["base"] * 7 + ["other"]),
        role=pick([Role.BOTH] * 3 + [Role.DECODE]),
        refusal=pick([None] * 9 + [Reason.NOT_READY]),
        stale=chance.random() < 0.1,
        unheard=chance.random() < 0.1,
        flapping=chance.random() < 0.1,
        max_lora_rank=pick([0, 8, 64, 64]) if slots else 0,
        hbm_slots=slots,
        load_queue_ms=odd * pick([0.0, 40.0]),
        link=replace(LINK, h2d_gbps=odd * pick([5.0, 10.0])),
        prefill_ms_per_token=odd * 0.1,
        service_ms=odd * 2000.0,
        wait=WaitRule(
            base_ms=odd * pick([0.0, 0.0, 5.0, 120.0, 499.0]),
            per_request_ms=odd * pick([0.0, 60.0]),
            per_token_ms=0.1,
            seats=chance.randint(1, 4),
            slowdown_per_request_ms=pick([0.0, 10.0]),
        ),
        kv_slowdown=pick([1.0, 1.25, 2.0]),
        thermal_slowdown=pick([1.0, 1.0, 1.25]),
        latency_slowdown=pick([1.0, 1.3]),
        residents=(
            *(held(name, AdapterState.HOST) for name in names[slots:]),
            *(
                held(name, pick(STATES), in_flight=pick([None, 0, 2]), remaining_ms=pick([0, 25]))
                for name in names[:slots]
            ),
        ),
        registered=tuple(chance.sample(ADAPTERS, chance.randint(0, 3))),
        failures=frozenset(chance.sample(ADAPTERS, pick([0, 0, 1]))),
        loads_allowed=chance.random() < 0.8,
    )


def drawn_query(chance: Random, engines: int) -> Query:
    name = chance.choice([None, *ADAPTERS])
    return query(
        name,
        rank=chance.choice([0, 4, 16]) if name else 0,
        size_bytes=chance.choice([0, SIZE_BYTES, 3 * SIZE_BYTES]),
        prompt_tokens=chance.randint(0, 2000),
        affinity_hash=chance.getrandbits(64),
        request_hash=chance.choice([0, 20, chance.getrandbits(64)]),
        excluded=tuple(engine(chance.randrange(engines)) for _ in range(chance.choice([0, 0, 1]))),
    )
