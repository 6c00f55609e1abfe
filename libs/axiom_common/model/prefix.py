"""Prompt text cut into chunks, and the chain of links that names every prefix of it.

An agent that tells what an engine holds and a gateway that asks for a prompt cut the same text at
the same places, so both come to the same links: t_i = xxh3_64(chunk i, seed t_(i-1)), and t_(-1) is
the seed of the scope. Equal links mean equal text from the first byte, in one scope.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from axiom_common.model.ids import BASE, EngineAdapter

SCHEME = 1
"""Number of the way to cut and to link. It is part of every scope, so that ways never mix."""
FINE_CHUNK_BYTES = 256
FINE_TEXT_BYTES = 8_192
"""Up to here chunks are fine, beyond it coarse."""
COARSE_CHUNK_BYTES = 1_024
ANNOUNCED = struct.Struct("<QI")
"""One announced chunk in a batch, or in what an index is told: u64 link, u32 tokens, packed."""
WITHDRAWN = struct.Struct("<Q")
"""One withdrawn chunk, or one of a chain: u64 link. Link 0 is nobody's and is ignored."""


class Uncredited(StrEnum):
    """Why a stored block earns no fact."""

    UNKNOWN_PARENT = "unknown-parent"
    KEYS_NOT_TOLD = "keys-not-told"
    OTHER_KEYS = "other-keys"
    OTHER_ADAPTER = "other-adapter"
    OTHER_BLOCK_SIZE = "other-block-size"
    NOT_TEXT = "not-text"
    RETOKENIZED = "retokenized"
    LONG_WORD = "long-word"
    UNKNOWN_MEDIUM = "unknown-medium"
    OTHER_ATTENTION = "other-attention"
    OVER_BUDGET = "over-budget"


class FactsState(StrEnum):
    """Whether an engine's facts are told, and why they are not."""

    TOLD = "told"
    STARTING = "starting"
    """It was not asked yet, or what it told before was not heard yet."""
    NOT_HEARD = "not-heard"
    """It does not answer."""
    TOKENIZER_REFUSED = "tokenizer-refused"
    NO_EVENTS = "no-events"
    """It tells none."""
    SEVERAL_RANKS = "several-ranks"
    """A prefix on one rank is no credit on another."""
    HYBRID_CACHE = "hybrid-cache"
    """A hit needs more than one cache to agree."""


class Untold(StrEnum):
    """Why it is not known what text an engine makes of a request."""

    NO_TOKENIZER = "no-tokenizer"
    """None is set for its base model."""
    EMBEDDINGS = "embeddings"
    OWN_RENDERER = "own-renderer"
    """The engine has code of its own for this base model's chats."""
    NO_CHAT_TEMPLATE = "no-chat-template"
    FIELD = "field"
    """The request has a field that changes the prompt, or may."""
    CACHE_NOT_READ = "cache-not-read"
    """The engine computes all of this prompt, whatever it holds."""
    SEVERAL_PROMPTS = "several-prompts"
    TOKENS = "tokens"
    """Token ids that have no exact text."""
    MALFORMED = "malformed"
    """The engine will refuse it."""
    TEMPLATE = "template"
    """It failed over these messages; the engine will answer so too."""
    OVER_LIMIT = "over-limit"
    """It is longer, or its rendering takes longer, than is allowed here."""
    SHORT = "short"
    """It fills no chunk, so no fact can tell of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixScope:
    """Within what text is comparable: nothing is ever credited from one scope to another.

    `revision`: of the base model's weights and tokenizer, a free text. `adapter`: its name on the
    engine, which carries its revision, or BASE. `cache_salt`: the tenant's, None without.
    """

    base_model: str
    revision: str
    adapter: EngineAdapter = BASE
    cache_salt: str | None = None

    @property
    def seed(self) -> int:
        """64 bits that stand for the scope and the scheme; made to resist crafted salts."""
        digest = hashlib.blake2b(SCHEME.to_bytes(4, "little"), digest_size=8)
        for part in (self.base_model, self.revision, self.adapter, self.cache_salt):
            # Lengths in front, and one apart for None, so that no two scopes write the same bytes.
            told = b"" if part is None else part.encode("utf-8", "surrogatepass")
            size = -1 if part is None else len(told)
            digest.update(size.to_bytes(4, "little", signed=True) + told)
        return int.from_bytes(digest.digest(), "little")


class PromptText(NamedTuple):
    """A prompt as facts tell of it. `seed`: of its scope; `text`: what the engine tokenizes, from
    the first byte on, normalised by the base model's vocabulary. `is_cut`: something else than
    known text follows, of which nothing can be told."""

    seed: int
    text: bytes
    is_cut: bool = False


def next_chunk_end(position: int) -> int:
    """Where the chunk that begins at byte `position`, the end of another chunk or 0, ends."""
    fine = position < FINE_TEXT_BYTES
    return position + (FINE_CHUNK_BYTES if fine else COARSE_CHUNK_BYTES)


def next_link(link: int, chunk: bytes | bytearray | memoryview) -> int:
    """The link of the prefix that ends with `chunk`, after the prefix of `link`."""
    return int(xxhash.xxh3_64_intdigest(chunk, seed=link))


def chain(scope: PrefixScope, text: bytes) -> array[int]:
    """The links of `text`'s whole chunks, one u64 each, in native byte order.

    `text` is what the base model's vocabulary calls normalised; what is left over beyond the last
    whole chunk has no link.
    """
    return linked(scope.seed, text)


def linked(seed: int, text: bytes) -> array[int]:
    """`chain` of a scope of which the seed is known."""
    links = array("Q")
    view = memoryview(text)
    link, start = seed, 0
    while (end := next_chunk_end(start)) <= len(text):
        link = next_link(link, view[start:end])
        links.append(link)
        start = end
    return links


def prefix_bytes(chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many bytes of text so many first chunks are."""
    fine = np.minimum(chunks, FINE_TEXT_BYTES // FINE_CHUNK_BYTES)
    return fine * FINE_CHUNK_BYTES + (chunks - fine) * COARSE_CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class FactBatch:
    """Prefixes that are held from now on, and no longer, in one tier; no link is in both.

    `announced`: one `ANNOUNCED` after the other. `withdrawn`: of `WITHDRAWN`.
    """

    announced: bytes = b""
    withdrawn: bytes = b""

    @staticmethod
    def of(announced: Iterable[tuple[int, int]], withdrawn: Iterable[int]) -> FactBatch:
        """From (link, tokens) and from links."""
        return FactBatch(
            b"".join(ANNOUNCED.pack(*chunk) for chunk in announced),
            b"".join(map(WITHDRAWN.pack, withdrawn)),
        )


@dataclass(frozen=True, slots=True)
class FactChanges:
    """What changed of an engine's facts. First `cleared`: all that was told before is withdrawn.

    `hbm`: every block of the prefix lies in HBM, so it is held in any tier too. `any_tier`: it is
    held at all; what is withdrawn there is not held in HBM either.
    """

    cleared: bool = False
    hbm: FactBatch = FactBatch()
    any_tier: FactBatch = FactBatch()

    def __bool__(self) -> bool:
        return self.cleared or self.hbm != FactBatch() or self.any_tier != FactBatch()
