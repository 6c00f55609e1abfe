"""What facts about text need of a base model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol


class VocabularyRefusal(StrEnum):
    """Why a base model's tokenizer gives no exact facts, so that only predicted ones are left."""

    UNREADABLE = "unreadable"
    MODEL_KIND = "model-kind"
    NORMALISER = "normaliser"
    NO_PRE_TOKENIZER = "no-pre-tokenizer"
    LOOKAROUND = "lookaround"
    PREFIX_SPACE = "prefix-space"
    SPECIAL_STRIPS = "special-strips"
    NOT_INVERTIBLE = "not-invertible"
    UNSTABLE = "unstable"


class Vocabulary(Protocol):
    """A tokenizer whose tokens have exact text, and whose words stay as more text follows.

    All text here is *normalised*: what the tokenizer's own normaliser makes of a prompt, special
    tokens standing as their literals. A *word* is a pre-token: no token crosses its ends. Of any
    text, all words but the last two are words of every text that begins with it.
    """

    def normalised(self, prompt: str) -> bytes:
        """A prompt as tokens will tell it. A beginning-of-text literal that the engine adds by
        itself goes before the answer, not into `prompt`."""
        ...

    def text_of(self, tokens: Sequence[int]) -> bytes | None:
        """The exact text of tokens; None where one has none (unknown, or out of range)."""
        ...

    def encoded(self, text: str) -> tuple[Sequence[int], Sequence[int]]:
        """Tokens of normalised text that begins where a word does, and of each the number of its
        word, which never falls."""
        ...

    def open_bytes(self, text: bytes) -> int:
        """How many last bytes of `text` more text could turn into a special token."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether a token stands for a literal that is cut out of text before anything else."""
        ...
