"""What an engine with Axiom's extension says of itself, unasked, the moment it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineResidency


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWord:
    """What one data-parallel rank holds. A copy whose name was unloaded is `(number)`."""

    rank: int
    residency: EngineResidency
    pinned: frozenset[EngineAdapter]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWord:
    """What an engine says of itself. `lives` name its processes: none of them lives on in an engine
    that started anew. `in_flight` are all its requests by adapter (BASE among them), those that
    wait included. `registered`: its adapter names with their paths; None while nobody told them.
    """

    ranks: tuple[RankWord, ...]
    lives: frozenset[str]
    in_flight: Mapping[EngineAdapter, int]
    registered: Mapping[EngineAdapter, str] | None

    @property
    def residency(self) -> EngineResidency:
        """What every rank holds, each adapter in the worst tier of all; in the first rank's order.

        A request goes to any rank, so an adapter is as near as where it is farthest.
        """
        first, *others = (rank.residency for rank in self.ranks)
        if not others:
            return first
        in_hbm = set(first.hbm).intersection(*(other.hbm for other in others))
        copied = {*first.hbm, *first.host}.intersection(
            *({*other.hbm, *other.host} for other in others)
        )
        return EngineResidency(
            hbm=tuple(name for name in first.hbm if name in in_hbm),
            host=tuple(name for name in first.host if name in copied),
            hbm_slots=min(first.hbm_slots, *(other.hbm_slots for other in others)),
            host_slots=min(first.host_slots, *(other.host_slots for other in others)),
        )

    @property
    def pinned(self) -> frozenset[EngineAdapter]:
        """Adapters that some rank has pinned."""
        return frozenset[EngineAdapter]().union(*(rank.pinned for rank in self.ranks))


class EngineExtension(Protocol):
    """The extension of one engine, which may be absent, off or silent for a while."""

    @property
    def unsupported(self) -> str | None:
        """Why it is off, in its own words; None while it is on, or was never heard."""
        ...

    def open(self, on_word: Callable[[], None]) -> None:
        """Begin to listen; `on_word` is called in the loop after each change. OSError when there is
        no way to listen. The engine need not be there yet."""
        ...

    def word(self, now_ms: float) -> EngineWord | None:
        """The engine's word; None while it has none that one could go by: not heard, off, silent
        for too long."""
        ...

    def needs_whole(self, now_ms: float) -> bool:
        """Whether something was lost or not heard yet, so that `ask` would help."""
        ...

    def forget(self) -> None:
        """What was heard is of a process that is gone."""
        ...

    async def ask(self) -> None:
        """Have the engine tell the whole. UnavailableError when it does not answer in time,
        EngineCallError when what it answers is no word of the extension."""
        ...

    async def close(self) -> None:
        """Listen no more, and let go of connections."""
        ...
