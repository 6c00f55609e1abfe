"""One engine's facts as one listener hears them: what to do with each message of its agent.

An agent numbers what it tells of an engine from 1 within its incarnation, so a listener knows when
something is lacking: a number was left out, or the agent stands at a higher one than was heard. A
snapshot makes it whole again: all that held at the number where it was cut, in parts, with changes
after that number between them.

Until then what was told goes on counting, for most of it still holds, and changes that come are
taken as well: each states facts that stand alone. Only a new incarnation, or the agent's end, makes
everything void.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Deed(StrEnum):
    """What to do on the index: all that the engine holds goes; the message's changes are applied;
    a snapshot begins, goes on with the message, ends."""

    CLEAR = "clear"
    APPLY = "apply"
    BEGIN = "begin"
    PART = "part"
    END = "end"


Deeds = tuple[Deed, ...]


@dataclass(slots=True)
class _Arriving:
    """A snapshot of which `following` is the next part."""

    seq: int
    parts: int
    following: int = 0


class FactStream:
    """Folds the messages of one engine; each call returns what to do, in order.

    `whole`: all that the agent told is known. `reached`: the highest number heard of.
    """

    def __init__(self) -> None:
        self.incarnation: int | None = None
        self.reached = 0
        self.whole = False
        self._arriving: _Arriving | None = None
        self._holds = False

    @property
    def lacks(self) -> bool:
        """Whether a snapshot has to be asked for, if none is on its way."""
        return self.incarnation is not None and not self.whole

    @property
    def arriving(self) -> bool:
        """Whether a part of a snapshot came, and not all of it."""
        return self._arriving is not None

    def began(self, incarnation: int) -> Deeds:
        """The agent is in this incarnation, of which nothing was told up to number 0."""
        if self.incarnation is not None and incarnation <= self.incarnation:
            return ()
        self.incarnation, self.reached, self.whole, self._arriving = incarnation, 0, True, None
        return self._clear()

    def changes(self, incarnation: int, seq: int, *, cleared: bool) -> Deeds:
        """Changes with this number; `cleared`: what they say is all that holds."""
        deeds = self.began(incarnation)
        if incarnation != self.incarnation or seq <= self.reached:
            return deeds
        follows = seq == self.reached + 1
        self.reached = seq
        if cleared:
            deeds += self._clear()
            self.whole, self._arriving = True, None
        elif not follows:
            self.whole, self._arriving = False, None
        self._holds = True
        return (*deeds, Deed.APPLY)

    def stand(self, incarnation: int, seq: int) -> Deeds:
        """The agent told everything up to this number."""
        deeds = self.began(incarnation)
        if incarnation == self.incarnation and seq > self.reached:
            self.reached, self.whole, self._arriving = seq, False, None
        return deeds

    def snapshot(self, incarnation: int, seq: int, part: int, parts: int) -> Deeds:
        """Part `part` of `parts` of what held at this number."""
        deeds = self.began(incarnation)
        if incarnation != self.incarnation or (self.whole and seq <= self.reached):
            return deeds
        if part == 0 and seq >= self.reached:
            self.reached, self.whole = seq, False
            self._arriving = _Arriving(seq, parts)
            deeds += (Deed.BEGIN,)
        arriving = self._arriving
        if arriving is None or (arriving.seq, arriving.parts) != (seq, parts):
            return deeds
        if part != arriving.following:
            if part > arriving.following:
                self._arriving = None
            return deeds
        arriving.following += 1
        self._holds = True
        if arriving.following < parts:
            return (*deeds, Deed.PART)
        self.whole, self._arriving = True, None
        return (*deeds, Deed.PART, Deed.END)

    def lost(self) -> Deeds:
        """What is held is not known any more: the agent died, or a snapshot did not fit."""
        self.whole, self._arriving = False, None
        return self._clear()

    def _clear(self) -> Deeds:
        held, self._holds = self._holds, False
        return (Deed.CLEAR,) if held else ()
