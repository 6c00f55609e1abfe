"""The exact scale of adapter affinity."""

from __future__ import annotations

import numpy as np
import pytest

from axiom_common.policy.scorers.adapter_affinity import Held, Slot, adapter_affinity

BUSY, IDLE, FREE = Slot.BUSY, Slot.IDLE_VICTIM, Slot.FREE
ANY = (BUSY, IDLE, FREE)


def score(
    held: int, slot: int, *, remaining_ms: float = 0.0, h2d_ms: float = 20.0, cold_ms: float = 100.0
) -> float:
    found = adapter_affinity(
        np.array([held], np.int8),
        np.array([slot], np.int8),
        remaining_ms=np.array([remaining_ms]),
        h2d_ms=np.array([h2d_ms]),
        cold_ms=np.array([cold_ms]),
    )
    return float(found[0])


@pytest.mark.parametrize("slot", ANY)
def test_resident_is_one_whatever_the_other_slots_do(slot: int) -> None:
    assert score(Held.RESIDENT, slot) == 1.0


@pytest.mark.parametrize("slot", ANY)
@pytest.mark.parametrize(
    ("remaining_ms", "expected"),
    [
        (100.0, 0.8),  # just begun: never under the host score
        (30.0, 0.8),  # 0.7 would be under it
        (10.0, 0.9),
        (5.0, 0.95),
        (0.0, 0.99),  # below 1.0 even when it is about to end
        (500.0, 0.8),  # longer than cold: the load waits in a queue
    ],
)
def test_a_load_under_way_is_joined(slot: int, remaining_ms: float, expected: float) -> None:
    assert score(Held.LOADING, slot, remaining_ms=remaining_ms) == pytest.approx(expected)


@pytest.mark.parametrize("slot", [IDLE, FREE])
@pytest.mark.parametrize(
    ("h2d_ms", "expected"),
    [(20.0, 0.8), (1.0, 0.95), (5.0, 0.95), (50.0, 0.5), (90.0, 0.5), (100.0, 0.5)],
)
def test_host_ram_costs_the_transfer(slot: int, h2d_ms: float, expected: float) -> None:
    assert score(Held.HOST, slot, h2d_ms=h2d_ms) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("held", "slot", "expected"),
    [
        (Held.NOT, FREE, 0.25),
        (Held.NOT, IDLE, 0.0),
        (Held.NOT, BUSY, -1.0),
        (Held.HOST, BUSY, -1.0),
    ],
)
def test_loads_from_nothing_and_quarantine(held: int, slot: int, expected: float) -> None:
    assert score(held, slot) == expected


def test_the_tiers_keep_their_order() -> None:
    best_to_worst = [
        score(Held.RESIDENT, BUSY),
        score(Held.LOADING, BUSY, remaining_ms=1.0),
        score(Held.HOST, IDLE),
        score(Held.NOT, FREE),
        score(Held.NOT, IDLE),
        score(Held.NOT, BUSY),
    ]
    assert best_to_worst == sorted(set(best_to_worst), reverse=True)
