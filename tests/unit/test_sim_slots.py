"""Adapter memory and the cost of loads in the simulated engine."""

from __future__ import annotations

import pytest

from axiom_sim.engine.profiles import PROFILES, Tier
from axiom_sim.engine.slots import Adapter, AdapterSlots

H100 = PROFILES["h100-8b"]
MIB = 1 << 20


def adapter(number: int) -> Adapter:
    return Adapter(number, f"a{number}", f"/a{number}", 80 * MIB)


def numbers(adapters: tuple[Adapter, ...]) -> list[int]:
    return [one.number for one in adapters]


@pytest.mark.parametrize(
    ("uses", "tiers", "hbm", "host"),
    [
        pytest.param([1], "s", [1], [1], id="first"),
        pytest.param([1, 1], "sr", [1], [1], id="again"),
        pytest.param([1, 2, 3], "sss", [2, 3], [1, 2, 3], id="oldest-slot-goes"),
        pytest.param([1, 2, 1, 3], "ssrs", [1, 3], [2, 1, 3], id="use-makes-young"),
        pytest.param([1, 2, 3, 1], "sssh", [3, 1], [2, 3, 1], id="from-host"),
        pytest.param([1, 2, 3, 4, 1], "sssss", [4, 1], [3, 4, 1], id="out-of-host-too"),
    ],
)
def test_two_slots_over_three_copies(
    uses: list[int], tiers: str, hbm: list[int], host: list[int]
) -> None:
    slots = AdapterSlots(hbm_slots=2, host_slots=3)
    found = [slots.use(adapter(number)) for number in uses]
    names = {"r": Tier.HBM, "h": Tier.HOST, "s": Tier.STORE}
    assert found == [names[letter] for letter in tiers]
    assert numbers(slots.hbm) == hbm
    assert numbers(slots.host) == host
    assert slots.activations == sum(tier is not Tier.HBM for tier in found)
    assert slots.loads_from_store == found.count(Tier.STORE)


def test_leaving_the_host_cache_takes_the_slot_along() -> None:
    slots = AdapterSlots(hbm_slots=2, host_slots=2)
    for number in (1, 2, 3):
        slots.use(adapter(number))
    assert numbers(slots.hbm) == numbers(slots.host) == [2, 3]


def test_a_dropped_adapter_is_read_again() -> None:
    slots = AdapterSlots(hbm_slots=2, host_slots=2)
    slots.use(adapter(1))
    slots.drop(adapter(1))
    assert slots.hbm == slots.host == ()
    assert slots.use(adapter(1)) is Tier.STORE


def test_host_memory_below_the_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="host_slots"):
        AdapterSlots(hbm_slots=2, host_slots=1)


@pytest.mark.parametrize(
    ("running", "prefill_tokens", "starts", "expected_ms"),
    [
        (1, 0, 0, 12 * (1 + 1.5 / 64)),
        (64, 0, 0, 30.0),
        (64, 1000, 0, 80.0),
        (64, 1000, 2, 140.0),
    ],
)
def test_step_formula(running: int, prefill_tokens: int, starts: int, expected_ms: float) -> None:
    took_ms = H100.step_ms(
        running=running, max_num_seqs=64, prefill_tokens=prefill_tokens, starts=starts
    )
    assert took_ms == pytest.approx(expected_ms)


def test_load_formula() -> None:
    size = 100_000_000
    assert H100.load_ms(Tier.HBM, size) == 0
    assert H100.load_ms(Tier.HOST, size) == pytest.approx(8 + 32 + 4)
    assert H100.load_ms(Tier.STORE, size) == pytest.approx(8 + 32 + 4 + 40 + 1000 / 12)
