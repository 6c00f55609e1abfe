"""The fleet: every engine that a gateway knows, its own requests on them, and its decisions.

The shell over the kernel: a query becomes an `Ask`, the kernel's `Choice` a `Decision`, and the
winner's load a booking, which the next question sees. One writer: an event loop, or a simulator.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from axiom_common.model.decision import Candidate, Decision, LoadKind, Query, Refused
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.policy import kernel
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.fleet_rows import FleetRows
from axiom_common.policy.load_times import assumed_size_bytes
from axiom_common.policy.profile import Profile
from axiom_common.policy.registry import SCORERS
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.scorers.adapter_affinity import SAFE_EVICTION, Held
from axiom_common.policy.view import REASONS, ROLE_CODE, Ask, Rows, Wanted
from axiom_common.state.bookings import Bookings
from axiom_common.state.spread import Spread

SHOWN_MAX = 3
"""The winner and two runners-up."""

_SCORERS = tuple(SCORERS.values())

_LOAD_KIND = {
    Held.RESIDENT: LoadKind.NONE,
    Held.LOADING: LoadKind.JOIN,
    Held.HOST: LoadKind.FROM_HOST,
    Held.NOT: LoadKind.COLD,
}


class Fleet:
    """All engines, as columns; `choose` asks, `decide` asks and books."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._bookings = Bookings()
        self._rows = FleetRows(self._bookings)
        self._spread = Spread()
        self._turns: dict[tuple[str, int], int] = {}
        self.set_profiles(profiles)

    def set_profiles(self, profiles: Mapping[str, Profile]) -> None:
        """These are all that decisions may name from now on."""
        self._profiles = dict(profiles)
        self._weights = {
            name: np.array([[weight] for weight in profile.weight_of_each])
            for name, profile in profiles.items()
        }
        self._turns = {turn: at for turn, at in self._turns.items() if turn[0] in profiles}

    def set_row(self, row: EngineRow) -> None:
        """Add an engine or replace what the rules said of it. Its bookings stay."""
        self._rows.set(row)

    def remove(self, engine: EngineId) -> None:
        """The engine takes no more requests. What peers have there is forgotten, but own bookings
        last until their requests end, and count again if the engine comes back."""
        self._rows.remove(engine)

    def set_peer_load(self, engine: EngineId, counts: Mapping[EngineAdapter, int]) -> None:
        """Replace what others have in flight on an engine: peers' vectors and foreign load.

        Counts of 0 or less are dropped. An engine that has no row is ignored.
        """
        self._rows.set_peers(engine, counts)

    def choose(self, query: Query, profile: str, now_ms: float) -> Decision:
        """Decide without booking. Pure: the same state and arguments give the same decision."""
        choice = self._choose(query, profile, now_ms)
        return self._decision(choice, self._candidates(choice, choice.ranked[:SHOWN_MAX]))

    def decide(self, query: Query, profile: str, now_ms: float) -> Decision:
        """Decide and book the winner's load at once, so that the next decision sees it."""
        choice = self._choose(query, profile, now_ms)
        # Before it is booked: the columns that the choice refers to count what is in flight.
        shown = self._candidates(choice, choice.ranked[:SHOWN_MAX])
        booking = self._book(choice, query.adapter) if shown else 0
        return self._decision(choice, shown, booking)

    def first_token(self, booking: int) -> None:
        """The request streams: its uncached tokens and its load leave the books."""
        changed = self._bookings.first_token(booking)
        if changed is not None:
            self._rows.booked(*changed)

    def release(self, booking: int) -> None:
        """The request ended, however. Releasing twice does nothing."""
        changed = self._bookings.release(booking)
        if changed is not None:
            self._rows.booked(*changed)

    def in_flight(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        """This gateway's own vector: requests by engine and adapter, without zeros."""
        return self._bookings.in_flight()

    def in_flight_on(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        """This gateway's own requests on one engine by adapter, without zeros."""
        return {a: books.requests for a, books in self._bookings.on(engine).adapters.items()}

    def explain(
        self,
        query: Query,
        profile: str,
        now_ms: float,
        *,
        after: str = "",
        limit: int | None = None,
    ) -> tuple[Candidate | Refused, ...]:
        """What `choose` would see of every engine now, by engine id: those behind `after`, at most
        `limit`."""
        choice = self._choose(query, profile, now_ms)
        page = [(engine, at) for engine, at in self._rows.engines() if engine > after][:limit]
        candidates = np.array([at for _, at in page if choice.refusals[at] == 0], np.intp)
        seen = {shown.engine: shown for shown in self._candidates(choice, candidates)}
        return tuple(
            seen.get(engine) or Refused(engine=engine, reason=REASONS[choice.refusals[at] - 1])
            for engine, at in page
        )

    def _choose(self, query: Query, profile: str, now_ms: float) -> kernel.Choice:
        adapter, rows = query.adapter, self._rows
        is_base = adapter == BASE
        base_model = stable_hash(query.base_model)
        wanted = Wanted(base_model, ROLE_CODE[query.role], None if is_base else query.rank)
        size_bytes = query.size_bytes or assumed_size_bytes(query.rank)
        ask = Ask(
            wanted=wanted,
            standing=rows.standing(wanted),
            prompt_tokens=query.prompt_tokens,
            affinity_hash=query.affinity_hash,
            request_hash=query.request_hash,
            now_ms=now_ms,
            profile=self._profiles[profile],
            holders=None if is_base else rows.holders(adapter),
            links=None if is_base else rows.links(size_bytes),
            failed=None if is_base else rows.failed(adapter),
            closed=None if is_base else rows.closed(adapter),
            excluded=rows.of(query.excluded),
            weights=self._weights[profile],
            waited_ms=0.0 if is_base else self._spread.waited_ms(adapter, now_ms),
            turn=self._turns.get((profile, base_model), 0),
        )
        return kernel.choose(rows.view, ask)

    def _book(self, choice: kernel.Choice, adapter: EngineAdapter) -> int:
        """Book the winner of a choice; returns the booking's id."""
        prospect, ask, at = choice.prospect, choice.prospect.ask, int(choice.ranked[0])
        engine = self._rows.engine(at)
        loads = prospect.held[at] < Held.LOADING
        if loads:
            self._spread.clear(adapter)
        elif adapter != BASE:
            self._spread.pay(adapter, float(prospect.view.delay_ms[at]), ask.now_ms)
        self._turns[ask.profile.name, ask.wanted.base_model] = int(prospect.view.identity[at])
        booking = self._bookings.book(
            engine,
            adapter,
            tokens=ask.prompt_tokens,
            ready_at_ms=ask.now_ms + float(prospect.load_ms[at]) if loads else None,
        )
        self._rows.booked(engine, adapter)
        return booking

    def _decision(
        self, choice: kernel.Choice, shown: list[Candidate], booking: int = 0
    ) -> Decision:
        refusals = {}
        if np.count_nonzero(choice.refusals):
            counts = np.bincount(choice.refusals).tolist()
            refusals = {r: count for r, count in zip(REASONS, counts[1:], strict=False) if count}
        profile = choice.prospect.ask.profile.name
        if not shown:
            return Decision(profile=profile, winner=None, refusals=refusals)
        at, view = choice.ranked[0], choice.prospect.view
        return Decision(
            profile=profile,
            winner=shown[0],
            runners_up=tuple(shown[1:]),
            load=_LOAD_KIND[int(choice.prospect.held[at])],
            refusals=refusals,
            booking=booking,
            stale=bool(view.stale[at] or view.unheard[at]),
        )

    def _candidates(self, choice: kernel.Choice, rows: Rows) -> list[Candidate]:
        prospect = choice.prospect
        candidates_us = prospect.cost_us[choice.refusals == 0]
        worst_us = int(np.maximum.reduce(candidates_us, initial=0)) or 1
        shown = []
        for at in rows.tolist():
            cost_us = prospect.cost_us.item(at)
            shown.append(
                Candidate(
                    engine=self._rows.engine(at),
                    tier=1 if prospect.affinity.item(at) > SAFE_EVICTION else 2,
                    cost_ms=cost_us / 1000.0,
                    composite=1.0 - cost_us / worst_us,
                    terms_ms=tuple(prospect.terms_ms[:, at].tolist()),
                    values=tuple([score(prospect, at) for score in _SCORERS]),
                )
            )
        return shown
