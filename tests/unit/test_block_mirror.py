"""The block mirror, event by event: what is told when blocks come, go, and are not text."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kv_parts import (
    SCRIPTS,
    EngineCache,
    FactReader,
    credit,
    kinds,
    scope,
    trained_byte_level,
)

from axiom_common.drivers.mirror_file import read_mirror, write_mirror
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary
from axiom_common.errors import WireError
from axiom_common.model.kv_events import BlocksRemoved, BlocksStored, KvEvent
from axiom_common.model.prefix import FactBatch, FactChanges, Uncredited, chain
from axiom_common.state.block_mirror import BlockMirror
from axiom_common.state.event_order import Position
from axiom_common.state.text_facts import WINDOW_BYTES_MAX

KIND = kinds()[0]
LONG = " ".join((*SCRIPTS[:4], *SCRIPTS[:6], SCRIPTS[4]))
SIZE = 4


class Case:
    """An engine, its mirror, and a gateway that reads its facts."""

    def __init__(self, block_size: int = SIZE, **limits: int) -> None:
        self.engine = EngineCache(KIND.tokenizer, block_size)
        self.mirror = BlockMirror("base", "1", KIND.vocabulary, **limits)
        self.facts = FactReader()

    def hear(self, *events: KvEvent) -> FactChanges:
        changes = self.mirror.fold(events)
        self.facts.apply(changes)
        return changes

    def serve(self, prompt: str, **more: Any) -> BlocksStored:
        (event,) = self.engine.serve(prompt, **more)
        assert isinstance(event, BlocksStored)
        self.hear(event)
        return event

    def credit(self, prompt: str, adapter: str | None = None, salt: str | None = None) -> int:
        return credit(self.facts, KIND.vocabulary, prompt, scope(adapter, salt))


def test_a_block_in_the_middle_takes_what_follows_with_it_and_brings_it_back() -> None:
    case = Case()
    event = case.serve(LONG)
    whole = case.credit(LONG)
    assert whole > 100
    middle = len(event.hashes) // 2
    gone = case.hear(BlocksRemoved(hashes=[event.hashes[middle]], medium="GPU"))
    assert (gone.hbm, gone.any_tier.announced) == (FactBatch(), b"")
    assert 0 < case.credit(LONG) <= middle * SIZE
    again = replace(
        event,
        hashes=[event.hashes[middle]],
        parent=event.hashes[middle - 1],
        tokens=event.tokens[middle * SIZE : (middle + 1) * SIZE],
        keys=[None],
    )
    back = case.hear(again)
    assert len(back.hbm.announced) / 12 == len(gone.any_tier.withdrawn) / 8
    assert case.credit(LONG) == whole


def test_what_comes_and_goes_within_one_message_is_not_told() -> None:
    case = Case()
    event = case.serve(LONG)
    last = event.hashes[-1]
    again = replace(
        event, hashes=[last], parent=event.hashes[-2], tokens=event.tokens[-SIZE:], keys=[None]
    )
    assert not case.hear(BlocksRemoved(hashes=[last]), again)


def test_one_unknown_name_among_ten_hides_none_of_the_others() -> None:
    case = Case()
    event = case.serve(LONG)
    names = list(event.hashes[-9:])
    case.hear(BlocksRemoved(hashes=[*names[:4], 77, *names[4:]]))
    assert len(case.mirror) == len(event.hashes) - 9


@pytest.mark.parametrize("at", [0, 3])
def test_an_image_ends_the_credit(at: int) -> None:
    case = Case()
    case.serve(LONG, image_in_block=at)
    assert case.credit(LONG) == 0
    assert case.mirror.uncredited[Uncredited.OTHER_KEYS] > 0
    assert len(case.mirror) == at


def test_an_image_later_leaves_what_comes_before_it() -> None:
    case = Case()
    event = case.serve(LONG, image_in_block=40)
    assert 100 < case.credit(LONG) <= 40 * SIZE
    assert case.mirror.uncredited == {Uncredited.OTHER_KEYS: len(event.hashes) - 40}


def test_the_salt_is_inherited_and_the_adapter_is_not_taken_for_it() -> None:
    for adapter, salt in ((None, None), ("ad0", None), (None, "ad0"), ("ad0", "ad0")):
        case = Case()
        case.serve(LONG[:200], adapter=adapter, salt=salt)
        case.serve(LONG, adapter=adapter, salt=salt)
        held = {
            of: case.credit(LONG, *of)
            for of in [(None, None), ("ad0", None), (None, "ad0"), ("ad0", "ad0"), ("ad1", None)]
        }
        assert held.pop((adapter, salt)) > 100
        assert set(held.values()) == {0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"keys": None}, Uncredited.KEYS_NOT_TOLD),
        ({"keys": [None]}, Uncredited.KEYS_NOT_TOLD),
        ({"adapter": "ad0"}, Uncredited.OTHER_ADAPTER),
        ({"adapter": ""}, Uncredited.OTHER_ADAPTER),
        ({"parent": 5}, Uncredited.UNKNOWN_PARENT),
        ({"tokens": ()}, Uncredited.OTHER_BLOCK_SIZE),
        ({"block_size": 0, "tokens": ()}, Uncredited.OTHER_BLOCK_SIZE),
        ({"medium": "TAPE"}, Uncredited.UNKNOWN_MEDIUM),
        ({"group": 1}, Uncredited.OTHER_ATTENTION),
        ({"attention": "sliding_window"}, Uncredited.OTHER_ATTENTION),
    ],
)
def test_what_can_t_be_accounted_for_is_not_told(change: dict[str, Any], why: Uncredited) -> None:
    case = Case()
    (event,) = case.engine.serve(LONG)
    assert isinstance(event, BlocksStored)
    case.hear(replace(event, **change))
    assert case.mirror.uncredited == {why: len(event.hashes)}
    assert (case.credit(LONG), len(case.mirror)) == (0, 0)


def test_a_token_without_text_ends_the_credit_where_it_stands() -> None:
    for strange in (10**9, KIND.tokenizer.get_vocab_size()):
        case = Case()
        (event,) = case.engine.serve(LONG)
        assert isinstance(event, BlocksStored)
        tokens = list(event.tokens)
        tokens[40 * SIZE] = strange
        case.hear(replace(event, tokens=tokens))
        assert 100 < case.credit(LONG) <= 40 * SIZE
        assert case.mirror.uncredited[Uncredited.NOT_TEXT] == 1


def test_bytes_that_are_no_text_end_the_credit() -> None:
    case = Case()
    lone = next(n for n in range(700) if KIND.vocabulary.text_of([n]) == b"\xff")
    case.serve(LONG[:250], answer=[lone, *case.engine.tokens(LONG)])
    assert case.mirror.uncredited[Uncredited.NOT_TEXT] == 1
    assert case.credit(LONG[:250] + "\ufffd" + LONG) <= case.engine.depth(LONG[:250])


def test_a_hybrid_engine_is_told_of_no_more_until_it_starts_anew() -> None:
    case = Case()
    event = case.serve(LONG)
    assert case.credit(LONG) > 0
    assert case.hear(replace(event, group=1)).cleared
    assert case.mirror.unsupported
    assert not case.hear(event)
    case.facts.apply(case.mirror.forget())
    case.hear(event)
    assert case.credit(LONG) > 0


@pytest.mark.parametrize(
    ("end", "held", "asked"),
    [
        # Two words, until one more newline makes them one, with a token of its own.
        ("\n ", " rest", "\nrest"),
        # Three words, until they are a special token.
        (" <|user|", "| and so on", ">"),
    ],
)
def test_what_more_text_may_change_is_left_out(end: str, held: str, asked: str) -> None:
    head = ("word " * 52)[: 256 - len(end.encode())]
    end = head + end
    case = Case(block_size=1)
    case.serve(end + held + " and some more of it")
    depth = case.engine.depth(end + asked)
    assert case.credit(end + asked) <= depth
    assert case.credit(end + asked) >= depth - 12  # two words
    assert case.credit(head) == 0


def test_generated_tokens_that_nobody_would_choose_end_the_credit() -> None:
    case = Case()
    answer = [token for part in SCRIPTS[3] * 6 for token in case.engine.tokens(part)]
    case.serve(SCRIPTS[0] * 3, answer=answer)
    turn = SCRIPTS[0] * 3 + SCRIPTS[3] * 6
    assert 0 < case.credit(turn) <= case.engine.depth(turn)
    assert case.mirror.uncredited[Uncredited.RETOKENIZED] == 1


def test_a_word_without_end_ends_the_credit() -> None:
    case = Case()
    case.serve("a" * (WINDOW_BYTES_MAX + 3000))
    assert case.mirror.uncredited[Uncredited.LONG_WORD] == 1


def test_lower_media_hold_what_follows_hbm() -> None:
    case = Case()
    event = case.serve(LONG)
    links = chain(scope(), KIND.vocabulary.normalised(LONG))
    whole, half = case.credit(LONG), len(event.hashes) // 2
    # Host RAM takes a copy of the second half; a placeholder tells names alone.
    case.hear(BlocksStored(hashes=event.hashes[half:], medium="CPU"))
    case.hear(BlocksRemoved(hashes=list(event.hashes[half:])[::-1], medium="GPU"))
    assert case.credit(LONG) < whole
    assert case.facts.credit(links, case.facts.any_tier) == whole
    case.hear(BlocksRemoved(hashes=[event.hashes[0]], medium="GPU"))
    assert (case.facts.hbm, case.facts.any_tier) == ({}, {})
    case.hear(replace(event, hashes=event.hashes[:1], tokens=event.tokens[:SIZE], keys=[None]))
    assert case.facts.credit(links, case.facts.any_tier) == whole
    case.hear(BlocksRemoved(hashes=event.hashes[half:], medium="CPU"))
    assert case.facts.any_tier == case.facts.hbm


def test_blocks_go_on_where_they_say_and_not_where_the_last_one_ended() -> None:
    """Two chains that part, told in turns, and a message that names a block twice."""
    case = Case()
    head, *ways = LONG, LONG + SCRIPTS[5], LONG + SCRIPTS[6] * 3
    case.serve(head)
    for way in ways:
        for at in range(len(head), len(way), 40):
            case.hear(*case.engine.serve(way[:at]))
    for way in (head, *ways):
        assert case.credit(way) <= case.engine.depth(way)
        alone = Case()
        alone.serve(way)
        assert case.credit(way) >= alone.credit(way) - 2 * SIZE
    odd = case.serve("odd " + LONG)
    names, tokens = [1, 2, 1, 3], list(odd.tokens[: 4 * SIZE])
    case.hear(replace(odd, hashes=names, tokens=tokens, keys=[None] * 4))
    first, third = case.mirror._blocks[1], case.mirror._blocks[3]
    assert third.parent is first
    assert third.end == first.end + len(third.text)


def test_blocks_told_at_a_request_s_wish_are_no_copies() -> None:
    case = Case()
    event = case.serve(LONG)
    assert not case.hear(event)
    case.hear(BlocksRemoved(hashes=event.hashes))
    assert (case.credit(LONG), len(case.mirror)) == (0, 0)


def test_a_block_held_twice_goes_with_its_second_copy() -> None:
    case = Case()
    event = case.serve(LONG)
    later = replace(
        event,
        hashes=event.hashes[1:],
        parent=event.hashes[0],
        tokens=event.tokens[SIZE:],
        keys=event.keys[1:] if event.keys else None,
    )
    case.hear(later)
    assert not case.hear(BlocksRemoved(hashes=event.hashes[1:]))
    assert case.hear(BlocksRemoved(hashes=event.hashes[1:])).any_tier.withdrawn


def test_over_its_budget_a_mirror_takes_no_more_blocks_until_some_go() -> None:
    case = Case(blocks_max=30)
    event = case.serve(LONG)
    assert case.mirror.uncredited == {Uncredited.OVER_BUDGET: len(event.hashes) - 30}
    assert len(case.mirror) == 30
    case.hear(BlocksRemoved(hashes=event.hashes))
    assert (len(case.mirror), case.facts.any_tier) == (0, {})


def test_memory_returns_when_blocks_go() -> None:
    case = Case()
    for turn in range(5):
        event = case.serve(f"{turn} {LONG}")
        case.hear(BlocksRemoved(hashes=event.hashes[::2]), BlocksRemoved(hashes=event.hashes[1::2]))
    gc.collect()
    assert (len(case.mirror), case.facts.any_tier) == (0, {})
    assert not case.mirror._ledger._told


def test_a_mirror_goes_on_from_disk(tmp_path: Path) -> None:
    case = Case()
    case.serve(LONG[:300], adapter="ad0", salt="tenant")
    case.serve(LONG[:400])
    path = tmp_path / "engine.mirror"
    assert read_mirror(path, "n.e", "base@1") is None
    write_mirror(path, "n.e", "base@1", Position(7, 99), list(case.mirror.saved()))
    assert path.stat().st_mode & 0o77 == 0
    kept = read_mirror(path, "n.e", "base@1")
    assert kept is not None
    assert kept[0] == Position(7, 99)
    again = Case()
    again.engine = case.engine
    again.facts.apply(again.mirror.restore(kept[1]))
    assert again.facts.hbm == case.facts.hbm
    for one in (case, again):
        one.hear(*EngineCache(KIND.tokenizer, SIZE, names=case.engine.names).serve(LONG))
    assert again.facts.hbm == case.facts.hbm
    assert read_mirror(path, "n.other", "base@1") is None
    assert read_mirror(path, "n.e", "base@2") is None
    content = path.read_bytes()
    for broken in (b"", content[:-1], content[:9] + b"x" + content[10:]):
        path.write_bytes(broken)
        with pytest.raises(WireError):
            read_mirror(path, "n.e", "base@1")
    assert [p.name for p in tmp_path.iterdir()] == ["engine.mirror"]


def test_facts_are_worth_the_same_whatever_the_blocks_came_in() -> None:
    """All at once, one by one, and with a vocabulary of its own."""
    whole, single = Case(), Case()
    single.mirror = BlockMirror("base", "1", TokenizerVocabulary(trained_byte_level()))
    event = whole.serve(LONG)
    for at, name in enumerate(event.hashes):
        single.hear(
            replace(
                event,
                hashes=[name],
                parent=event.hashes[at - 1] if at else None,
                tokens=event.tokens[at * SIZE : (at + 1) * SIZE],
                keys=[None],
            )
        )
    assert single.facts.hbm == whole.facts.hbm
    assert json.loads(trained_byte_level())["added_tokens"]
