"""Facts from KV events against a naive reference that tokenizes prompts and walks blocks.

Never more than is held, never less by more than one chunk, one block and two words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kv_parts import (
    SCRIPTS,
    SPECIALS,
    EngineCache,
    FactReader,
    Kind,
    credit,
    kinds,
    least_credit,
    scope,
)

from axiom_common.state.block_mirror import BlockMirror

SCOPES: Sequence[tuple[str | None, str | None]] = (
    (None, None),
    ("ad0", None),
    ("ad0", "ad0"),
    (None, "ad0"),
    ("ad1", "tenant"),
)
PIECES = (
    *(word for text in SCRIPTS for word in text.split(" ")),
    *SPECIALS,
    *("  ", "\n", "\n\n  ", "\u00a0", "'", "<|us", "1", "e\u0301", "語", " " * 40, "\x00"),
)
ANY_CHARACTERS = st.text(min_size=60, max_size=200)


class Story:
    """What clients send and an engine answers, drawn from a seed: texts that share beginnings."""

    def __init__(self, kind: Kind, seed: int, strange: str) -> None:
        self.random = random.Random(seed)
        self._kind = kind
        self._pieces = (*PIECES, *(strange[at : at + 3] for at in range(0, len(strange), 3)))
        self.longs = []
        for _ in range(self.random.randint(1, 2)):
            scripts = self.random.sample(SCRIPTS, self.random.randint(3, len(SCRIPTS)))
            self.longs.append(self.text().join(scripts * self.random.choice((1, 1, 1, 12))))

    def text(self, most: int = 12) -> str:
        pieces = self.random.choices(self._pieces, k=self.random.randint(1, most))
        return self.random.choice((" ", " ", "")).join(pieces)

    def prompt(self) -> str:
        """A document, whole or cut, often where a chunk ends, and how a client goes on."""
        long = self.random.choice(self.longs).encode()
        anywhere = self.random.randint(0, len(long))
        at_chunk = anywhere // 256 * 256 + self.random.randint(-3, 3)
        cut = self.random.choice((anywhere, max(0, at_chunk), len(long)))
        return long[:cut].decode(errors="ignore") + self.random.choice(("", self.text()))

    def answer(self) -> list[int]:
        """Generated tokens: as the tokenizer would choose them, or piecemeal, or any."""
        tokenizer, text = self._kind.tokenizer, self.text(self.random.choice((12, 80)))
        match self.random.choice(("natural", "piecemeal", "any")):
            case "natural":
                return list(tokenizer.encode(text, add_special_tokens=False).ids)
            case "piecemeal":
                parts = [text[at : at + 2] for at in range(0, len(text), 2)]
                return [t for p in parts for t in tokenizer.encode(p, add_special_tokens=False).ids]
            case _:
                size = tokenizer.get_vocab_size()
                return [self.random.randrange(size) for _ in range(self.random.randint(0, 20))]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), strange=ANY_CHARACTERS)
def test_credit_is_what_is_held_and_little_less(kind: Kind, seed: int, strange: str) -> None:
    story = Story(kind, seed, strange)
    rand = story.random
    block_size = rand.choice((1, 4, 16))
    engine = EngineCache(kind.tokenizer, block_size)
    mirror = BlockMirror("base", "1", kind.vocabulary)
    facts = FactReader()
    sent: list[tuple[str, str | None, str | None]] = []
    for _ in range(rand.randint(1, 8)):
        match rand.choice(("serve",) * 8 + ("evict",) * 4 + ("clear", "restart")):
            case "serve":
                adapter, salt = rand.choice(SCOPES)
                prompt, answer = story.prompt(), story.answer()
                events = engine.serve(prompt, answer, adapter=adapter, salt=salt)
                said = kind.vocabulary.text_of(answer) or b"?"
                turn = prompt + said.decode(errors="replace")
                story.longs.append(turn)
                sent = [*sent[-3:], (prompt, adapter, salt), (turn + story.text(), adapter, salt)]
            case "evict":
                count = rand.randint(1, 1 + len(engine.copies) // 4)
                events = [e for _ in range(count) for e in engine.evict(rand.randrange(500))]
            case "clear":
                events = engine.clear()
            case _:
                engine.clear()
                facts.apply(mirror.forget())
                events = []
        facts.apply(mirror.fold(events))
        for prompt, adapter, salt in [*sent, (story.prompt(), *rand.choice(SCOPES))]:
            told = credit(facts, kind.vocabulary, prompt, scope(adapter, salt))
            depth = engine.depth(prompt, adapter=adapter, salt=salt)
            assert told <= depth
            if not engine.began_twice:
                assert told >= least_credit(kind, prompt, depth, block_size)
    _holds_together(mirror, facts)
    while engine.copies:
        facts.apply(mirror.fold(engine.evict(0)))
    assert engine.began_twice or (facts.hbm, len(mirror)) == ({}, 0)


def _holds_together(mirror: BlockMirror, facts: FactReader) -> None:
    """What was told bit by bit is what is told at once, and what a saved mirror tells."""
    whole, restored = FactReader(), FactReader()
    whole.apply(mirror.facts())
    again = BlockMirror("base", "1", mirror._vocabulary)
    restored.apply(again.restore(mirror.saved()))
    assert whole.hbm == facts.hbm == restored.hbm
    assert whole.any_tier == facts.any_tier == restored.any_tier
