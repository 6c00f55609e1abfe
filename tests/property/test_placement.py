"""Laws of placement."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import EngineId
from axiom_common.policy.placement import bound, place

RANKS = st.sampled_from([8, 16, 64])
BASES = st.sampled_from(["llama", "qwen"])
STATUSES = st.sampled_from(EngineStatus)


@st.composite
def adapter_sets(draw: st.DrawFn, *, bases: st.SearchStrategy[str] = BASES) -> list[AdapterSpec]:
    names = draw(st.sets(st.integers(0, 999), max_size=40))
    return [
        AdapterSpec(name=f"a{n}", base_model=draw(bases), revision=1, path="/p", rank=draw(RANKS))
        for n in sorted(names)
    ]


@st.composite
def engine_sets(
    draw: st.DrawFn,
    *,
    bases: st.SearchStrategy[str] = BASES,
    ranks: st.SearchStrategy[int] = RANKS,
    statuses: st.SearchStrategy[EngineStatus] = STATUSES,
    min_size: int = 0,
) -> list[EngineState]:
    names = draw(st.sets(st.integers(0, 99), min_size=min_size, max_size=8))
    return [
        EngineState(
            engine=EngineId(f"n{n}.a"),
            url="http://h",
            base_model=draw(bases),
            served_name="m",
            status=draw(statuses),
            limits=EngineLimits(hbm_slots=draw(st.integers(0, 4)), max_lora_rank=draw(ranks)),
        )
        for n in sorted(names)
    ]


ALIKE = {
    "bases": st.just("llama"),
    "ranks": st.just(64),
    "statuses": st.just(EngineStatus.READY),
}


@st.composite
def histories(draw: st.DrawFn) -> dict[str, EngineId]:
    """Homes from any past, with engines and adapters that may be gone."""
    return draw(
        st.dictionaries(
            st.integers(0, 999).map("a{}".format),
            st.integers(0, 99).map(lambda n: EngineId(f"n{n}.a")),
            max_size=40,
        )
    )


def can_take(engine: EngineState, adapter: AdapterSpec) -> bool:
    return (
        engine.base_model == adapter.base_model
        and engine.status is EngineStatus.READY
        and engine.limits.hbm_slots > 0
        and engine.limits.max_lora_rank >= adapter.rank
    )


@given(adapter_sets(), engine_sets(), histories())
def test_each_adapter_that_some_engine_can_take_has_one_home_there(
    adapters: list[AdapterSpec], engines: list[EngineState], previous: dict[str, EngineId]
) -> None:
    placement = place(adapters, engines, previous)
    by_id = {e.engine: e for e in engines}
    for adapter in adapters:
        if any(can_take(e, adapter) for e in engines):
            assert can_take(by_id[placement.homes[adapter.name]], adapter)
            assert adapter.name not in placement.unplaced
        else:
            assert adapter.name in placement.unplaced
            assert adapter.name not in placement.homes


@given(adapter_sets(), engine_sets(), histories())
def test_no_engine_is_above_the_bound_of_its_base_model(
    adapters: list[AdapterSpec], engines: list[EngineState], previous: dict[str, EngineId]
) -> None:
    homes = place(adapters, engines, previous).homes
    loads = Counter(homes.values())
    for base in ("llama", "qwen"):
        usable = [
            e
            for e in engines
            if e.base_model == base and e.status is EngineStatus.READY and e.limits.hbm_slots
        ]
        ranks = [a.rank for a in adapters if a.base_model == base and a.name in homes]
        least = bound(ranks, [e.limits.max_lora_rank for e in usable])
        assert all(loads[e.engine] <= least for e in usable)
        if usable and len({e.limits.max_lora_rank for e in usable}) == 1:
            assert least == -(-len(ranks) // len(usable))


@given(adapter_sets(), engine_sets(), histories(), st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    adapters: list[AdapterSpec],
    engines: list[EngineState],
    previous: dict[str, EngineId],
    shuffler: random.Random,
) -> None:
    first = place(adapters, engines, previous)
    mixed_adapters, mixed_engines, mixed = adapters[:], engines[:], list(previous.items())
    for order in (mixed_adapters, mixed_engines, mixed):
        shuffler.shuffle(order)
    assert place(mixed_adapters, mixed_engines, dict(mixed)) == first


@given(adapter_sets(), engine_sets(), histories())
def test_placing_again_moves_nothing(
    adapters: list[AdapterSpec], engines: list[EngineState], previous: dict[str, EngineId]
) -> None:
    homes = place(adapters, engines, previous).homes
    assert place(adapters, engines, homes).homes == homes


@given(adapter_sets(bases=st.just("llama")), engine_sets(min_size=2, **ALIKE), st.data())
def test_the_loss_of_an_engine_moves_its_own_adapters_only(
    adapters: list[AdapterSpec], engines: list[EngineState], data: st.DataObject
) -> None:
    usable = [e for e in engines if e.limits.hbm_slots]
    assume(len(usable) >= 2)
    before = place(adapters, usable, {}).homes
    lost = data.draw(st.sampled_from(usable))
    after = place(adapters, [e for e in usable if e is not lost], before).homes
    assert {n for n in before if after[n] != before[n]} == {
        n for n, home in before.items() if home == lost.engine
    }


@given(adapter_sets(bases=st.just("llama")), engine_sets(min_size=1, **ALIKE))
def test_a_new_engine_is_given_no_more_than_others_must_give(
    adapters: list[AdapterSpec], engines: list[EngineState]
) -> None:
    usable = [e for e in engines if e.limits.hbm_slots]
    assume(usable)
    before = place(adapters, usable, {}).homes
    new = EngineState(
        engine=EngineId("new.a"),
        url="http://h",
        base_model="llama",
        served_name="m",
        status=EngineStatus.READY,
        limits=EngineLimits(hbm_slots=1, max_lora_rank=64),
    )
    after = place(adapters, [*usable, new], before).homes
    room = -(-len(adapters) // (len(usable) + 1))
    excess = sum(max(0, n - room) for n in Counter(before.values()).values())
    assert sum(after[n] != before[n] for n in before) == excess


@given(st.lists(RANKS), st.lists(RANKS, min_size=1))
def test_the_bound_is_enough_and_not_too_much(
    adapter_ranks: list[int], engine_ranks: list[int]
) -> None:
    """Below the bound some rank has more adapters than room; at the bound none has."""
    fit = [r for r in adapter_ranks if r <= max(engine_ranks)]
    least = bound(fit, engine_ranks)

    def enough(room: int) -> bool:
        return all(
            sum(a >= r for a in fit) <= room * sum(e >= r for e in engine_ranks) for r in fit
        )

    assert enough(least)
    assert least == 0 or not enough(least - 1)
