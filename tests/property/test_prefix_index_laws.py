"""The prefix state index against a naive model, and the native one against its twin."""

from __future__ import annotations

import array
import gc
import random
import resource
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prefix_index_parts import (
    ENTRIES_MAX,
    IMPLEMENTATIONS,
    NEEDS_NATIVE,
    NONE,
    Chunk,
    Make,
    NaiveIndex,
    announced,
    hashes,
    rows,
    text_chain,
)

from axiom_common.model import prefix
from axiom_common.model.prefix import ANNOUNCED
from axiom_common.runtime.native import native_index_or_twin
from axiom_common.state.prefix_index import (
    ANY_TIER,
    ENGINES_MAX,
    HBM,
    SHARDS,
    PrefixIndexTwin,
    shard_of,
)
from axiom_sim.workload.traces import azure_slice

CHUNKS = [0, 1, 2, 3, 1 << 56, (1 << 56) + 1, 5 << 56, (5 << 56) + 9, 2**64 - 1, 2**64 - 2]
"""Hashes of four shards, and the one that is nobody's."""
ENGINES = [0, 1, 2, 3, 4, 63, 64, 700, ENGINES_MAX - 1]

engines = st.sampled_from(ENGINES)
chunks = st.sampled_from(CHUNKS)
news = st.lists(st.tuples(chunks, st.integers(0, 5)), max_size=6)
tiers = st.sampled_from([HBM, ANY_TIER])
seqs = st.integers(1, 2)
messages = st.tuples(st.just("apply"), engines, news, st.lists(chunks, max_size=4), tiers)
anything = st.lists(
    st.one_of(
        messages,
        messages,
        st.tuples(st.just("clear"), engines),
        st.tuples(st.just("snapshot_begin"), engines, seqs),
        st.tuples(st.just("snapshot_part"), engines, seqs, news, tiers),
        st.tuples(st.just("snapshot_end"), engines, seqs),
    ),
    max_size=40,
)


def carry_out(index: Any, step: tuple[Any, ...], *, packed: bool = True) -> Any:
    """One step; lists of chunks as buffers, unless it is for the model."""
    name, *arguments = step
    if packed:
        arguments = [
            argument
            if isinstance(argument, int)
            else announced(argument)
            if argument and isinstance(argument[0], tuple)
            else hashes(argument)
            for argument in arguments
        ]
    return getattr(index, name)(*arguments)


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
@settings(deadline=None, max_examples=150)
@given(steps=anything)
def test_any_sequence_leaves_what_the_naive_model_says(
    make: Make, steps: list[tuple[Any, ...]]
) -> None:
    index, model = make(ENTRIES_MAX), NaiveIndex()
    for step in steps:
        assert carry_out(index, step) == carry_out(model, step, packed=False)
    assert index.entries == model.entries
    for chunk in CHUNKS:
        assert rows(index.lookup(hashes([chunk]))) == model.holders(chunk)
    for engine in ENGINES:
        index.clear(engine)
    assert index.entries == 0
    assert index.dropped == 0


@NEEDS_NATIVE
@settings(deadline=None, max_examples=250)
@given(
    steps=anything,
    shares=st.integers(1, 4),
    chains=st.lists(st.lists(chunks, max_size=9), min_size=1, max_size=6),
)
def test_native_and_twin_say_the_same_legal_or_not_full_or_not(
    steps: list[tuple[Any, ...]], shares: int, chains: list[list[int]]
) -> None:
    native, twin = native_index_or_twin(SHARDS * shares), PrefixIndexTwin(SHARDS * shares)
    for step in steps:
        assert carry_out(native, step) == carry_out(twin, step)
        for chain in chains:
            assert native.lookup(hashes(chain)) == twin.lookup(hashes(chain))
        assert (native.entries, native.dropped) == (twin.entries, twin.dropped)


@st.composite
def forests(draw: st.DrawFn) -> list[list[Chunk]]:
    """Chains that share prefixes, as prompts do; tokens never fall along one."""
    chains: list[list[Chunk]] = []
    for _ in range(draw(st.integers(1, 5))):
        chain: list[Chunk] = []
        if chains:
            other = draw(st.sampled_from(chains))
            chain = other[: draw(st.integers(0, len(other)))]
        tokens = chain[-1][1] if chain else 0
        for text in draw(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=12)):
            tokens += draw(st.sampled_from([0, 16, 64]))
            (chunk,) = text_chain(text, seed=chain[-1][0] if chain else 7)
            chain = [*chain, (chunk, tokens)]
        chains.append(chain)
    return chains


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
@settings(deadline=None, max_examples=150)
@given(forest=forests(), data=st.data())
def test_depths_are_those_of_a_walk_chunk_by_chunk(
    make: Make, forest: list[list[Chunk]], data: st.DataObject
) -> None:
    """Agents that announce whole prefixes only, and withdraw all below what goes."""
    index, model = make(ENTRIES_MAX), NaiveIndex()
    below: dict[int, set[int]] = {}
    for chain in forest:
        path = [chunk for chunk, _ in chain]
        for depth, chunk in enumerate(path):
            below.setdefault(chunk, set()).update(path[depth:])
    for _ in range(data.draw(st.integers(0, 25))):
        engine, tier = data.draw(st.sampled_from(ENGINES)), data.draw(tiers)
        chain = data.draw(st.sampled_from(forest))
        cut = data.draw(st.integers(0, len(chain) - 1))
        step: tuple[Any, ...] = ("apply", engine, chain[: cut + 1], [], tier)
        if data.draw(st.booleans()):
            gone = data.draw(st.permutations(sorted(below[chain[cut][0]])))
            step = ("apply", engine, [], gone, tier)
        carry_out(index, step)
        carry_out(model, step, packed=False)
    for chain in forest:
        for tail in ([], [12345, 54321]):
            asked = [chunk for chunk, _ in chain] + tail
            assert rows(index.lookup(hashes(asked))) == model.depths(asked)


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
@settings(deadline=None, max_examples=60)
@given(
    chain=st.lists(st.integers(1, 2**64 - 1), min_size=1, max_size=200, unique=True),
    holders=st.sets(engines, min_size=1),
    tier=tiers,
    data=st.data(),
)
def test_announced_then_withdrawn_in_any_order_leaves_nothing(
    make: Make, chain: list[int], holders: set[int], tier: int, data: st.DataObject
) -> None:
    index = make(ENTRIES_MAX)
    for engine in holders:
        index.apply(engine, announced((c, 16) for c in chain), NONE, tier)
    assert index.entries == len(chain)
    for engine in data.draw(st.permutations(sorted(holders))):
        order = random.Random(engine).sample(chain, len(chain))
        index.apply(engine, NONE, hashes(order), ANY_TIER)
    assert index.entries == 0
    assert index.lookup(hashes(chain)) == (NONE, NONE)


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_one_unknown_hash_among_ten_and_the_nine_others_go(make: Make) -> None:
    index = make(ENTRIES_MAX)
    chain = text_chain(random.Random(1).randbytes(9 * 256))
    index.apply(3, announced((c, 16) for c in chain), NONE, HBM)
    index.apply(3, NONE, hashes([*chain[:4], 0xBAD, *chain[4:]]), ANY_TIER)
    assert index.entries == 0


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_over_the_bound_the_deepest_go_first(make: Make) -> None:
    """Room for eight chunks of each of 800 prompts; shards differ in where they draw the line."""
    index = make(SHARDS * 25)
    prompts = [text_chain(random.Random(n).randbytes(40 * 256)) for n in range(800)]
    for number, chain in enumerate(prompts):
        told = [(chunk, 16 * depth) for depth, chunk in enumerate(chain, start=1)]
        index.apply(number % 9, announced(told), NONE, HBM)
        assert index.entries <= SHARDS * 25
    assert index.entries + index.dropped == 800 * 40
    deep = 0
    for chain in prompts:
        held = [bool(rows(index.lookup(hashes([chunk])))[0]) for chunk in chain]
        assert all(held[:3])
        deep += sum(held[15:])
        ((_, found, tokens),) = rows(index.lookup(hashes(chain)))[0]
        assert held[found - 1]
        assert tokens == 16 * found
    # Only what came since room was last made.
    assert deep < index.entries / 16


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_a_snapshot_that_tells_of_too_much_is_dropped_with_nothing_changed(make: Make) -> None:
    index = make(SHARDS)
    index.apply(1, announced([(77, 5)]), NONE, HBM)
    index.snapshot_begin(1, 9)
    told = announced((chunk, 5) for chunk in range(1, SHARDS + 2))
    assert index.snapshot_part(1, 9, told, HBM) is False
    assert index.snapshot_end(1, 9) is False
    assert rows(index.lookup(hashes([77])))[0] == [(1, 1, 5)]


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.apply(ENGINES_MAX, announced([(7, 1)]), NONE, HBM),
        lambda index: index.apply(-1, announced([(7, 1)]), NONE, HBM),
        lambda index: index.apply(0, announced([(7, 1)]), NONE, 2),
        lambda index: index.apply(0, announced([(7, 1)]) + b"x", NONE, HBM),
        lambda index: index.apply(0, announced([(7, 1)]), b"x", HBM),
        lambda index: index.clear(ENGINES_MAX),
        lambda index: index.snapshot_begin(ENGINES_MAX, 1),
        lambda index: index.snapshot_part(0, 1, b"x", HBM),
        lambda index: index.snapshot_end(-1, 1),
        lambda index: index.lookup(b"1234567"),
    ],
)
def test_what_is_malformed_is_refused_before_anything_changes(make: Make, call: Any) -> None:
    index = make(ENTRIES_MAX)
    with pytest.raises(ValueError, match=r"engine|tier|whole number"):
        call(index)
    assert index.entries == 0


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_a_bound_below_one_entry_a_shard_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="entries_max"):
        make(SHARDS - 1)


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "asked", [array.array("Q", [11, 12, 13]), np.array([11, 12, 13], "<u8"), hashes([11, 12, 13])]
)
def test_any_contiguous_buffer_will_do(make: Make, asked: Any) -> None:
    told = np.zeros(3, np.dtype([("hash", "<u8"), ("tokens", "<u4")]))
    told["hash"], told["tokens"] = [11, 12, 13], [16, 32, 48]
    index = make(ENTRIES_MAX)
    index.apply(5, told, bytearray(), HBM)
    assert rows(index.lookup(asked)) == ([(5, 3, 48)], [(5, 3, 48)])


@pytest.mark.parametrize("make", IMPLEMENTATIONS)
def test_a_look_up_beside_a_writer_is_never_deeper_than_some_true_state(make: Make) -> None:
    """Messages are long enough that the native index writes them without the interpreter's lock."""
    index = make(ENTRIES_MAX)
    chain = text_chain(random.Random(3).randbytes(8_000 * 8), size=8)
    told = [(chunk, depth) for depth, chunk in enumerate(chain, start=1)]
    asked = hashes(chain)
    allowed = [[0], [0], [0]]
    """By engine: how deep it was, ever; told before it gets deeper, and after it got less deep."""
    wrong: list[tuple[int, int, int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            since = [len(states) for states in allowed]
            in_hbm, in_any = rows(index.lookup(asked))
            for engine, depth, tokens in in_hbm + in_any:
                if depth > max(allowed[engine][since[engine] - 1 :]) or tokens != depth:
                    wrong.append((engine, depth, tokens))

    reader = threading.Thread(target=read)
    reader.start()
    rng = random.Random(5)
    for _ in range(60):
        engine = rng.randrange(3)
        depth, target = allowed[engine][-1], rng.randrange(len(chain))
        if target > depth:
            allowed[engine].append(target)
            index.apply(engine, announced(told[:target]), NONE, HBM)
        else:
            index.apply(engine, NONE, hashes(reversed(chain[target:])), ANY_TIER)
            allowed[engine].append(target)
    done.set()
    reader.join()
    assert wrong == []


def test_shards_are_loaded_alike_by_prompts_that_share_a_long_prefix() -> None:
    rng = random.Random(20)
    shared = rng.randbytes(100_000)
    links = links_of(shared + rng.randbytes(16_000) for _ in range(400))
    assert 400 * 15 < len(links) < 400 * 17
    assert_shards_are_loaded_alike(links)


def test_shards_are_loaded_alike_by_the_prompts_of_a_trace() -> None:
    """As long as they were, four bytes a token; what they said is not told."""
    rng = random.Random(21)
    words = [b" %x" % n for n in range(50_000)]
    links = links_of(
        b"".join(rng.choices(words, k=request.prompt_tokens)) for request in azure_slice()[:500]
    )
    assert len(links) > 5_000
    assert_shards_are_loaded_alike(links)


def links_of(prompts: Iterable[bytes]) -> set[int]:
    scope = prefix.PrefixScope(base_model="base", revision="1")
    return {link for prompt in prompts for link in prefix.chain(scope, prompt)}


def assert_shards_are_loaded_alike(links: set[int]) -> None:
    """Chi-squared; 255 degrees of freedom, six sigma."""
    expected = len(links) / SHARDS
    counts = [0] * SHARDS
    for link in links:
        counts[shard_of(link)] += 1
    chi_squared = sum((count - expected) ** 2 / expected for count in counts)
    assert chi_squared < 255 + 6 * (2 * 255) ** 0.5


@NEEDS_NATIVE
def test_memory_goes_back_when_engines_go() -> None:
    """Tables, and sets of holders: of what they took less than a fifth stays."""
    index = native_index_or_twin(1 << 22)
    messages = numbered_chunks(250_000, a_message=5_000)
    start = resident_bytes()
    for engine in range(6):
        for message in messages:
            index.apply(engine, message, NONE, HBM)
    full = resident_bytes()
    assert full - start > 250_000 * 28
    for engine in range(6):
        index.clear(engine)
    assert index.entries == 0
    assert resident_bytes() - start < (full - start) / 5


def test_memory_of_the_twin_goes_back_when_engines_go() -> None:
    messages = numbered_chunks(20_000, a_message=5_000)
    tracemalloc.start()
    try:
        index = PrefixIndexTwin(1 << 22)
        start, _ = tracemalloc.get_traced_memory()
        for engine in range(3):
            for message in messages:
                index.apply(engine, message, NONE, HBM)
        full, _ = tracemalloc.get_traced_memory()
        for engine in range(3):
            index.clear(engine)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert full - start > 20_000 * 100
    assert left - start < (full - start) / 5


def numbered_chunks(count: int, *, a_message: int) -> list[bytes]:
    told = np.zeros(count, np.dtype([("hash", "<u8"), ("tokens", "<u4")]))
    told["hash"] = np.random.default_rng(4).integers(1, 2**64, count, dtype=np.uint64)
    told["tokens"] = np.arange(count) % 512
    return [told[at : at + a_message].tobytes() for at in range(0, count, a_message)]


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_an_announced_chunk_is_twelve_bytes() -> None:
    assert ANNOUNCED.size == 12
