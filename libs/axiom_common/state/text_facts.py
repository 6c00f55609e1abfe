"""From the tokens of one chain of blocks to facts about its text, chunk by chunk.

A fact says: whoever sends a prompt that begins with the same chunks finds at least so many of its
tokens in these blocks. Two things make that true for *every* text that goes on otherwise:

- The chunk's text is encoded anew, cut where the chunk ends, and all its words but the last two
  must be the tokens that the engine holds. So generated tokens that the tokenizer would not choose
  for that text end the credit, and what may still change with the next bytes is left out: the two
  words, half a character, the beginning of what could become a special token.
- Encoding goes on from the last word that was found to stand, not from the beginning, so each byte
  is encoded little more than once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from axiom_common.model.prefix import Uncredited, next_chunk_end, next_link
from axiom_common.model.vocabulary import Vocabulary

WINDOW_BYTES_MAX = 8_192
"""Text without two words' ends in it earns no credit beyond this: it would be encoded too often."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a chain's text is read: enough to go on from there.

    `link`, `chunk_end`: of its last whole chunk. `word_byte`, `word_token`: where the last word
    begins of which is known that it stands; what comes before is encoded as the engine holds it.
    """

    link: int
    chunk_end: int = 0
    word_byte: int = 0
    word_token: int = 0

    @property
    def start(self) -> int:
        """The first byte that is needed to go on."""
        return min(self.chunk_end, self.word_byte)


@dataclass(frozen=True, slots=True)
class Fact:
    """A prefix's link, and how many tokens of any prompt that has it lie in whole blocks."""

    link: int
    tokens: int


class ChainReader:
    """Reads a chain's blocks on from a place. `text` begins at `place.start`, `tokens` at
    `place.word_token`; both end where the next block begins."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        block_size: int,
        place: Place,
        text: bytes = b"",
        tokens: Sequence[int] = (),
    ) -> None:
        self.place = place
        self._vocabulary = vocabulary
        self._block_size = block_size
        self._text = bytearray(text)
        self._start = place.start
        self._tokens = list(tokens)

    @property
    def end(self) -> int:
        """How many bytes of text the chain has."""
        return self._start + len(self._text)

    def read(self, text: bytes, tokens: Sequence[int]) -> tuple[Fact, ...] | Uncredited:
        """Facts of the chunks that end in the next block; or why neither it nor any after it earns
        one, and then the reader must not be used again."""
        self._text += text
        self._tokens += tokens
        facts: list[Fact] = []
        while (chunk_end := next_chunk_end(self.place.chunk_end)) <= self.end:
            fact = self._close_chunk(chunk_end)
            if isinstance(fact, Uncredited):
                return fact
            facts.append(fact)
        return tuple(facts)

    def _close_chunk(self, chunk_end: int) -> Fact | Uncredited:
        place = self.place
        if chunk_end - place.word_byte > WINDOW_BYTES_MAX:
            return Uncredited.LONG_WORD
        window = bytes(self._text[place.word_byte - self._start : chunk_end - self._start])
        try:
            text = self._closed(window)
        except UnicodeDecodeError:
            return Uncredited.NOT_TEXT
        encoded, words = self._vocabulary.encoded(text)
        standing = bisect_left(words, words[-1] - 1) if words else 0
        if encoded[:standing] != self._tokens[:standing]:
            return Uncredited.RETOKENIZED
        depth = place.word_token + standing
        link = next_link(
            place.link, self._text[place.chunk_end - self._start : chunk_end - self._start]
        )
        # The word after a special token may be encoded otherwise without it: go on from it then.
        while standing and self._vocabulary.is_special(encoded[standing - 1]):
            standing -= 1
        stood = self._vocabulary.text_of(encoded[:standing])
        if stood is None or not window.startswith(stood):
            return Uncredited.NOT_TEXT
        self._go_on(
            Place(link, chunk_end, place.word_byte + len(stood), place.word_token + standing)
        )
        return Fact(link, depth // self._block_size * self._block_size)

    def _closed(self, window: bytes) -> str:
        """`window` up to what more bytes could still make another character or a special token."""
        try:
            text = window.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
            window = window[: error.start]
            text = window.decode()
        open_bytes = self._vocabulary.open_bytes(window)
        return window[: len(window) - open_bytes].decode() if open_bytes else text

    def _go_on(self, place: Place) -> None:
        del self._tokens[: place.word_token - self.place.word_token]
        del self._text[: place.start - self._start]
        self._start = place.start
        self.place = place
