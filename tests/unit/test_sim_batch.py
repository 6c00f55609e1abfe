"""The scheduler of the simulated engine: its rules, and its laws under any order of events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_sim.engine.batch import Batch, Sequence
from axiom_sim.engine.kv_blocks import KvBlocks
from axiom_sim.engine.profiles import PROFILES, Tier
from axiom_sim.engine.slots import Adapter, AdapterSlots

PROFILE = replace(PROFILES["h100-8b"], chunked_prefill_tokens=100)
BLOCKS = 100


def make_batch(*, max_num_seqs: int = 4, hbm_slots: int = 2) -> Batch:
    return Batch(
        profile=PROFILE,
        max_num_seqs=max_num_seqs,
        slots=AdapterSlots(hbm_slots=hbm_slots, host_slots=4),
        kv=KvBlocks(blocks=BLOCKS, block_tokens=4),
    )


def adapter(number: int) -> Adapter:
    return Adapter(number, f"a{number}", f"/a{number}", 50_000_000)


def sequence(*, uses: int | None = None, prompt: int = 10, output: int = 3) -> Sequence:
    return Sequence(
        adapter=None if uses is None else adapter(uses),
        prompt_tokens=prompt,
        chunks=(),
        output_tokens=output,
        arrived_ms=0.0,
    )


def step(batch: Batch, now_ms: float = 0.0) -> list[Sequence]:
    planned = batch.begin_step(now_ms)
    assert planned is not None
    return batch.end_step(planned, now_ms + planned.duration_ms)


def test_one_request_from_arrival_to_end() -> None:
    batch = make_batch()
    one = sequence()
    batch.submit(one)
    assert (batch.waiting, batch.running) == (1, 0)
    planned = batch.begin_step(5.0)
    assert planned is not None
    assert (batch.waiting, batch.running) == (0, 1)
    assert planned.duration_ms == pytest.approx(12 * (1 + 1.5 / 4) + 10 * 0.05 + 30)
    assert batch.end_step(planned, 50.0) == [one]
    assert (one.scheduled_ms, one.first_token_ms, one.generated) == (5.0, 50.0, 1)
    planned = batch.begin_step(50.0)
    assert planned is not None
    assert planned.duration_ms == pytest.approx(12 * (1 + 1.5 / 4))
    batch.end_step(planned, 70.0)
    assert one.token_gap_ms == 20.0
    assert step(batch) == [one]
    assert one.finished
    assert (batch.running, batch.kv.held) == (0, 0)
    assert batch.begin_step(0.0) is None
    assert batch.tallies.generation_tokens == 3


def test_a_long_prompt_is_prefilled_in_chunks_beside_running_ones() -> None:
    batch = make_batch()
    running, long = sequence(output=9), sequence(prompt=250)
    batch.submit(running)
    step(batch)
    batch.submit(long)
    taken = []
    while not long.generated:
        planned = batch.begin_step(0.0)
        assert planned is not None
        taken += [tokens for _, tokens in planned.prefill]
        batch.end_step(planned, 0.0)
    assert taken == [100, 100, 50]
    assert running.generated == 1 + 3


def test_prefills_share_the_budget_of_a_step_in_order() -> None:
    batch = make_batch()
    first, second, third = (sequence(prompt=80) for _ in range(3))
    for one in (first, second, third):
        batch.submit(one)
    planned = batch.begin_step(0.0)
    assert planned is not None
    assert [(s, n) for s, n in planned.prefill] == [(first, 80), (second, 20)]
    assert batch.waiting == 1
    assert batch.end_step(planned, 0.0) == [first]


def test_an_embedding_ends_with_its_prefill() -> None:
    batch = make_batch()
    one = sequence(output=0)
    batch.submit(one)
    assert step(batch) == [one]
    assert one.finished
    assert batch.tallies.generation_tokens == 0


def test_the_batch_is_full_at_max_num_seqs() -> None:
    batch = make_batch(max_num_seqs=2)
    for _ in range(3):
        batch.submit(sequence())
    step(batch)
    assert (batch.running, batch.waiting, batch.deferred) == (2, 1, 0)


def test_an_adapter_without_a_slot_waits_and_lets_others_pass() -> None:
    batch = make_batch()
    for uses in (1, 2, 3, 1, None):
        batch.submit(sequence(uses=uses))
    step(batch)
    assert (batch.running, batch.waiting, batch.deferred) == (4, 1, 1)
    assert batch.adapters_in_use() == ("a1", "a2")
    for _ in range(2):
        step(batch)
        assert batch.deferred == batch.waiting
        assert "a3" not in batch.adapters_in_use()
    step(batch)
    assert batch.deferred == 0
    assert batch.adapters_in_use() == ("a3",)


def test_loads_stop_the_step_and_happen_once() -> None:
    batch = make_batch()
    batch.submit(sequence(uses=1))
    planned = batch.begin_step(0.0)
    assert planned is not None
    assert planned.load_ms == pytest.approx(PROFILE.load_ms(Tier.STORE, 50_000_000))
    batch.end_step(planned, 0.0)
    planned = batch.begin_step(0.0)
    assert planned is not None
    assert planned.load_ms == 0.0


def test_a_load_call_takes_the_slot_of_the_oldest_and_the_next_step_takes_it_back() -> None:
    batch = make_batch()
    for uses in (1, 2):
        batch.submit(sequence(uses=uses, output=9))
    step(batch)
    batch.slots.use(adapter(3))
    assert [one.number for one in batch.slots.hbm] == [2, 3]
    planned = batch.begin_step(0.0)
    assert planned is not None
    assert planned.load_ms > 0
    assert {one.number for one in batch.slots.hbm} == {1, 2}


def test_a_request_larger_than_the_memory_is_not_taken() -> None:
    batch = make_batch()
    with pytest.raises(ValueError, match="larger"):
        batch.submit(sequence(prompt=BLOCKS * 4))


def test_the_one_that_waits_for_memory_holds_up_those_behind() -> None:
    batch = make_batch()
    batch.submit(sequence(prompt=300, output=30))
    batch.submit(sequence(prompt=200))
    batch.submit(sequence(prompt=5))
    step(batch)
    while batch.waiting == 2:
        step(batch)
    assert batch.running >= 1


def test_kv_usage_is_of_what_is_computed() -> None:
    batch = make_batch()
    batch.submit(sequence(prompt=150, output=50))
    assert batch.kv_usage == 0.0
    step(batch)
    assert batch.kv_usage == pytest.approx(100 / 4 / BLOCKS)


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
def test_an_abort_gives_all_back(steps: int) -> None:
    batch = make_batch()
    one = sequence(uses=1, prompt=150, output=5)
    batch.submit(one)
    for _ in range(steps):
        if batch.waiting or batch.running:
            step(batch)
    batch.abort(one)
    batch.abort(one)
    assert (batch.waiting, batch.running, batch.kv.held) == (0, 0, 0)
    assert batch.begin_step(0.0) is None


def test_an_abort_within_a_step_is_not_advanced_by_it() -> None:
    batch = make_batch()
    one = sequence()
    batch.submit(one)
    planned = batch.begin_step(0.0)
    assert planned is not None
    batch.abort(one)
    assert batch.end_step(planned, 1.0) == []
    assert (one.generated, batch.kv.held) == (0, 0)


EVENTS = st.one_of(
    st.tuples(
        st.just("submit"),
        st.one_of(st.none(), st.integers(1, 4)),
        st.integers(1, 150),
        st.integers(0, 12),
    ),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("step")),
)


@given(st.lists(EVENTS, max_size=60))
def test_laws(events: list[tuple[object, ...]]) -> None:
    batch = make_batch()
    sent: list[Sequence] = []
    ended: list[Sequence] = []
    for event in events:
        match event:
            case ("submit", uses, int(prompt), int(output)):
                assert uses is None or isinstance(uses, int)
                sent.append(sequence(uses=uses, prompt=prompt, output=output))
                batch.submit(sent[-1])
            case ("abort", int(number)) if number < len(sent):
                one = sent.pop(number)
                if one not in ended:
                    batch.abort(one)
            case ("step",):
                planned = batch.begin_step(0.0)
                if planned is not None:
                    ended += [s for s in batch.end_step(planned, 1.0) if s.finished]
        assert batch.running <= 4
        assert len(batch.slots.hbm) <= 2
        assert 0.0 <= batch.kv_usage <= 1.0
        assert batch.kv.held <= BLOCKS
    for _ in range(10_000):
        planned = batch.begin_step(0.0)
        if planned is None:
            break
        ended += [s for s in batch.end_step(planned, 1.0) if s.finished]
    assert (batch.waiting, batch.running, batch.kv.held) == (0, 0, 0)
    assert len(ended) == len({id(s) for s in ended})
    assert {id(s) for s in sent} <= {id(s) for s in ended}
