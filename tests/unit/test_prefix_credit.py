"""What is left to compute of a prompt, of which engines hold a beginning."""

from __future__ import annotations

from axiom_common.model.prefix import ANNOUNCED, linked
from axiom_common.policy.fleet import Prompt
from axiom_common.policy.kernel import credit
from axiom_common.state.prefix_index import ANY_TIER, HBM, SHARDS, PrefixIndexTwin

SEED = 7
TEXT = b"x" * 1024


def prompt(*, beyond_bytes: int) -> Prompt:
    """Four chunks, all of them held by engine 0 in HBM and by engine 1 in another tier."""
    index = PrefixIndexTwin(SHARDS)
    links = linked(SEED, TEXT)
    told = b"".join(ANNOUNCED.pack(link, 100 * n) for n, link in enumerate(links, 1))
    index.apply(0, told, b"", HBM)
    index.apply(1, told, b"", ANY_TIER)
    return Prompt(index, SEED, TEXT, beyond_bytes)


def test_what_is_held_whole_is_not_computed_and_a_lower_tier_counts_half() -> None:
    found = credit(3, 1_000, prompt(beyond_bytes=0))
    assert found is not None
    assert list(found.credited_tokens) == [400.0, 200.0, 0.0]
    assert list(found.uncached_tokens) == [0.0, 500.0, 1_000.0]


def test_what_follows_a_known_beginning_is_computed_whoever_holds_that() -> None:
    found = credit(3, 1_000, prompt(beyond_bytes=3 * len(TEXT)))
    assert found is not None
    assert list(found.credited_tokens) == [400.0, 200.0, 0.0]
    assert list(found.uncached_tokens) == [750.0, 875.0, 1_000.0]
