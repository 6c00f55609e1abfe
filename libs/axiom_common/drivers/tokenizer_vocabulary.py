"""A base model's `tokenizer.json` as a `Vocabulary`, by the library that engines use themselves."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, takewhile
from pathlib import Path

from tokenizers import Tokenizer

from axiom_common.drivers.tokenizer_probe import instability
from axiom_common.drivers.tokenizer_shape import SPACE_MARK, RefusedVocabularyError, read_shape
from axiom_common.model.vocabulary import VocabularyRefusal

NORMALISED_CHARS_MAX = 256 << 10
"""Of a prompt that has to be normalised piece by piece; one that is seen to be normal already, as
most are, may have any length."""
PARTS_MAX = 4_096
"""Special tokens in such a prompt, and what lies between."""
FILE_BYTES_MAX = 64 * 2**20
"""The largest that people serve have 20 to 30 MiB."""

_UNICODE_FORMS = frozenset(("NFC", "NFD", "NFKC", "NFKD"))


class TooLongError(Exception):
    """Normalising a prompt would take long."""


class TokenizerVocabulary:
    """`Vocabulary` of one tokenizer. Not for several threads at once.

    `revision`: 16 hex digits that stand for the file, so that an agent and a gateway see whether
    they speak of the same one. `beginning`: the literals that its post-processor puts before a
    prompt, None where they have no exact text.
    """

    def __init__(self, told: str) -> None:
        """From a `tokenizer.json`'s text; RefusedVocabularyError when it gives no exact facts."""
        self.revision = revision_of(told.encode("utf-8", "surrogatepass"))
        try:
            parsed = json.loads(told)
            self._shape = read_shape(parsed)
            self._tokenizer = Tokenizer.from_str(told)
        except RefusedVocabularyError:
            raise
        except Exception as error:  # the library raises no narrower one for bad files
            raise RefusedVocabularyError(
                VocabularyRefusal.UNREADABLE, str(error)[:300] or type(error).__name__
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._texts = self._shape.texts
        self._raw = _literals(self._shape.raw_specials)
        self._normalised = _literals(self._shape.normalised_specials)
        specials = [*self._shape.raw_specials, *self._shape.normalised_specials]
        self._beginnings = {
            beginning
            for literal in specials
            for beginning in accumulate(bytes((byte,)) for byte in literal.encode()[:-1])
        }
        self._longest_beginning = max(map(len, self._beginnings), default=0)
        self.beginning = self._put_before()
        reason = instability(self)
        if reason is not None:
            raise RefusedVocabularyError(*reason)

    def normalised(self, prompt: str) -> bytes:
        """As `Vocabulary` has it; TooLongError beyond the bounds above."""
        try:
            told = prompt.encode()
        except UnicodeEncodeError:
            told = prompt.encode("utf-8", "replace")
            prompt = told.decode()
        if self._is_normal(prompt):
            return told
        if len(prompt) > NORMALISED_CHARS_MAX:
            raise TooLongError
        parts = list(islice(self._parts(prompt), PARTS_MAX + 1))
        if len(parts) > PARTS_MAX:
            raise TooLongError
        scheme = self._shape.prepends
        for position, (part, is_special) in enumerate(parts):
            if is_special or not part:
                continue
            if self._shape.marks_spaces:
                part = part.replace(SPACE_MARK, " ")
            if (scheme == "always" or (scheme == "first" and not position)) and part[0] != " ":
                part = " " + part
            parts[position] = (part, False)
        return "".join(part for part, _ in parts).encode()

    def text_of(self, tokens: Sequence[int]) -> bytes | None:
        texts = self._texts
        try:
            return b"".join([texts[token] for token in tokens])  # type: ignore[misc]
        except (TypeError, IndexError):
            return None

    def encoded(self, text: str) -> tuple[Sequence[int], Sequence[int]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.word_ids  # type: ignore[return-value]

    def open_bytes(self, text: bytes) -> int:
        for size in range(min(self._longest_beginning, len(text)), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0

    def is_special(self, token: int) -> bool:
        return token in self._shape.special_tokens

    def _put_before(self) -> bytes | None:
        encoding = self._tokenizer.encode("a")
        own = takewhile(
            lambda told: told[1], zip(encoding.ids, encoding.special_tokens_mask, strict=True)
        )
        return self.text_of([token for token, _ in own])

    def _is_normal(self, prompt: str) -> bool:
        """Whether it is seen at once that nothing would change, as for most prompts."""
        kinds = self._shape.normalisers
        if self._shape.marks_spaces or not kinds <= _UNICODE_FORMS:
            return False
        if not kinds or prompt.isascii():
            return True
        return kinds == {"NFC"} and unicodedata.is_normalized("NFC", prompt)

    def _parts(self, prompt: str) -> Iterator[tuple[str, bool]]:
        """Normalised parts, and whether each is a special token's literal."""
        normaliser = self._tokenizer.normalizer
        for part, is_special in _cut(self._raw, prompt):
            if is_special:
                yield part, True
            else:
                normal = normaliser.normalize_str(part) if normaliser else part
                yield from _cut(self._normalised, normal)


def read_vocabulary(path: Path) -> TokenizerVocabulary:
    """From a model's folder or its `tokenizer.json`; no such file is a refusal too."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise RefusedVocabularyError(
                VocabularyRefusal.UNREADABLE, f"{file} is larger than {FILE_BYTES_MAX} bytes"
            )
        told = file.read_bytes().decode()  # as it stands: `revision` is of these bytes
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedVocabularyError(VocabularyRefusal.UNREADABLE, f"{file}: {error}") from error
    return TokenizerVocabulary(told)


def revision_of(tokenizer: bytes) -> str:
    """Of a `tokenizer.json` or whatever else stands for a base model's tokenizer."""
    return hashlib.blake2b(tokenizer, digest_size=8).hexdigest()


def _literals(specials: Sequence[str]) -> re.Pattern[str] | None:
    """The longest literal wins where several begin, as in the library."""
    ordered = sorted((literal for literal in specials if literal), key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, ordered)) + ")") if ordered else None


def _cut(literals: re.Pattern[str] | None, text: str) -> Iterator[tuple[str, bool]]:
    if literals is None:
        yield text, False
        return
    for position, part in enumerate(literals.split(text)):
        if part:
            yield part, position % 2 == 1
