"""The prefix state index of one base model: a chunk's link -> its tokens and holders.

Agents state facts: "this engine holds everything up to this chunk". A fact stands for itself, so a
look-up never needs the chunks between: it walks from the deepest chunk to the first, skips whatever
lies between two chunks with nobody new, and names each engine once, at the deepest chunk that it
holds. Along a chain holders are nested, because agents announce whole prefixes only.

Two planes: held in HBM, and held in any tier. To announce in HBM is to announce in both; to
withdraw from any tier is to withdraw from both: what is held in HBM is held.

The bound: at most `entries_max` chunks, an equal share for each of `SHARDS` shards of the link, so
that room is made in one shard at a time. Over it the deepest chunks go first. A chunk's token count
is its depth: along a chain it never falls, it compares chunks of any size, and it costs no memory.
Shards draw the line at slightly different depths; a hole costs credit there, and never gives any.

This is the twin in Python: complete, the reference, and what runs where nothing is compiled.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN

if TYPE_CHECKING:
    from typing_extensions import Buffer

HBM, ANY_TIER = 0, 1
"""Planes. `ANY_TIER`: HBM, host RAM, disk, whatever the engine can use without computing anew."""
ENGINES_MAX = 16_383
"""Engines are numbers below this. A number may serve another engine once it was cleared."""
SHARDS = 256
ROW = struct.Struct("<III")
"""One row of a look-up: u32 engine, u32 entries of the chain that it holds, u32 tokens in them."""

_ROOM_SHARE = 16
"""Making room in a full shard frees one in so many entries, so that it is made seldom."""
_WALKED = 8
"""Spans of so few chunks are walked: compiled, that costs less than to go by halves."""
_PLANES_ANNOUNCED = {HBM: 0b11, ANY_TIER: 0b10}
_PLANES_WITHDRAWN = {HBM: 0b01, ANY_TIER: 0b11}
_IN_HBM, _IN_ANY = 0b01, 0b10


def shard_of(link: int) -> int:
    """The shard of a link: its top byte."""
    return link >> 56


class PrefixIndex(Protocol):
    """What the twin and the native index have in common. One thread writes the twin, and any thread
    a compiled one; any thread reads.

    All buffers are contiguous and little-endian; lengths that are no whole number of items, engines
    and tiers out of range raise ValueError before anything changed.
    """

    def apply(self, engine: int, announced: Buffer, withdrawn: Buffer, tier: int) -> None:
        """One message of one engine: `ANNOUNCED` items, then `WITHDRAWN` items, in plane `tier`.

        A chunk's tokens are the lowest that anybody announced while somebody held it, for block
        sizes differ between engines and credit is never too high. Withdrawn chunks that are unknown
        are ignored. A chunk in both lists is withdrawn.
        """

    def clear(self, engine: int) -> None:
        """The engine holds nothing any more; its open snapshot is dropped."""

    def snapshot_begin(self, engine: int, seq: int) -> None:
        """A snapshot cut at `seq` of the engine's messages begins; an unfinished one is dropped.

        `apply` goes on beside it, with messages after `seq`: they have the last word.
        """

    def snapshot_part(self, engine: int, seq: int, announced: Buffer, tier: int) -> bool:
        """Some of what the engine held at `seq`; held from now on, like any announcement.

        False: that snapshot is not open, or told of more than `entries_max` chunks, and is dropped
        with nothing changed; ask for another one.
        """

    def snapshot_end(self, engine: int, seq: int) -> bool:
        """What it is known to hold and neither snapshot nor later messages told of goes.

        False as above.
        """

    def lookup(self, chain: Buffer) -> tuple[bytes, bytes]:
        """`ROW`s for HBM and for any tier: each engine that holds the first entry of `chain`.

        `chain`: links from the first chunk on. Deepest engines first, among equals by number. The
        same object twice when both planes say the same.
        """

    @property
    def entries(self) -> int:
        """Chunks that somebody holds."""

    @property
    def dropped(self) -> int:
        """Chunks that went because of the bound, so far."""


class _Entry(NamedTuple):
    """A chunk. `held`, `in_hbm`: bit n is engine n. Replaced whole, so readers see no half."""

    tokens: int
    held: int
    in_hbm: int


@dataclass(slots=True)
class _Snapshot:
    """`told`: link -> (planes that it is held in, planes in which a later message said so)."""

    seq: int
    told: dict[int, tuple[int, int]] = field(default_factory=dict)


class PrefixIndexTwin:
    """`PrefixIndex` in dicts. `entries_max` is at least `SHARDS`."""

    def __init__(self, entries_max: int) -> None:
        if entries_max < SHARDS:
            raise ValueError(f"entries_max is at least {SHARDS}, not {entries_max}")
        self._entries_max = entries_max
        self._shard_max = entries_max // SHARDS
        self._shards: list[dict[int, _Entry]] = [{} for _ in range(SHARDS)]
        self._snapshots: dict[int, _Snapshot] = {}
        self._dropped = 0

    def apply(self, engine: int, announced: Buffer, withdrawn: Buffer, tier: int) -> None:
        _check(engine, tier)
        news, gone = _items(announced, ANNOUNCED), _items(withdrawn, WITHDRAWN)
        snapshot = self._snapshots.get(engine)
        for link, tokens in ANNOUNCED.iter_unpack(news):
            planes = _PLANES_ANNOUNCED[tier]
            self._hold(engine, link, tokens, planes)
            if snapshot is not None and link:
                held, settled = snapshot.told.get(link, (0, 0))
                snapshot.told[link] = (held | planes, settled | planes)
        for (link,) in WITHDRAWN.iter_unpack(gone):
            planes = _PLANES_WITHDRAWN[tier]
            self._release(engine, link, planes)
            if snapshot is not None and link:
                held, settled = snapshot.told.get(link, (0, 0))
                snapshot.told[link] = (held & ~planes, settled | planes)
        if snapshot is not None and len(snapshot.told) > self._entries_max:
            del self._snapshots[engine]

    def clear(self, engine: int) -> None:
        _check(engine, ANY_TIER)
        self._snapshots.pop(engine, None)
        self._retain(engine, {})

    def snapshot_begin(self, engine: int, seq: int) -> None:
        _check(engine, ANY_TIER)
        self._snapshots[engine] = _Snapshot(seq)

    def snapshot_part(self, engine: int, seq: int, announced: Buffer, tier: int) -> bool:
        _check(engine, tier)
        news = _items(announced, ANNOUNCED)
        snapshot = self._snapshots.get(engine)
        if snapshot is None or snapshot.seq != seq:
            return False
        if len(snapshot.told) + len(news) // ANNOUNCED.size > self._entries_max:
            del self._snapshots[engine]
            return False
        for link, tokens in ANNOUNCED.iter_unpack(news):
            held, settled = snapshot.told.get(link, (0, 0))
            planes = _PLANES_ANNOUNCED[tier] & ~settled
            if planes and link:
                snapshot.told[link] = (held | planes, settled)
                self._hold(engine, link, tokens, planes)
        return True

    def snapshot_end(self, engine: int, seq: int) -> bool:
        _check(engine, ANY_TIER)
        snapshot = self._snapshots.get(engine)
        if snapshot is None or snapshot.seq != seq:
            return False
        del self._snapshots[engine]
        self._retain(engine, snapshot.told)
        return True

    def lookup(self, chain: Buffer) -> tuple[bytes, bytes]:
        view = _items(chain, WITHDRAWN)
        length = len(view) // WITHDRAWN.size

        def entry_at(position: int) -> _Entry | None:
            link: int = WITHDRAWN.unpack_from(view, position * WITHDRAWN.size)[0]
            return self._shard_of(link).get(link)

        first = entry_at(0) if length else None
        if first is None:
            return b"", b""
        found = _Found()
        found.add(entry_at(length - 1), length)
        # Positions i and j with all at j and beyond done; the entry is that at i.
        spans: list[tuple[int, _Entry | None, int]] = [(0, first, length - 1)]
        while spans:
            i, entry, j = spans.pop()
            if entry is None or not found.lacks(entry):
                continue
            if j - i <= _WALKED:
                for position in range(j - 1, i, -1):
                    found.add(entry_at(position), position + 1)
                found.add(entry, i + 1)
                continue
            middle = (i + j) // 2
            spans += [(i, entry, middle), (middle, entry_at(middle), j)]
        return found.rows()

    @property
    def entries(self) -> int:
        return sum(map(len, self._shards))

    @property
    def dropped(self) -> int:
        return self._dropped

    def _shard_of(self, link: int) -> dict[int, _Entry]:
        return self._shards[shard_of(link)]

    def _hold(self, engine: int, link: int, tokens: int, planes: int) -> None:
        if not link:
            return
        shard = self._shard_of(link)
        bit = 1 << engine
        old = shard.get(link)
        before = old or _Entry(tokens, 0, 0)
        shard[link] = _Entry(
            min(tokens, before.tokens),
            before.held | bit,
            before.in_hbm | bit if planes & _IN_HBM else before.in_hbm,
        )
        if old is None and len(shard) > self._shard_max:
            self._make_room(shard)

    def _release(self, engine: int, link: int, planes: int) -> None:
        shard = self._shard_of(link)
        entry = shard.get(link)
        if entry is None:
            return
        bit = 1 << engine
        held = entry.held & ~bit if planes & _IN_ANY else entry.held
        if held:
            in_hbm = entry.in_hbm & ~bit if planes & _IN_HBM else entry.in_hbm
            shard[link] = _Entry(entry.tokens, held, in_hbm)
        else:
            del shard[link]

    def _make_room(self, shard: dict[int, _Entry]) -> None:
        too_many = len(shard) - (self._shard_max - self._shard_max // _ROOM_SHARE)
        deepest = heapq.nlargest(too_many, ((e.tokens, link) for link, e in shard.items()))
        for _, link in deepest:
            del shard[link]
        self._dropped += too_many

    def _retain(self, engine: int, told: Mapping[int, tuple[int, int]]) -> None:
        """Of what the engine holds leave the planes that were told of."""
        bit = 1 << engine
        for number, shard in enumerate(self._shards):
            known = [link for link, entry in shard.items() if entry.held & bit]
            for link in known:
                held, _ = told.get(link, (0, 0))
                self._release(engine, link, (_IN_ANY | _IN_HBM) & ~held)
            if known:
                # A dict keeps the room of what went; its copy does not.
                self._shards[number] = dict(shard)


class _Found:
    """Who was found, and how deep; both planes."""

    def __init__(self) -> None:
        self._held = 0
        self._in_hbm = 0
        self._rows = bytearray()
        self._rows_in_hbm = bytearray()

    def lacks(self, entry: _Entry) -> bool:
        """Whether the entry has a holder that was not found deeper."""
        return bool(entry.held & ~self._held or entry.in_hbm & ~self._in_hbm)

    def add(self, entry: _Entry | None, depth: int) -> None:
        """Its holders hold `depth` entries, unless they were found deeper."""
        if entry is None:
            return
        for engine in _engines(entry.held & ~self._held):
            self._rows += ROW.pack(engine, depth, entry.tokens)
        for engine in _engines(entry.in_hbm & ~self._in_hbm):
            self._rows_in_hbm += ROW.pack(engine, depth, entry.tokens)
        self._held |= entry.held
        self._in_hbm |= entry.in_hbm

    def rows(self) -> tuple[bytes, bytes]:
        """For HBM, for any tier."""
        rows = bytes(self._rows)
        return (rows if self._rows == self._rows_in_hbm else bytes(self._rows_in_hbm)), rows


def _engines(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _check(engine: int, tier: int) -> None:
    if not 0 <= engine < ENGINES_MAX:
        raise ValueError(f"an engine is a number from 0 below {ENGINES_MAX}, not {engine}")
    if tier not in (HBM, ANY_TIER):
        raise ValueError(f"a tier is {HBM} (HBM) or {ANY_TIER} (any), not {tier}")


def _items(buffer: Buffer, item: struct.Struct) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) % item.size:
        raise ValueError(f"{len(view)} bytes are no whole number of items of {item.size}")
    return view
