"""The decisions of the last minutes, whole, with what became of them, for whoever asks why."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.outcome import Outcome
from axiom_common.policy.decided import Decided

IDS_MAX = 10_000
BYTES_MAX = 16 << 20
"""Twice what that many usual requests take."""


class DecisionRecord(NamedTuple):
    """One decision as it was taken, in `took_ms`. `weights` are those of its profile at that
    moment, indexed like `Term`; `excluded` engines were left out from the start."""

    at_ms: float
    took_ms: float
    attempt: int
    excluded: tuple[EngineId, ...]
    weights: tuple[float, ...]
    decision: Decided


class Asked(NamedTuple):
    """What a request asked for, in all its tries; as in `Query`."""

    base_model: str
    adapter: EngineAdapter
    rank: int
    size_bytes: int
    prompt_tokens: int


class RequestRecord(NamedTuple):
    """All tries of one request, in order: none where it was not decided. `outcome` None: it is
    under way. `id` is what the client got."""

    id: str
    asked: Asked
    decisions: Sequence[DecisionRecord]
    outcome: Outcome | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[RequestRecord])


class DecisionLog:
    """A bounded ring of requests that ended with their decisions, found by id. The oldest go first.

    What ended is packed, some at a time: a decision is some hundred objects, and ten thousand of
    them are memory that no cache of a CPU holds. To make them there, and to free them there, cost
    each request more than all else that is told of it. Who asks for one id has all packs searched
    for its bytes: half a millisecond, for people.
    """

    def __init__(self, ids_max: int = IDS_MAX, *, bytes_max: int = BYTES_MAX) -> None:
        self._ids_max = ids_max
        self._bytes_max = bytes_max
        self._packs: deque[tuple[int, bytes]] = deque()
        """Requests in it, and they."""
        self._ids = 0
        self._bytes = 0

    def keep(self, records: Sequence[RequestRecord]) -> None:
        """Keep requests that ended, together."""
        packed = _ENCODER.encode(records)
        self._packs.append((len(records), packed))
        self._ids += len(records)
        self._bytes += len(packed)
        while self._ids > self._ids_max or self._bytes > self._bytes_max:
            count, oldest = self._packs.popleft()
            self._ids -= count
            self._bytes -= len(oldest)

    def get(self, decision_id: str) -> RequestRecord | None:
        """A request that ended; None when it is unknown or forgotten."""
        wanted = decision_id.encode("utf-8", "replace")
        for _, packed in reversed(self._packs):
            if wanted in packed:
                for record in _DECODER.decode(packed):
                    if record.id == decision_id:
                        return record
        return None
