"""The decisions of the last minutes, whole, with what became of them, for whoever asks why."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import xxhash

from axiom_common.model.decision import Decision, Query
from axiom_common.model.outcome import Outcome
from axiom_gateway.usage import usage_in

IDS_MAX = 10_000
PACKED_BYTES_MAX = 16 << 20
"""Twice what that many usual requests take."""
ENDED_MAX = 8
"""Requests that ended and are not packed yet: all of them but the first find the code that packs in
the CPU's cache. Many more would not fit in there themselves: with 64 a request cost 5 % more."""


class DecisionRecord(NamedTuple):
    """One decision as it was taken. `id` is what the client got; a retry has the id's next try.
    `weights` are those of its profile at that moment, indexed like `Term`."""

    id: str
    at_ms: float
    attempt: int
    query: Query
    decision: Decision
    weights: tuple[float, ...]


class RequestRecord(NamedTuple):
    """All tries of one id, in order: none where it was not decided, or that is forgotten. `outcome`
    None: it is under way."""

    decisions: tuple[DecisionRecord, ...]
    outcome: Outcome | None


class _Packed(NamedTuple):
    id: str
    decisions: tuple[DecisionRecord, ...]
    outcome: Outcome


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Packed)


class DecisionLog:
    """A bounded ring of requests with their decisions, found by id. The oldest go first.

    What ended is packed into one piece of memory, which is written from front to back and then
    anew: a decision is some hundred objects, and ten thousand of them are memory that no cache of a
    CPU holds. To make them there, and to free them there, cost each request more than all else that
    is told of it. `on_end` hears of each request when it is packed.
    """

    def __init__(self, ids_max: int = IDS_MAX, *, bytes_max: int = PACKED_BYTES_MAX) -> None:
        self._under_way: dict[str, tuple[DecisionRecord, ...]] = {}
        self._ended: list[tuple[str, Outcome, bytes]] = []
        self._memory = memoryview(bytearray(bytes_max))
        self._written = 0
        self._count = 0
        self._hashes = array("Q", bytes(8 * ids_max))
        self._places = array("Q", bytes(8 * ids_max))
        """Of what was packed: the hash of its id, and where it begins among all bytes written."""
        self._lengths = array("Q", bytes(8 * ids_max))
        self.on_end: Callable[[tuple[DecisionRecord, ...], Outcome], None] = _ignore

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision of a request that is under way."""
        before = self._under_way.get(record.id)
        self._under_way[record.id] = (record,) if before is None else (*before, record)

    def end(self, decision_id: str, outcome: Outcome, answer: bytes = b"") -> None:
        """Keep what became of a request. `answer` tells its usage, where the outcome does not."""
        self._ended.append((decision_id, outcome, answer))
        if len(self._ended) >= ENDED_MAX:
            self.pack()

    def get(self, decision_id: str) -> RequestRecord | None:
        """What is known of one id; None when unknown or forgotten."""
        self.pack()
        decisions = self._under_way.get(decision_id)
        if decisions is not None:
            return RequestRecord(decisions, None)
        wanted = _hash(decision_id)
        for slot, hashed in enumerate(self._hashes):
            found = self._read(slot) if hashed == wanted else None
            if found is not None and found.id == decision_id:
                return RequestRecord(found.decisions, found.outcome)
        return None

    def pack(self) -> None:
        """Pack what ended; to be called again and again, for few requests in a long time."""
        ended, self._ended = self._ended, []
        for decision_id, outcome, answer in ended:
            told = outcome._replace(usage=usage_in(answer)) if answer else outcome
            decisions = self._under_way.pop(decision_id, ())
            self._write(decision_id, _ENCODER.encode((decision_id, decisions, told)))
            self.on_end(decisions, told)

    def _write(self, decision_id: str, packed: bytes) -> None:
        length, room = len(packed), len(self._memory)
        if length > room:
            return
        at = self._written % room
        if at + length > room:
            self._written += room - at
            at = 0
        self._memory[at : at + length] = packed
        slot = self._count % len(self._hashes)
        self._hashes[slot] = _hash(decision_id)
        self._places[slot], self._lengths[slot] = self._written, length
        self._written += length
        self._count += 1

    def _read(self, slot: int) -> _Packed | None:
        """What was packed there; None when it was written over."""
        place, length, room = self._places[slot], self._lengths[slot], len(self._memory)
        if not length or place + room < self._written:
            return None
        return _DECODER.decode(self._memory[place % room : place % room + length])


def _hash(decision_id: str) -> int:
    return xxhash.xxh3_64_intdigest(decision_id.encode())


def _ignore(decisions: tuple[DecisionRecord, ...], outcome: Outcome) -> None:
    """Nobody listens yet."""
