"""The fleet in numpy: the reference of `Fleet`, and what runs where nothing is compiled.

The shell over the kernel: a query becomes an `Ask`, the kernel's `Choice` a `Decided`, and the
winner's load a booking, which the next question sees.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from axiom_common.model.decision import Candidate, LoadKind, Query, Refused
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.policy import kernel
from axiom_common.policy.decided import LOAD_KIND, SHOWN_MAX, Decided, candidate, packed
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.fleet import Prompt
from axiom_common.policy.fleet_rows import FleetRows
from axiom_common.policy.load_times import assumed_size_bytes
from axiom_common.policy.profile import Profile
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.scorers.adapter_affinity import Held
from axiom_common.policy.view import REASONS, ROLE_CODE, VACANT_CODE, Ask, Wanted
from axiom_common.state.bookings import Bookings
from axiom_common.state.prefix_index import ENGINES_MAX
from axiom_common.state.spread import Spread


class FleetTwin:
    """`Fleet`, all engines as columns."""

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
        self._rows.set(row)

    def remove(self, engine: EngineId) -> None:
        self._rows.remove(engine)

    def number(self, engine: EngineId) -> int | None:
        at = self._rows.at(engine)
        return at if at is not None and at < ENGINES_MAX else None

    def set_peer_load(self, engine: EngineId, counts: Mapping[EngineAdapter, int]) -> None:
        self._rows.set_peers(engine, counts)

    def choose(
        self, query: Query, profile: str, now_ms: float, prompt: Prompt | None = None
    ) -> Decided:
        return self._decided(self._choose(query, profile, now_ms, prompt))

    def decide(
        self, query: Query, profile: str, now_ms: float, prompt: Prompt | None = None
    ) -> Decided:
        choice = self._choose(query, profile, now_ms, prompt)
        # Before it is booked: the columns that the choice refers to count what is in flight.
        decided = self._decided(choice)
        if decided.engine is None:
            return decided
        return decided._replace(booking=self._book(choice, query.adapter))

    def first_token(self, booking: int) -> None:
        changed = self._bookings.first_token(booking)
        if changed is not None:
            self._rows.booked(*changed)

    def release(self, booking: int) -> None:
        changed = self._bookings.release(booking)
        if changed is not None:
            self._rows.booked(*changed)

    def in_flight(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        return self._bookings.in_flight()

    def in_flight_on(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        return {a: books.requests for a, books in self._bookings.on(engine).adapters.items()}

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
        choice = self._choose(query, profile, now_ms, prompt)
        page = [(engine, at) for engine, at in self._rows.engines() if engine > after][:limit]
        wait_cap_ms, worst_us = self._profiles[profile].wait_cap_ms, _worst_us(choice)
        return tuple(
            Refused(engine=engine, reason=REASONS[choice.refusals[at] - 1])
            if choice.refusals[at]
            else candidate(kernel.seen(choice.prospect, at, engine), wait_cap_ms, worst_us)
            for engine, at in page
        )

    def _choose(
        self, query: Query, profile: str, now_ms: float, prompt: Prompt | None
    ) -> kernel.Choice:
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
            credit=None
            if prompt is None
            else kernel.credit(len(rows.view.identity), query.prompt_tokens, prompt),
        )
        return kernel.choose(rows.view, ask, SHOWN_MAX)

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
        credit = ask.credit
        booking = self._bookings.book(
            engine,
            adapter,
            tokens=int(credit.uncached_tokens[at]) if credit else ask.prompt_tokens,
            ready_at_ms=ask.now_ms + float(prospect.load_ms[at]) if loads else None,
        )
        self._rows.booked(engine, adapter)
        return booking

    def _decided(self, choice: kernel.Choice) -> Decided:
        prospect, profile = choice.prospect, choice.prospect.ask.profile
        counts = np.bincount(choice.refusals, minlength=VACANT_CODE + 1)[1:VACANT_CODE].tolist()
        rows = [*choice.ranked[:SHOWN_MAX].tolist(), *choice.next.tolist()]
        shown = [kernel.seen(prospect, at, self._rows.engine(at)) for at in rows]
        parts = packed(profile.wait_cap_ms, _worst_us(choice), counts, shown)
        if not shown:
            return Decided(profile.name, None, LoadKind.NONE, 0, False, parts)
        at, view = rows[0], prospect.view
        return Decided(
            profile=profile.name,
            engine=shown[0].engine,
            load=LOAD_KIND[shown[0].held],
            booking=0,
            stale=bool(view.stale[at] or view.unheard[at]),
            parts=parts,
        )


def _worst_us(choice: kernel.Choice) -> int:
    """The dearest candidate's cost, at least 1."""
    costs_us = choice.prospect.cost_us[choice.refusals == 0]
    return int(np.maximum.reduce(costs_us, initial=0)) or 1
