"""KV memory of the simulated engine: reuse of prefixes, and its laws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from axiom_sim.engine.kv_blocks import KvBlocks, Lease
from axiom_sim.engine.prompts import read_prompt

BLOCK = 4


def admit(kv: KvBlocks, chunks: tuple[int, ...], *, tail: int = 1, output: int = 1) -> Lease | None:
    prompt = len(chunks) * BLOCK + tail
    return kv.admit(chunks, prompt_tokens=prompt, tokens=prompt + output)


def run(kv: KvBlocks, chunks: tuple[int, ...]) -> int:
    """A request from start to end; returns the tokens that it found."""
    lease = admit(kv, chunks)
    assert lease is not None
    kv.publish(lease, len(chunks) * BLOCK)
    kv.release(lease)
    return lease.cached_tokens


def test_a_prefix_is_found_up_to_the_first_difference() -> None:
    kv = KvBlocks(blocks=20, block_tokens=BLOCK)
    assert run(kv, (1, 2, 3)) == 0
    assert run(kv, (1, 2, 3)) == 12
    assert run(kv, (1, 2, 9, 3)) == 8
    assert run(kv, (8, 7, 6)) == 0


def test_the_last_token_is_always_computed() -> None:
    kv = KvBlocks(blocks=20, block_tokens=BLOCK)
    run(kv, (1, 2))
    lease = admit(kv, (1, 2), tail=0)
    assert lease is not None
    assert lease.cached_tokens == 4


def test_blocks_are_found_once_they_are_computed_and_not_before() -> None:
    kv = KvBlocks(blocks=20, block_tokens=BLOCK)
    first = admit(kv, (1, 2, 3))
    assert first is not None
    kv.publish(first, 5)
    second = admit(kv, (1, 2, 3))
    assert second is not None
    assert second.cached_tokens == 4


def test_what_does_not_fit_waits_and_cached_blocks_make_room() -> None:
    kv = KvBlocks(blocks=4, block_tokens=BLOCK)
    run(kv, (1, 2))
    assert kv.cached == 2
    lease = admit(kv, (7, 8, 9))
    assert lease is not None
    assert kv.cached == 0
    assert admit(kv, (5,)) is None
    kv.release(lease)
    assert admit(kv, (5,)) is not None


def test_of_a_prompt_the_deepest_block_goes_first() -> None:
    kv = KvBlocks(blocks=4, block_tokens=BLOCK)
    run(kv, (1, 2, 3))
    assert run(kv, (7,)) == 0
    assert run(kv, (1, 2)) == 8


def test_larger_than_all_is_known_beforehand() -> None:
    kv = KvBlocks(blocks=4, block_tokens=BLOCK)
    assert kv.fits(16)
    assert not kv.fits(17)


CHAINS = st.lists(st.integers(0, 3), min_size=0, max_size=5).map(
    # A chained hash: equal only when all before it is equal too.
    lambda path: tuple(hash(tuple(path[: n + 1])) for n in range(len(path)))
)


@given(
    st.integers(7, 16),
    st.lists(st.tuples(CHAINS, st.integers(1, 6), st.integers(0, 24), st.booleans()), max_size=30),
)
def test_laws(blocks: int, requests: list[tuple[tuple[int, ...], int, int, bool]]) -> None:
    kv = KvBlocks(blocks=blocks, block_tokens=BLOCK)
    live: list[Lease] = []
    for chunks, output, computed, end_oldest in requests:
        lease = admit(kv, chunks, output=output)
        if lease is not None:
            assert lease.cached_tokens <= len(chunks) * BLOCK
            live.append(lease)
            kv.publish(lease, computed)
        else:
            assert live, "an empty memory admits whatever fits"
        if end_oldest and live:
            kv.release(live.pop(0))
        assert kv.held >= 0
        assert kv.held + kv.cached <= blocks
    for lease in live:
        kv.release(lease)
    assert kv.held == 0
    assert kv.cached <= blocks


@given(st.binary(max_size=400), st.binary(max_size=400), st.integers(0, 400))
def test_chunks_are_equal_as_far_as_the_text_is(one: bytes, other: bytes, shared: int) -> None:
    other = one[:shared] + other
    block_bytes = 4 * BLOCK
    a, b = (read_prompt(data, scope="s", block_tokens=BLOCK) for data in (one, other))
    same = next(
        (n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y),
        min(len(one), len(other)),
    )
    equal = same // block_bytes
    assert a.chunks[:equal] == b.chunks[:equal]
    assert not set(a.chunks[equal:]) & set(b.chunks[equal:])
    assert not set(a.chunks) & set(read_prompt(one, scope="t", block_tokens=BLOCK).chunks)
    assert a.tokens == max(1, -(-len(one) // 4))


def test_prompts_as_token_ids_have_blocks_of_as_many_tokens() -> None:
    ids = b"".join(n.to_bytes(4, "little") for n in range(10))
    prompt = read_prompt(ids, scope="s", block_tokens=BLOCK, tokens=10)
    assert (prompt.tokens, len(prompt.chunks)) == (10, 2)
