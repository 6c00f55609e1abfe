"""Chains of links over text: where chunks end, what scopes keep apart, what is committed."""

from __future__ import annotations

import json
import struct
from itertools import combinations

import pytest
from tests.contract.golden_examples import GOLDEN
from tests.kv_parts import scope

from axiom_common.model.ids import EngineAdapter
from axiom_common.model.prefix import FactBatch, FactChanges, PrefixScope, chain, next_chunk_end


@pytest.mark.parametrize(
    ("size", "links"),
    [(0, 0), (255, 0), (256, 1), (8191, 31), (8192, 32), (9215, 32), (9216, 33), (131072, 152)],
)
def test_chunks_are_fine_at_first_then_coarse(size: int, links: int) -> None:
    assert len(chain(scope(), b"x" * size)) == links


def test_a_chunk_begins_where_another_ends() -> None:
    assert [next_chunk_end(at) for at in (0, 256, 7936, 8192, 9216)] == [
        256,
        512,
        8192,
        9216,
        10240,
    ]


def test_a_link_names_all_the_text_before_it_and_nothing_after() -> None:
    text = bytes(range(256)) * 40
    links = chain(scope(), text)
    assert chain(scope(), text + b"more")[: len(links)] == links
    changed = bytearray(text)
    changed[300] ^= 1
    others = chain(scope(), bytes(changed))
    assert others[0] == links[0]
    assert not set(others[1:]) & set(links[1:])


def test_no_scope_has_the_links_of_another() -> None:
    scopes = [
        scope(),
        scope(revision="2"),
        scope("ad0"),
        scope("ad0", "ad0"),
        scope(None, "ad0"),
        scope(None, ""),
        PrefixScope(base_model="bas", revision="e1"),
        PrefixScope(base_model="base1", revision=""),
        PrefixScope(base_model="base", revision="1", adapter=EngineAdapter("\x00")),
    ]
    seeds = [one.seed for one in scopes]
    assert all(a != b for a, b in combinations(seeds, 2))


def test_links_are_as_committed() -> None:
    """Agents and gateways of two versions meet: a change needs another SCHEME."""
    for vector in json.loads((GOLDEN / "prefix-chain.json").read_text()):
        told = vector["scope"]
        of = PrefixScope(**(told | {"adapter": EngineAdapter(told["adapter"])}))
        links = chain(of, vector["text"].encode() * vector["times"])
        assert [f"{link:016x}" for link in links] == vector["links"]
        assert f"{of.seed:016x}" == vector["seed"]


def test_batches_are_packed_little_endian() -> None:
    batch = FactBatch.of([(1, 2), (2**64 - 1, 3)], [4])
    assert list(struct.iter_unpack("<QI", batch.announced)) == [(1, 2), (2**64 - 1, 3)]
    assert list(struct.iter_unpack("<Q", batch.withdrawn)) == [(4,)]
    assert not FactChanges()
    assert FactChanges(cleared=True)
    assert FactChanges(hbm=batch)
