"""Vocabularies: exact text of tokens, normalised prompts, and which tokenizers are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kv_parts import LLAMA_SPLIT, SCRIPTS, Kind, kinds, trained_byte_level, trained_marked_bpe

from axiom_common.drivers.tokenizer_shape import RefusedVocabularyError, looks_around
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary, read_vocabulary
from axiom_common.model.vocabulary import VocabularyRefusal

EVERY = pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
TEXT = "\n".join(SCRIPTS)


@EVERY
def test_the_tokens_of_a_prompt_are_its_normalised_text(kind: Kind) -> None:
    for prompt in (*SCRIPTS, TEXT, "", " x", "x", "\u2581x", "<|user|>x <|user|> x", "x" * 999):
        tokens = kind.tokenizer.encode(prompt, add_special_tokens=False).ids
        told = kind.vocabulary.text_of(tokens)
        if told is not None:
            assert told == kind.vocabulary.normalised(prompt)
        else:
            assert not kind.has_byte_tokens


@EVERY
def test_what_is_normal_stays_so_and_has_the_same_tokens(kind: Kind) -> None:
    normal = kind.vocabulary.normalised(TEXT).decode()
    assert kind.vocabulary.normalised(normal).decode() == normal
    first = kind.tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert kind.tokenizer.encode(normal, add_special_tokens=False).ids == first
    assert kind.vocabulary.encoded(normal)[0] == first


@EVERY
def test_surrogates_and_strange_tokens_have_an_answer(kind: Kind) -> None:
    assert kind.vocabulary.normalised("a\ud800b").decode().strip() == "a?b"
    assert kind.vocabulary.text_of([10**9]) is None


def test_a_special_token_may_begin_in_the_last_bytes() -> None:
    vocabulary = kinds()[0].vocabulary
    assert vocabulary.open_bytes(b"hello <|us") == 4
    assert vocabulary.open_bytes(b"hello <|user|>") == 8  # <|user|>x is one as well
    assert vocabulary.open_bytes(b"hello <|end|>") == 0
    assert vocabulary.open_bytes(b"") == 0


def test_the_revision_is_of_the_bytes_of_the_file(tmp_path: Path) -> None:
    told = trained_byte_level(LLAMA_SPLIT).replace("{", "{\r\n", 1).encode()
    (tmp_path / "tokenizer.json").write_bytes(told)
    revision = read_vocabulary(tmp_path).revision
    assert revision == hashlib.blake2b(told, digest_size=8).hexdigest()
    (tmp_path / "tokenizer.json").write_bytes(told + b"\n")
    assert read_vocabulary(tmp_path).revision != revision


def _with(told: str, change: Callable[[dict[str, Any]], object]) -> str:
    parsed = json.loads(told)
    change(parsed)
    return json.dumps(parsed)


def _split(pattern: str) -> Callable[[dict[str, Any]], object]:
    return lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=pattern)


BYTE_LEVEL_REFUSED: list[tuple[VocabularyRefusal, Callable[[dict[str, Any]], object]]] = [
    (VocabularyRefusal.MODEL_KIND, lambda t: t["model"].update(type="WordLevel")),
    (VocabularyRefusal.MODEL_KIND, lambda t: t["model"].update(dropout=0.1)),
    (VocabularyRefusal.MODEL_KIND, lambda t: t["model"].update(end_of_word_suffix="</w>")),
    (VocabularyRefusal.NORMALISER, lambda t: t.update(normalizer={"type": "StripAccents"})),
    (VocabularyRefusal.NO_PRE_TOKENIZER, lambda t: t.update(pre_tokenizer=None)),
    (
        VocabularyRefusal.NO_PRE_TOKENIZER,
        lambda t: t["pre_tokenizer"]["pretokenizers"].pop(0),
    ),
    (
        # It looks like one, and cuts nothing: as where a normaliser has taken all spaces.
        VocabularyRefusal.NO_PRE_TOKENIZER,
        _split("\u2603"),
    ),
    (
        VocabularyRefusal.PREFIX_SPACE,
        lambda t: t["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
    ),
    (VocabularyRefusal.SPECIAL_STRIPS, lambda t: t["added_tokens"][0].update(lstrip=True)),
    (VocabularyRefusal.SPECIAL_STRIPS, lambda t: t["added_tokens"][0].update(rstrip=True)),
    (
        VocabularyRefusal.NOT_INVERTIBLE,
        lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"),
    ),
    # Digits in threes from the right: one more moves all the cuts.
    (VocabularyRefusal.LOOKAROUND, _split(r"\p{N}{1,3}(?=(\p{N}{3})*(?!\p{N}))|" + LLAMA_SPLIT)),
    (VocabularyRefusal.LOOKAROUND, _split(r"\b\w+|" + LLAMA_SPLIT)),
    (VocabularyRefusal.UNREADABLE, lambda t: t["model"].update(vocab={"a": "b"})),
    (VocabularyRefusal.MODEL_KIND, lambda t: t.pop("model")),
]


@pytest.mark.parametrize(("refusal", "change"), BYTE_LEVEL_REFUSED)
def test_a_tokenizer_that_gives_no_exact_facts_is_refused_with_a_reason(
    refusal: VocabularyRefusal, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(RefusedVocabularyError) as refused:
        TokenizerVocabulary(_with(trained_byte_level(), change))
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("split", [' ?"[^"]*"|' + LLAMA_SPLIT, r" ?\([^)]*\)|" + LLAMA_SPLIT])
def test_words_that_depend_on_what_comes_later_are_found_by_trying(split: str) -> None:
    """What is quoted is one word, once the second quote comes; and has tokens of its own then."""
    texts = (' "hello there you, (see [what"', " (see [what {comes <b>next /* of it)")
    with pytest.raises(RefusedVocabularyError) as refused:
        TokenizerVocabulary(trained_byte_level(split, texts))
    assert refused.value.refusal is VocabularyRefusal.UNSTABLE


def test_sentencepiece_without_a_pre_tokenizer_is_refused() -> None:
    """Llama 2's kind: spaces become marks, and then nothing cuts words."""

    def old(told: dict[str, Any]) -> None:
        told["normalizer"] = {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        }
        told["pre_tokenizer"] = None

    def gemma(told: dict[str, Any]) -> None:
        old(told)
        told["normalizer"]["normalizers"].pop(0)
        split = {"type": "Split", "pattern": {"String": " "}, "invert": False}
        told["pre_tokenizer"] = split | {"behavior": "MergedWithPrevious"}

    def whole(told: dict[str, Any]) -> None:
        told["pre_tokenizer"]["split"] = False

    for change in (old, gemma, whole):
        with pytest.raises(RefusedVocabularyError) as refused:
            TokenizerVocabulary(_with(trained_marked_bpe(), change))
        assert refused.value.refusal in (
            VocabularyRefusal.NO_PRE_TOKENIZER,
            VocabularyRefusal.NORMALISER,
        )


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    for content in (
        None,
        "",
        "{",
        "[]",
        '{"model": 1}',
        "null",
        "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        if content is not None:
            (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(RefusedVocabularyError) as refused:
            read_vocabulary(tmp_path)
        assert refused.value.refusal in (VocabularyRefusal.UNREADABLE, VocabularyRefusal.MODEL_KIND)


def test_a_folder_or_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(trained_byte_level())
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert read_vocabulary(path).normalised("e\u0301") == "é".encode()


@pytest.mark.parametrize(
    ("pattern", "looks"),
    [
        (LLAMA_SPLIT, False),
        (r"[^\s\p{L}$]+|\^|\$|[]^]", False),
        (r"a(?=b)", True),
        (r"(?<!a)b", True),
        (r"a(?!b)", True),
        (r"^a", True),
        (r"a$", True),
        (r"\ba", True),
        (r"[\^]\Ba", True),
    ],
)
def test_patterns_that_look_around_are_told(pattern: str, looks: bool) -> None:
    assert looks_around(pattern) is looks
