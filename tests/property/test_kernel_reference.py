"""The kernel chooses what the rules say row by row, through random histories of a fleet.

Drawn by seeds, not by Hypothesis: what matters needs long histories (loads, waits that add up, rows
that change under what is kept), and each step of one is a case.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.fleet_parts import LINK, SIZE_BYTES, adapter, engine, fleet, held, query, row
from tests.reference_kernel import reference_choice

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import Query
from axiom_common.model.engine import Role
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.load_times import assumed_size_bytes

ADAPTERS = [adapter(n) for n in range(12)]
STATES = [AdapterState.RESIDENT] * 3 + [
    AdapterState.LOADING,
    AdapterState.DRAINING,
    AdapterState.UNLOADING,
]
PROFILES = ["axiom"] * 4 + ["round-robin", "least-loaded"]
STEPS = 200


def drawn_row(chance: Random, number: int) -> EngineRow:
    pick = chance.choice
    slots = chance.randint(0, 3)
    names = chance.sample(ADAPTERS, chance.randint(0, 4))
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
        load_queue_ms=pick([0.0, 40.0]),
        link=replace(LINK, h2d_gbps=pick([5.0, 10.0])),
        wait=WaitRule(
            base_ms=pick([0.0, 0.0, 5.0, 120.0, 499.0]),
            per_request_ms=pick([0.0, 60.0]),
            per_token_ms=0.1,
            seats=chance.randint(1, 4),
            slowdown_per_request_ms=pick([0.0, 10.0]),
        ),
        kv_slowdown=pick([1.0, 1.25, 2.0]),
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


@pytest.mark.parametrize("seed", range(30))
def test_the_kernel_agrees_with_the_rules_at_each_step(seed: int) -> None:
    chance = Random(seed)
    engines = chance.choice([1, 3, 6, 9, 14])
    made = fleet(*(drawn_row(chance, number) for number in range(engines)))
    bookings, now_ms = [0], 0.0
    for _ in range(STEPS):
        now_ms += chance.choice([0.0, 1.0, 30.0, 400.0])
        what, where = chance.random(), chance.randrange(engines)
        if what < 0.5:
            asked, profile = drawn_query(chance, engines), chance.choice(PROFILES)
            choice = made._choose(asked, profile, now_ms)
            view, ask = choice.prospect.view, choice.prospect.ask
            size_bytes = asked.size_bytes or assumed_size_bytes(asked.rank)
            refusals, ranked, costs_us = reference_choice(view, ask, size_bytes)
            assert choice.refusals.tolist() == refusals
            assert choice.ranked.tolist() == ranked
            assert choice.prospect.cost_us[choice.ranked].tolist() == costs_us
            bookings.append(made.decide(asked, profile, now_ms).booking)
        elif what < 0.6:
            made.first_token(chance.choice(bookings))
        elif what < 0.7:
            made.release(chance.choice(bookings))
        elif what < 0.8:
            made.set_row(drawn_row(chance, where))
        elif what < 0.9:
            made.remove(engine(where))
        else:
            name = chance.choice([*ADAPTERS, EngineAdapter("")])
            made.set_peer_load(engine(where), {name: chance.randint(0, 4)})
