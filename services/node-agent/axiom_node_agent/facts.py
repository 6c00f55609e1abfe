"""What an agent tells of one engine's facts, and when: numbers, messages, snapshots. No I/O here.

| what | when |
| --- | --- |
| changes | at most each `TICK_MS`; an incarnation begins with the whole, as changes |
| snapshot | to who asks: once for all who ask within `GATHER_MS`, at most each `SNAPSHOT_GAP_MS` |
| stand | `STAND_EVERY_MS` after the last message, so that a last one that got lost shows |

Who misses a number asks for a snapshot, so a message that the bus did not take is not told again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN, FactBatch, FactChanges
from axiom_common.wire.schemas import FactKind, FactReport

TICK_MS = 50.0
STAND_EVERY_MS = 2_000.0
GATHER_MS = 250.0
SNAPSHOT_GAP_MS = 1_000.0
PART_BYTES = 480_000
"""Facts in one message, which stays below 512 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCut:
    """An engine's facts at one moment, made with the tokenizer `revision`: what changed since the
    last cut, and, if asked for, all that holds."""

    revision: str
    changes: FactChanges
    whole: FactChanges | None = None


class EngineFacts:
    """One engine's numbering. It outlives the engine's mirror: numbers never begin anew within an
    incarnation. `anew`: the next cut has to be of all that holds, as changes."""

    def __init__(self, region: RegionId, node: NodeId, engine: EngineId) -> None:
        self.anew = True
        self._region = region
        self._node = node
        self._engine = engine
        self._revision = ""
        self._incarnation = 0
        self._seq = 0
        self._told_ms = float("-inf")
        self._snapshot_ms = float("-inf")
        self._wanted_ms: float | None = None

    def begin(self, incarnation: int) -> None:
        """The agent tells as `incarnation` now; the same one again is none."""
        if incarnation != self._incarnation:
            self.anew, self._incarnation, self._seq, self._wanted_ms = True, incarnation, 0, None

    def want(self, now_ms: float) -> None:
        """Somebody asks for a snapshot; who asks while one is on its way joins in."""
        if self._wanted_ms is None:
            self._wanted_ms = max(now_ms + GATHER_MS, self._snapshot_ms + SNAPSHOT_GAP_MS)

    def wants_whole(self, now_ms: float) -> bool:
        """Whether a snapshot is due, for which the next cut has to have the whole."""
        return self._wanted_ms is not None and now_ms >= self._wanted_ms

    def messages(self, cut: FactCut, now_ms: float) -> list[FactReport]:
        """What to send for a cut, in this order."""
        self.anew, self._revision = False, cut.revision
        messages = list(self._changes(cut.changes))
        if cut.whole is not None:
            messages += self._snapshot(cut.whole)
            self._snapshot_ms, self._wanted_ms = now_ms, None
        if not messages and self._seq and now_ms >= self._told_ms + STAND_EVERY_MS:
            messages = [self._report(FactKind.STAND)]
        if messages:
            self._told_ms = now_ms
        return messages

    def gone(self, now_ms: float) -> list[FactReport]:
        """What to send when nothing is told of the engine any more."""
        self._wanted_ms = None
        if self.anew or not self._seq:
            return []
        self.anew = True
        self._told_ms = now_ms
        return list(self._changes(FactChanges(cleared=True)))

    def _changes(self, changes: FactChanges) -> Iterator[FactReport]:
        for part in in_parts(changes) if changes else ():
            self._seq += 1
            yield self._report(FactKind.CHANGES, part)

    def _snapshot(self, whole: FactChanges) -> Iterator[FactReport]:
        parts = in_parts(whole)
        for number, part in enumerate(parts):
            yield self._report(FactKind.SNAPSHOT, part, number, len(parts))

    def _report(
        self, kind: FactKind, told: FactChanges | None = None, part: int = 0, parts: int = 1
    ) -> FactReport:
        told = told or FactChanges()
        return FactReport(
            kind=kind,
            region=self._region,
            node=self._node,
            incarnation=self._incarnation,
            engine=self._engine,
            revision=self._revision,
            seq=self._seq,
            part=part,
            parts=parts,
            cleared=told.cleared and kind is FactKind.CHANGES,
            hbm=told.hbm,
            any_tier=told.any_tier,
        )


def in_parts(changes: FactChanges, bytes_max: int = PART_BYTES) -> list[FactChanges]:
    """Changes of at most so many bytes of facts, at least one; what is gone comes first, and only
    the first is `cleared`."""
    parts: list[list[bytes]] = [[b"", b"", b"", b""]]
    room = bytes_max
    told = (
        (changes.any_tier.withdrawn, WITHDRAWN.size),
        (changes.hbm.withdrawn, WITHDRAWN.size),
        (changes.hbm.announced, ANNOUNCED.size),
        (changes.any_tier.announced, ANNOUNCED.size),
    )
    for place, (facts, size) in enumerate(told):
        start = 0
        while start < len(facts):
            if room < size:
                parts.append([b"", b"", b"", b""])
                room = bytes_max
            end = min(len(facts), start + room // size * size)
            parts[-1][place] = facts[start:end]
            room -= end - start
            start = end
    return [
        FactChanges(
            cleared=changes.cleared and not number,
            hbm=FactBatch(in_hbm, left_hbm),
            any_tier=FactBatch(in_any, gone),
        )
        for number, (gone, left_hbm, in_hbm, in_any) in enumerate(parts)
    ]
