"""The fleet: every engine that a gateway knows, its own requests on them, and its decisions.

Rules write what they say of an engine when it changed (`set_row`); a request only combines that
with what is in flight. Two implement it, choice for choice and bit for bit: `FleetTwin` in numpy,
the reference, and a compiled one. One writer: an event loop, or a simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from axiom_common.model.decision import Candidate, Query, Refused
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.policy.decided import Decided
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.profile import Profile
from axiom_common.state.prefix_index import PrefixIndex

KEPT_MAX = 256
"""Of what is kept for asks alike: sizes and ranks are few, but clients' names choose among them."""


class Prompt(NamedTuple):
    """A prompt's text and who knows which engines hold it: `holders`, where engines are the fleet's
    numbers. `seed` is the scope's. So many bytes of the prompt follow, of which nothing is known.
    A compiled fleet takes a compiled index."""

    holders: PrefixIndex
    seed: int
    text: bytes
    beyond_bytes: int = 0


class Fleet(Protocol):
    """All engines; `choose` asks, `decide` asks and books.

    Without a `prompt` all of a query's `prompt_tokens` are taken for not held anywhere. A profile
    that is not known is a KeyError.
    """

    def set_profiles(self, profiles: Mapping[str, Profile]) -> None:
        """These are all that decisions may name from now on."""

    def set_row(self, row: EngineRow) -> None:
        """Add an engine or replace what the rules said of it. Its bookings stay."""

    def remove(self, engine: EngineId) -> None:
        """The engine takes no more requests. What peers have there is forgotten, but own bookings
        last until their requests end, and count again if the engine comes back."""

    def number(self, engine: EngineId) -> int | None:
        """The engine's number in prefix indexes, for as long as it is there; None: it is not, or
        there are more than an index can number.

        Whoever removes an engine clears its number in the indexes: the next one may get it.
        """

    def set_peer_load(self, engine: EngineId, counts: Mapping[EngineAdapter, int]) -> None:
        """Replace what others have in flight on an engine: peers' vectors and foreign load.

        Counts of 0 or less are dropped. An engine that has no row is ignored.
        """

    def choose(
        self, query: Query, profile: str, now_ms: float, prompt: Prompt | None = None
    ) -> Decided:
        """Decide without booking. Pure: the same state and arguments give the same decision."""

    def decide(
        self, query: Query, profile: str, now_ms: float, prompt: Prompt | None = None
    ) -> Decided:
        """Decide and book the winner's load at once, so that the next decision sees it."""

    def first_token(self, booking: int) -> None:
        """The request streams: its uncached tokens and its load leave the books."""

    def release(self, booking: int) -> None:
        """The request ended, however. Releasing twice does nothing."""

    def in_flight(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        """This gateway's own vector: requests by engine and adapter, without zeros."""

    def in_flight_on(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        """This gateway's own requests on one engine by adapter, without zeros."""

    def explain(
        self,
        query: Query,
        profile: str,
        now_ms: float,
        prompt: Prompt | None = None,
        *,
        after: str = "",
        limit: int | None = None,
    ) -> tuple[Candidate | Refused, ...]:
        """What `choose` would see of every engine now, by engine id: those behind `after`, at most
        `limit`."""
