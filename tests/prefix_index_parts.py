"""The prefix state index: its implementations, buffers for it, and a naive model of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from axiom_common.model.prefix import FactBatch, next_link
from axiom_common.runtime.native import is_native, native_index_or_twin
from axiom_common.state.prefix_index import ANY_TIER, HBM, ROW, PrefixIndex, PrefixIndexTwin

ENTRIES_MAX = 256 * 1_000
NONE = b""
NEEDS_NATIVE = pytest.mark.skipif(not is_native(), reason="axiom_native is not built here")
IMPLEMENTATIONS = [
    pytest.param(PrefixIndexTwin, id="twin"),
    pytest.param(native_index_or_twin, id="native", marks=NEEDS_NATIVE),
]
Make = Callable[[int], PrefixIndex]
Chunk = tuple[int, int]
"""(hash, tokens)."""
Rows = list[tuple[int, int, int]]
"""(engine, entries, tokens)."""
PLANES = {HBM: {HBM, ANY_TIER}, ANY_TIER: {ANY_TIER}}
PLANES_WITHDRAWN = {HBM: {HBM}, ANY_TIER: {HBM, ANY_TIER}}


def announced(chunks: Iterable[Chunk]) -> bytes:
    return FactBatch.of(chunks, ()).announced


def hashes(chunks: Iterable[int]) -> bytes:
    return FactBatch.of((), chunks).withdrawn


def rows(found: tuple[bytes, bytes]) -> tuple[Rows, Rows]:
    """What a look-up says of HBM, and of any tier."""
    in_hbm, in_any = (list(ROW.iter_unpack(part)) for part in found)
    return in_hbm, in_any


def text_chain(text: bytes, *, size: int = 256, seed: int = 7) -> list[int]:
    """The links of a text that is cut each `size` bytes."""
    chain = []
    for start in range(0, len(text), size):
        seed = next_link(seed, text[start : start + size])
        chain.append(seed)
    return chain


@dataclass
class NaiveIndex:
    """Facts as a set of (engine, chunk, plane); snapshots as the messages that they are made of."""

    facts: set[tuple[int, int, int]] = field(default_factory=set)
    tokens: dict[int, int] = field(default_factory=dict)
    snapshots: dict[int, tuple[int, list[tuple[str, int, int]]]] = field(default_factory=dict)
    """engine -> (seq, what was said since: part, announced or withdrawn, of a chunk in a plane)."""

    def apply(self, engine: int, news: list[Chunk], gone: list[int], tier: int) -> None:
        said = self.snapshots.get(engine, (0, []))[1]
        for chunk, tokens in news:
            for plane in PLANES[tier]:
                self._hold(engine, chunk, tokens, plane)
                said.append(("announced", chunk, plane))
        for chunk in gone:
            for plane in PLANES_WITHDRAWN[tier]:
                self._release(engine, chunk, plane)
                said.append(("withdrawn", chunk, plane))

    def clear(self, engine: int) -> None:
        self.snapshots.pop(engine, None)
        for fact in [fact for fact in self.facts if fact[0] == engine]:
            self._release(*fact)

    def snapshot_begin(self, engine: int, seq: int) -> None:
        self.snapshots[engine] = (seq, [])

    def snapshot_part(self, engine: int, seq: int, news: list[Chunk], tier: int) -> bool:
        if engine not in self.snapshots or self.snapshots[engine][0] != seq:
            return False
        said = self.snapshots[engine][1]
        for chunk, tokens in news:
            for plane in PLANES[tier]:
                said.append(("part", chunk, plane))
                if self._last_word(said, chunk, plane) == "part":
                    self._hold(engine, chunk, tokens, plane)
        return True

    def snapshot_end(self, engine: int, seq: int) -> bool:
        if engine not in self.snapshots or self.snapshots[engine][0] != seq:
            return False
        _, said = self.snapshots.pop(engine)
        for fact in [fact for fact in self.facts if fact[0] == engine]:
            if self._last_word(said, *fact[1:]) in (None, "withdrawn"):
                self._release(*fact)
        return True

    def holders(self, chunk: int) -> tuple[Rows, Rows]:
        """What a look-up of that chunk alone says."""
        return self.depths([chunk])

    def depths(self, chain: list[int]) -> tuple[Rows, Rows]:
        """Chunk by chunk: how many each engine holds without a gap from the first on."""
        return self._depths(chain, HBM), self._depths(chain, ANY_TIER)

    @property
    def entries(self) -> int:
        return len({chunk for _, chunk, _ in self.facts})

    def _depths(self, chain: list[int], plane: int) -> Rows:
        found = []
        for engine in sorted({engine for engine, _, _ in self.facts}):
            depth = 0
            while depth < len(chain) and (engine, chain[depth], plane) in self.facts:
                depth += 1
            if depth:
                found.append((engine, depth, self.tokens[chain[depth - 1]]))
        return sorted(found, key=lambda row: (-row[1], row[0]))

    def _hold(self, engine: int, chunk: int, tokens: int, plane: int) -> None:
        if chunk:
            self.tokens[chunk] = min(tokens, self.tokens.get(chunk, tokens))
            self.facts.add((engine, chunk, plane))

    def _release(self, engine: int, chunk: int, plane: int) -> None:
        self.facts.discard((engine, chunk, plane))
        if not any(held == chunk for _, held, _ in self.facts):
            self.tokens.pop(chunk, None)

    @staticmethod
    def _last_word(said: list[tuple[str, int, int]], chunk: int, plane: int) -> str | None:
        """Of later messages, wherever they stand among the parts; else of the parts."""
        words = [word for word, *what in said if what == [chunk, plane]]
        later = [word for word in words if word != "part"]
        return (later or words or [None])[-1]
