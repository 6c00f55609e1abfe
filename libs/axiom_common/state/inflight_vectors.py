"""Requests in flight as the gateways of a region tell them, summed per engine.

A vector holds absolute counts. A full report replaces it; a delta sets the counts it names, so a
lost delta is healed by the next full one, a second later. A gateway that restarted (a higher
incarnation) starts from nothing; one that falls silent is dropped, its requests with it.

Each also says up to which revision it has taken over the desired state. One that fell silent
without a goodbye may still be at work, and what it takes over is not known. For a minute it is
waited for; then it is only remembered, by name, until it is heard again or an hour has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId

SILENT_MS = 3000.0
"""Three full reports missed."""
GATEWAYS_MAX = 256
EXPIRED_MS = 60_000.0
"""Above any delay of a message: a late one of a gateway that was dropped changes nothing. So long,
too, one that fell silent is waited for."""
MISSING_MS = 3_600_000.0
"""So long it is remembered."""
MISSING_MAX = 64
"""So many of them are, those that fell silent last."""

Count = tuple[EngineId, EngineAdapter, int]


@dataclass(slots=True)
class _Vector:
    incarnation: int
    seq: int
    heard_ms: float
    applied: int | None = None
    counts: dict[tuple[EngineId, EngineAdapter], int] = field(default_factory=dict)


class _Gone(NamedTuple):
    """The last word of a gateway that was dropped. `left`: it was a goodbye."""

    incarnation: int
    seq: int
    at_ms: float
    left: bool


_NEVER = _Gone(-1, -1, 0.0, left=False)


class InFlightVectors:
    """The vectors of all gateways heard. Each method that changes sums returns the engines whose
    sum changed, sorted."""

    def __init__(self, *, silent_ms: float = SILENT_MS) -> None:
        self._silent_ms = silent_ms
        self._vectors: dict[GatewayId, _Vector] = {}
        self._sums: dict[EngineId, dict[EngineAdapter, int]] = {}
        self._gone: dict[GatewayId, _Gone] = {}
        self._missing: dict[GatewayId, float] = {}
        """When they were dropped, the oldest first."""

    @property
    def gateways(self) -> int:
        """How many gateways are heard."""
        return len(self._vectors)

    def of(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        """Requests in flight on an engine by adapter; every count is above 0."""
        return self._sums.get(engine, {})

    def unconfirmed(self, revision: int) -> tuple[GatewayId, ...]:
        """Gateways that may be at work and did not say that they have taken over `revision` of the
        desired state: who is heard, and who fell silent without a goodbye within `EXPIRED_MS`."""
        behind = {
            gateway
            for gateway, vector in self._vectors.items()
            if vector.applied is None or vector.applied < revision
        }
        silent = {gateway for gateway, gone in self._gone.items() if not gone.left}
        return tuple(sorted(behind | (silent - self._vectors.keys())))

    @property
    def missing(self) -> tuple[GatewayId, ...]:
        """Gateways that may be at work and are not waited for any more: they fell silent without a
        goodbye, longer than `EXPIRED_MS` and at most `MISSING_MS` ago. At most `MISSING_MAX`."""
        return tuple(sorted(self._missing))

    def apply(
        self,
        gateway: GatewayId,
        *,
        incarnation: int,
        seq: int,
        full: bool,
        counts: Iterable[Count],
        now_ms: float,
        applied: int | None = None,
        left: bool = False,
    ) -> tuple[EngineId, ...]:
        """Fold one report. Older ones, and gateways beyond `GATEWAYS_MAX`, change nothing.

        `applied` is the revision that the gateway has taken over, None: it does not say. `left`: it
        ends."""
        vector = self._vectors.get(gateway)
        if vector is None:
            late = (incarnation, seq) <= self._gone.get(gateway, _NEVER)[:2]
            if late or len(self._vectors) >= GATEWAYS_MAX:
                return ()
            vector = self._vectors[gateway] = _Vector(incarnation, seq, now_ms)
            self._missing.pop(gateway, None)
        elif (incarnation, seq) <= (vector.incarnation, vector.seq):
            return ()
        told = {(engine, adapter): max(0, count) for engine, adapter, count in counts}
        gone = vector.counts if full or incarnation > vector.incarnation else {}
        changes = dict.fromkeys(gone, 0) | told
        vector.incarnation, vector.seq, vector.heard_ms = incarnation, seq, now_ms
        vector.applied = applied
        if left:
            return self._drop(gateway, now_ms, left=True)
        return self._set(vector, changes)

    def tell_engine(
        self,
        gateway: GatewayId,
        engine: EngineId,
        counts: Mapping[EngineAdapter, int],
        now_ms: float,
    ) -> tuple[EngineId, ...]:
        """Fold all counts of one gateway on one engine, told beside its reports and newer than the
        last of them; its next report goes on from there."""
        vector = self._vectors.get(gateway)
        if vector is None:
            if len(self._vectors) >= GATEWAYS_MAX:
                return ()
            gone = self._gone.get(gateway, _NEVER)
            last = max(0, gone.incarnation), max(0, gone.seq)
            vector = self._vectors[gateway] = _Vector(*last, heard_ms=now_ms)
            self._missing.pop(gateway, None)
        vector.heard_ms = now_ms
        others = {key: 0 for key in vector.counts if key[0] == engine}
        told = {(engine, adapter): max(0, count) for adapter, count in counts.items()}
        return self._set(vector, others | told)

    def expire(self, now_ms: float) -> tuple[EngineId, ...]:
        """Drop gateways that were silent for too long."""
        changed: set[EngineId] = set()
        for gateway, vector in list(self._vectors.items()):
            if now_ms - vector.heard_ms >= self._silent_ms:
                changed.update(self._drop(gateway, now_ms, left=False))
        # In the order in which they went, so the oldest come first.
        while self._gone:
            gateway, gone = next(iter(self._gone.items()))
            if now_ms - gone.at_ms < EXPIRED_MS and len(self._gone) <= GATEWAYS_MAX:
                break
            del self._gone[gateway]
            if not gone.left and gateway not in self._vectors:
                self._missing[gateway] = gone.at_ms
        while self._missing:
            gateway, at_ms = next(iter(self._missing.items()))
            if now_ms - at_ms < MISSING_MS and len(self._missing) <= MISSING_MAX:
                break
            del self._missing[gateway]
        return tuple(sorted(changed))

    def _drop(self, gateway: GatewayId, now_ms: float, *, left: bool) -> tuple[EngineId, ...]:
        vector = self._vectors.pop(gateway)
        self._gone.pop(gateway, None)
        self._gone[gateway] = _Gone(vector.incarnation, vector.seq, now_ms, left)
        return self._set(vector, dict.fromkeys(vector.counts, 0))

    def _set(
        self, vector: _Vector, changes: Mapping[tuple[EngineId, EngineAdapter], int]
    ) -> tuple[EngineId, ...]:
        changed: set[EngineId] = set()
        for key, count in changes.items():
            before = vector.counts.pop(key, 0)
            if count:
                vector.counts[key] = count
            if count == before:
                continue
            engine, adapter = key
            sums = self._sums.setdefault(engine, {})
            total = sums.pop(adapter, 0) + count - before
            if total:
                sums[adapter] = total
            if not sums:
                del self._sums[engine]
            changed.add(engine)
        return tuple(sorted(changed))
