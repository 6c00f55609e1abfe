"""The kernel chooses what the rules say row by row, through random histories of a fleet.

Drawn by seeds, not by Hypothesis: what matters needs long histories (loads, waits that add up, rows
that change under what is kept), and each step of one is a case.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.drawn_fleets import ADAPTERS, PROFILES, drawn_query, drawn_row
from tests.fleet_parts import engine, filled
from tests.reference_kernel import reference_choice

from axiom_common.model.ids import EngineAdapter
from axiom_common.policy.decided import SHOWN_MAX
from axiom_common.policy.fleet_twin import FleetTwin
from axiom_common.policy.load_times import assumed_size_bytes
from axiom_common.policy.profile import BUILT_IN

STEPS = 200


@pytest.mark.parametrize("seed", range(30))
def test_the_kernel_agrees_with_the_rules_at_each_step(seed: int) -> None:
    chance = Random(seed)
    engines = chance.choice([1, 3, 6, 9, 14])
    made = filled(FleetTwin(BUILT_IN), *(drawn_row(chance, n) for n in range(engines)))
    bookings, now_ms = [0], 0.0
    for _ in range(STEPS):
        now_ms += chance.choice([0.0, 1.0, 30.0, 400.0])
        what, where = chance.random(), chance.randrange(engines)
        if what < 0.5:
            asked, profile = drawn_query(chance, engines), chance.choice(PROFILES)
            choice = made._choose(asked, profile, now_ms, None)
            view, ask = choice.prospect.view, choice.prospect.ask
            size_bytes = asked.size_bytes or assumed_size_bytes(asked.rank)
            refusals, ranked, costs_us, others = reference_choice(view, ask, size_bytes)
            assert choice.refusals.tolist() == refusals
            assert choice.ranked.tolist() == ranked
            assert choice.prospect.cost_us[choice.ranked].tolist() == costs_us
            assert choice.next.tolist() == others[: max(0, SHOWN_MAX - len(ranked))]
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
