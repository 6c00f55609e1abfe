"""Slots promised to those that waited too long: who runs out, for whom, and how it ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.fleet_parts import adapter, engine, held, query, row

from axiom_common.model.adapter import AdapterState
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.claims import CLAIM_MS, Claims

NEW, HOT, WARM, OTHER = (adapter(n) for n in range(4))
WANTED = query(NEW)
E0, E1 = engine(0), engine(1)


def full(number: int, *names: EngineAdapter, **changes: Any) -> Any:
    return row(number, residents=tuple(held(name) for name in names), **changes)


def nothing(_: EngineId, __: EngineAdapter) -> int:
    return 0


def closed(claims: Claims, name: EngineAdapter, *held_on: EngineId) -> tuple[EngineId, ...]:
    return claims.closed_to(name, lambda engine: engine in held_on)


@pytest.mark.parametrize(
    ("rows", "busy", "expected"),
    [
        # The least in flight.
        ([full(0, HOT, WARM)], {(E0, HOT): 3, (E0, WARM): 1}, (E0, WARM)),
        ([full(0, HOT), full(1, WARM)], {(E0, HOT): 1, (E1, WARM): 2}, (E0, HOT)),
        # But before all one that is served elsewhere too.
        ([full(0, HOT, WARM), full(1, HOT)], {(E0, HOT): 3, (E1, HOT): 5}, (E0, HOT)),
        # Only where nothing but a slot is lacking.
        ([full(0, HOT, refusal=Reason.NOT_READY), full(1, WARM)], {}, (E1, WARM)),
        ([full(0, HOT, max_lora_rank=8), full(1, WARM)], {}, (E1, WARM)),
        ([full(0, HOT, loads_allowed=False), full(1, WARM)], {}, (E1, WARM)),
        ([full(0, HOT, failures=frozenset({NEW})), full(1, WARM)], {}, (E1, WARM)),
        ([full(0, HOT, base_model="another"), full(1, WARM)], {}, (E1, WARM)),
        ([row(0, residents=(held(HOT, AdapterState.HOST),))], {}, None),
    ],
)
def test_the_victim_is_whom_it_hurts_least(
    rows: list[Any],
    busy: dict[tuple[EngineId, EngineAdapter], int],
    expected: tuple[EngineId, EngineAdapter] | None,
) -> None:
    claims, counts = Claims(), Counter(busy)
    claims.claim(WANTED, rows, lambda e, a: counts[e, a], 0.0)
    found = [(e, name) for name in (HOT, WARM) for e in closed(claims, name, E0, E1)]
    assert found == ([expected] if expected else [])


def test_a_claimed_engine_serves_the_rest_of_what_it_holds_and_loads_for_the_claimant() -> None:
    claims = Claims()
    claims.claim(WANTED, [full(0, HOT, WARM)], nothing, 0.0)
    victim, kept = (HOT, WARM) if closed(claims, HOT, E0) else (WARM, HOT)
    assert closed(claims, victim, E0) == (E0,)
    assert closed(claims, kept, E0) == ()
    assert closed(claims, OTHER) == (E0,)
    assert closed(claims, NEW) == ()


def test_one_claim_an_engine_and_one_an_adapter() -> None:
    claims = Claims()
    rows = [full(0, HOT), full(1, WARM)]
    claims.claim(WANTED, rows, nothing, 0.0)
    claims.claim(WANTED, rows, nothing, 1.0)
    assert len(closed(claims, OTHER)) == 1
    claims.claim(query(OTHER), rows, nothing, 2.0)
    assert (len(closed(claims, HOT)), len(closed(claims, WARM))) == (2, 2)
    claims.claim(query(adapter(9)), rows, nothing, 3.0)
    assert closed(claims, adapter(9)) == (E0, E1)


def test_a_claim_ends_when_it_is_served_or_nobody_waits_any_more() -> None:
    claims = Claims()
    rows = [full(0, HOT)]
    claims.claim(WANTED, rows, nothing, 0.0)
    claims.expire(CLAIM_MS - 1.0)
    assert claims
    claims.claim(WANTED, rows, nothing, CLAIM_MS - 1.0)
    claims.expire(CLAIM_MS)
    claims.end(OTHER)
    assert claims
    claims.end(NEW)
    assert not claims
    claims.claim(WANTED, rows, nothing, CLAIM_MS)
    claims.expire(2 * CLAIM_MS)
    assert not claims
