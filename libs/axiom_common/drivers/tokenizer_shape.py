"""What a `tokenizer.json` says of itself: whether its tokens have exact text, and which.

Read are the kinds that people serve: byte-level BPE, and SentencePiece's two (BPE with byte
fall-back, Unigram) where a pre-tokenizer cuts words. Whatever else it is, is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from axiom_common.errors import InvalidInputError
from axiom_common.model.vocabulary import VocabularyRefusal

Json = Mapping[str, Any]

SPACE_MARK = "\u2581"
"""What stands for a space in SentencePiece's pieces."""
_NORMALISERS = frozenset(
    ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "Replace", "Precompiled", "Sequence")
)
_SPLITTERS = frozenset(("ByteLevel", "Split", "Metaspace", "Digits", "Punctuation", "Sequence"))
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\[bBAGzZK]|[\^$]")
_ESCAPED_OR_CLASS = re.compile(r"\\[^bBAGzZK]|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]")
_HARMLESS = r"\s+(?!\S)"
"""Looks at one character ahead, which the two last words have room for."""


class RefusedVocabularyError(InvalidInputError):
    """A tokenizer that gives no exact facts; `refusal` says why."""

    code = "vocabulary-refused"

    def __init__(self, refusal: VocabularyRefusal, message: str) -> None:
        super().__init__(f"{refusal}: {message}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerShape:
    """`texts`: of each token, by number; None where it has none. `normalisers`: the kinds that run.
    `prepends`: whether a space is put before text: "always" before each part between special
    tokens, "first" before the first, or "never". `raw_specials`, `normalised_specials`: literals
    that are cut out before and after the normalisers run."""

    texts: Sequence[bytes | None]
    normalisers: frozenset[str]
    marks_spaces: bool
    prepends: str
    raw_specials: Sequence[str]
    normalised_specials: Sequence[str]
    special_tokens: frozenset[int]


def read_shape(told: Json) -> TokenizerShape:
    """The shape of a parsed `tokenizer.json`; RefusedVocabularyError for kinds that won't do."""
    model = told.get("model") or {}
    splitters = list(_flat(told.get("pre_tokenizer"), "pretokenizers"))
    _check_model(model)
    _check_normaliser(told.get("normalizer"))
    _check_splitters(splitters)
    added = told.get("added_tokens") or []
    for token in added:
        if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
            raise RefusedVocabularyError(
                VocabularyRefusal.SPECIAL_STRIPS, f"{token.get('content')!r} takes spaces with it"
            )
    byte_level = any(one["type"] == "ByteLevel" for one in splitters)
    metaspace = next((one for one in splitters if one["type"] == "Metaspace"), None)
    return TokenizerShape(
        texts=_texts(model, added, byte_level=byte_level, marks_spaces=metaspace is not None),
        normalisers=frozenset(one["type"] for one in _flat(told.get("normalizer"), "normalizers")),
        marks_spaces=metaspace is not None,
        prepends=(metaspace or {}).get("prepend_scheme", "never"),
        raw_specials=[t["content"] for t in added if not t.get("normalized")],
        normalised_specials=[t["content"] for t in added if t.get("normalized")],
        special_tokens=frozenset(t["id"] for t in added),
    )


def _flat(part: Json | None, inner: str) -> Iterator[Json]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for one in part[inner]:
            yield from _flat(one, inner)
    else:
        yield part


def _check_model(model: Json) -> None:
    kind = model.get("type", "BPE" if "merges" in model else None)
    lossy = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    if kind not in ("BPE", "Unigram") or any(model.get(name) for name in lossy):
        raise RefusedVocabularyError(VocabularyRefusal.MODEL_KIND, f"a model of kind {kind}")


def _check_normaliser(normaliser: Json | None) -> None:
    for one in _flat(normaliser, "normalizers"):
        right_only = one["type"] == "Strip" and not one.get("strip_left")
        if one["type"] not in _NORMALISERS and not right_only:
            raise RefusedVocabularyError(VocabularyRefusal.NORMALISER, one["type"])


def _check_splitters(splitters: Sequence[Json]) -> None:
    cuts = [
        one
        for one in splitters
        if not (one["type"] == "ByteLevel" and not one.get("use_regex", True))
        and not (one["type"] == "Metaspace" and not one.get("split", True))
    ]
    if not cuts:
        raise RefusedVocabularyError(VocabularyRefusal.NO_PRE_TOKENIZER, "nothing cuts words")
    for one in splitters:
        if one["type"] not in _SPLITTERS:
            raise RefusedVocabularyError(VocabularyRefusal.NO_PRE_TOKENIZER, one["type"])
        if one["type"] == "ByteLevel" and one.get("add_prefix_space"):
            raise RefusedVocabularyError(VocabularyRefusal.PREFIX_SPACE, "a space before each part")
        if one["type"] == "Metaspace" and one.get("replacement") != SPACE_MARK:
            raise RefusedVocabularyError(VocabularyRefusal.NOT_INVERTIBLE, "another space mark")
        pattern = (one.get("pattern") or {}) if one["type"] == "Split" else {}
        if one.get("behavior") == "Removed":
            raise RefusedVocabularyError(VocabularyRefusal.NOT_INVERTIBLE, "cuts text away")
        if "Regex" in pattern and looks_around(pattern["Regex"]):
            raise RefusedVocabularyError(VocabularyRefusal.LOOKAROUND, pattern["Regex"])


def looks_around(pattern: str) -> bool:
    """Whether where a pattern cuts may depend on text far before or after."""
    rest = _ESCAPED_OR_CLASS.sub("", pattern.replace(_HARMLESS, ""))
    return _LOOKS_AROUND.search(rest) is not None


def _texts(
    model: Json, added: Sequence[Json], *, byte_level: bool, marks_spaces: bool
) -> list[bytes | None]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        pieces = dict(vocabulary)
        unknown = pieces.get(model.get("unk_token"))
    else:
        pieces = {}
        for number, (piece, _) in enumerate(vocabulary):
            pieces.setdefault(piece, number)
        unknown = model.get("unk_id")
    size = 1 + max((*pieces.values(), *(token["id"] for token in added)), default=-1)
    texts: list[bytes | None] = [None] * size
    alphabet = _byte_alphabet() if byte_level else {}
    for piece, number in pieces.items():
        byte = _BYTE_PIECE.fullmatch(piece) if model.get("byte_fallback") else None
        if byte_level:
            if all(character in alphabet for character in piece):
                texts[number] = bytes(alphabet[character] for character in piece)
        elif byte:
            texts[number] = bytes((int(byte[1], 16),))
        else:
            texts[number] = (piece.replace(SPACE_MARK, " ") if marks_spaces else piece).encode()
    if unknown is not None:
        texts[unknown] = None
    for token in added:
        # An unknown token's literal, where it is declared: text that holds it is that token.
        if token["id"] != unknown:
            texts[token["id"]] = token["content"].encode()
    return texts


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character: itself, where it is one."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + position): byte for position, byte in enumerate(others)
    }
