"""Prompts and answers as the simulated model sees them.

A token is four bytes of text. A prompt becomes a token count and the chained hashes of its full
blocks; an answer is words drawn from (seed, adapter, prompt), so equal questions get equal answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

_BYTES_A_TOKEN = 4
_WORDS = (
    *("the", "a", "to", "of", "and", "in", "is", "it", "that", "for", "on", "with", "as", "are"),
    *("this", "be", "by", "or", "from", "at", "one", "all", "was", "but", "not", "we", "so", "can"),
    *("if", "an", "have", "will", "when", "more", "use", "its", "they", "each", "how", "which"),
    *("do", "time", "then", "would", "make", "like", "into", "has", "two", "see", "no", "could"),
    *("my", "than", "first", "been", "call", "who", "now", "find", "long", "down", "day", "get"),
)
_NATURAL_TOKENS_MIN = 16


@dataclass(frozen=True, slots=True)
class Prompt:
    """`chunks` are the hashes of its full blocks, each over all before it; `digest` is of all."""

    tokens: int
    chunks: tuple[int, ...]
    digest: int


def read_prompt(data: bytes, *, scope: str, block_tokens: int, tokens: int | None = None) -> Prompt:
    """Hash `data` in blocks. `scope` separates adapters (and cache salts); prompts of different
    scopes share nothing. `tokens` overrides the count, for prompts given as token ids."""
    state = xxhash.xxh3_64_intdigest(scope.encode())
    count = max(1, -(-len(data) // _BYTES_A_TOKEN)) if tokens is None else tokens
    block_bytes = len(data) * block_tokens // count if tokens else _BYTES_A_TOKEN * block_tokens
    chunks = []
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        state = xxhash.xxh3_64_intdigest(data[start : start + block_bytes], seed=state)
        chunks.append(state)
    tail = data[len(chunks) * block_bytes :]
    return Prompt(count, tuple(chunks), xxhash.xxh3_64_intdigest(tail, seed=state))


def answer_words(prompt: Prompt, *, seed: int, count: int) -> list[str]:
    """The first `count` tokens of the answer, as text that needs no escaping in JSON."""
    words = []
    state = prompt.digest ^ seed
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        words.append(" " + _WORDS[state >> 58])
    return words


def natural_tokens(prompt: Prompt, *, seed: int, tokens_max: int) -> int:
    """How long the answer is when nobody cuts it: `tokens_max` at most, drawn from the prompt."""
    spread = max(1, tokens_max - _NATURAL_TOKENS_MIN)
    drawn = _NATURAL_TOKENS_MIN + ((prompt.digest ^ seed) >> 13) % spread
    return min(tokens_max, drawn)


def embedding(prompt: Prompt, *, seed: int, dimensions: int) -> list[float]:
    """A vector in [-1, 1) drawn from the prompt."""
    state = prompt.digest ^ seed
    vector = []
    for _ in range(dimensions):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        vector.append((state >> 40) / (1 << 23) - 1)
    return vector
