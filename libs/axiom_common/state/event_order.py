"""The order of an engine's event messages: what follows, what came before, what was lost.

An engine numbers its messages from 0 in each of its lives, and its last ones can be asked for
again. Numbers alone don't tell lives apart, so what a message said is remembered beside its number.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

REMEMBERED_MAX = 32_768
"""Messages remembered; engines keep 10,000 to be asked for, and as many may wait to be read."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last message that was folded: its number, and a digest of it."""

    seq: int
    digest: int


class Verdict(StrEnum):
    """What a message is, beside the last one folded."""

    NEXT = "next"
    SEEN = "seen"
    GAP = "gap"
    RESTARTED = "restarted"


class EventOrder:
    """Judges messages by number and digest. `position`: the last one folded, None before any."""

    def __init__(self, position: Position | None = None) -> None:
        self.position = position
        self._digests: OrderedDict[int, int] = OrderedDict()
        if position is not None:
            self._digests[position.seq] = position.digest

    def judge(self, seq: int, digest: int) -> Verdict:
        """What the message is; nothing changes."""
        if self.position is None:
            return Verdict.NEXT if seq == 0 else Verdict.GAP
        if seq == self.position.seq + 1:
            return Verdict.NEXT
        if seq > self.position.seq:
            return Verdict.GAP
        return Verdict.SEEN if self._digests.get(seq) == digest else Verdict.RESTARTED

    def took(self, seq: int, digest: int) -> None:
        """The message was folded: what follows it is next."""
        self.position = Position(seq, digest)
        self._digests[seq] = digest
        if len(self._digests) > REMEMBERED_MAX:
            self._digests.popitem(last=False)

    def forget(self) -> None:
        """Nothing is known of the engine any more."""
        self.position = None
        self._digests.clear()
