"""The fleet: every engine that a gateway knows, its own requests on them, and its decisions.

The shell over the kernel. Rows and bookings become columns when they change; a query becomes an
`Ask`, and the kernel's `Choice` a `Decision`. One writer: an event loop, or a simulator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from axiom_common.model.adapter import Residency
from axiom_common.model.decision import Candidate, Decision, LoadKind, Query, Refused, Term
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.policy import kernel
from axiom_common.policy.columns import EngineRow, Profile
from axiom_common.policy.holder_index import HolderIndex
from axiom_common.policy.load_times import assumed_size_bytes
from axiom_common.policy.occupancy import holding, loads_done_at_ms, occupancy
from axiom_common.policy.registry import SCORERS
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.row_writer import vacate, write_in_flight, write_rules
from axiom_common.policy.scorers.adapter_affinity import SAFE_EVICTION, Held
from axiom_common.policy.view import (
    REASONS,
    ROLE_CODE,
    Ask,
    Bools,
    Rows,
    first_rows,
    resized,
    vacant_view,
)
from axiom_common.state.bookings import Bookings
from axiom_common.state.spread import Spread

ROWS_MIN = 16
SHOWN_MAX = 3
"""The winner and two runners-up."""

AFFINITY = SCORERS[Term.ADAPTER_LOAD][0]

_LOAD_KIND = {
    Held.RESIDENT: LoadKind.NONE,
    Held.LOADING: LoadKind.JOIN,
    Held.HOST: LoadKind.FROM_HOST,
    Held.NOT: LoadKind.COLD,
}


@dataclass(slots=True)
class _Member:
    """An engine with a row: where it stands, what the rules wrote, what it holds by name, and
    which of that booked loads are about to evict."""

    at: int
    row: EngineRow
    residents: dict[EngineAdapter, Residency]
    evicted: frozenset[EngineAdapter] = frozenset()


class Fleet:
    """All engines, as columns; `choose` asks, `decide` asks and books."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = dict(profiles)
        self._weights = {
            p.name: np.array([[p.weights[term]] for term in Term]) for p in profiles.values()
        }
        self._members: dict[EngineId, _Member] = {}
        self._engine_at: list[EngineId] = []
        self._vacant: list[int] = []
        self._columns = vacant_view(ROWS_MIN)
        self._view = first_rows(self._columns, 0)
        self._nowhere = np.zeros(0, np.bool_)
        self._holders = HolderIndex()
        self._failed: dict[EngineAdapter, set[int]] = {}
        self._closed: dict[EngineId, _Member] = {}
        self._bookings = Bookings()
        self._peers: dict[EngineId, dict[EngineAdapter, int]] = {}
        self._spread = Spread()
        self._turns: dict[tuple[str, int], int] = {}

    def set_row(self, row: EngineRow) -> None:
        """Add an engine or replace what the rules said of it. Its bookings stay."""
        residents = {resident.adapter: resident for resident in row.residents}
        member = self._members.get(row.engine)
        if member is None:
            member = _Member(self._take_row(row.engine), row, residents)
            self._members[row.engine] = member
            changed = [*residents, *self._bookings.on(row.engine).adapters]
        else:
            changed = _held_otherwise(member.residents, residents)
            self._unmark_failures(member)
            member.row, member.residents = row, residents
        write_rules(self._columns, member.at, row)
        self._write_in_flight(member)
        for adapter in changed:
            self._index(member, adapter)
        for name in row.failures:
            self._failed.setdefault(name, set()).add(member.at)
        if row.loads_allowed:
            self._closed.pop(row.engine, None)
        else:
            self._closed[row.engine] = member

    def remove(self, engine: EngineId) -> None:
        """The engine takes no more requests: its row is free. What peers have there is forgotten,
        but own bookings last until their requests end, and count again if the engine comes back.
        """
        member = self._members.pop(engine, None)
        if member is None:
            return
        booked = self._bookings.on(engine).adapters
        for adapter in {**member.residents, **booked, **self._peers.pop(engine, {})}:
            self._holders.set(adapter, member.at, None)
        self._unmark_failures(member)
        self._closed.pop(engine, None)
        vacate(self._columns, member.at)
        self._vacant.append(member.at)

    def set_peer_load(self, engine: EngineId, counts: Mapping[EngineAdapter, int]) -> None:
        """Replace what others have in flight on an engine: peers' vectors and foreign load.

        Counts of 0 or less are dropped. An engine that has no row is ignored.
        """
        member = self._members.get(engine)
        if member is None:
            return
        before = self._peers.pop(engine, {})
        now = {adapter: count for adapter, count in counts.items() if count > 0}
        if now:
            self._peers[engine] = now
        self._write_in_flight(member)
        for adapter in before.keys() ^ now.keys():
            self._index(member, adapter)

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
            self._books_changed(*changed)

    def release(self, booking: int) -> None:
        """The request ended, however. Releasing twice does nothing."""
        changed = self._bookings.release(booking)
        if changed is not None:
            self._books_changed(*changed)

    def in_flight(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        """This gateway's own vector: requests by engine and adapter, without zeros."""
        return self._bookings.in_flight()

    def in_flight_on(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        """This gateway's own requests on one engine by adapter, without zeros."""
        return {a: books.requests for a, books in self._bookings.on(engine).adapters.items()}

    def explain(self, query: Query, profile: str, now_ms: float) -> tuple[Candidate | Refused, ...]:
        """What `choose` would see of every engine now, by engine id."""
        choice = self._choose(query, profile, now_ms)
        candidates = np.flatnonzero(choice.refusals == 0)
        seen = {shown.engine: shown for shown in self._candidates(choice, candidates)}
        return tuple(
            seen.get(engine)
            or Refused(engine=engine, reason=REASONS[choice.refusals[member.at] - 1])
            for engine, member in sorted(self._members.items())
        )

    def _choose(self, query: Query, profile: str, now_ms: float) -> kernel.Choice:
        adapter = query.adapter
        base_model = stable_hash(query.base_model)
        closed = [m.at for m in self._closed.values() if adapter not in m.row.registered]
        excluded = [self._members[e].at for e in query.excluded if e in self._members]
        ask = Ask(
            base_model=base_model,
            role=ROLE_CODE[query.role],
            rank=query.rank,
            size_bytes=query.size_bytes or assumed_size_bytes(query.rank),
            prompt_tokens=query.prompt_tokens,
            affinity_hash=query.affinity_hash,
            request_hash=query.request_hash,
            now_ms=now_ms,
            profile=self._profiles[profile],
            holders=None if adapter == BASE else self._holders.holders(adapter),
            failed=self._mask(self._failed.get(adapter, ())),
            closed=self._mask(closed),
            excluded=self._mask(excluded),
            weights=self._weights[profile],
            waited_ms=self._spread.waited_ms(adapter, now_ms),
            turn=self._turns.get((profile, base_model), 0),
        )
        return kernel.choose(self._view, ask)

    def _book(self, choice: kernel.Choice, adapter: EngineAdapter) -> int:
        """Book the winner of a choice; returns the booking's id."""
        prospect, ask, at = choice.prospect, choice.prospect.ask, int(choice.ranked[0])
        engine = self._engine_at[at]
        loads = prospect.held[at] < Held.LOADING
        if loads:
            self._spread.clear(adapter)
        elif adapter != BASE:
            self._spread.pay(adapter, float(prospect.view.delay_ms[at]), ask.now_ms)
        self._turns[ask.profile.name, ask.base_model] = int(self._columns.identity[at])
        booking = self._bookings.book(
            engine,
            adapter,
            tokens=ask.prompt_tokens,
            ready_at_ms=ask.now_ms + float(prospect.load_ms[at]) if loads else None,
        )
        self._books_changed(engine, adapter)
        return booking

    def _decision(
        self, choice: kernel.Choice, shown: list[Candidate], booking: int = 0
    ) -> Decision:
        counts = np.bincount(choice.refusals).tolist()
        refusals = {
            reason: count for reason, count in zip(REASONS, counts[1:], strict=False) if count
        }
        profile = choice.prospect.ask.profile.name
        if not shown:
            return Decision(profile=profile, winner=None, refusals=refusals)
        at = choice.ranked[0]
        return Decision(
            profile=profile,
            winner=shown[0],
            runners_up=tuple(shown[1:]),
            load=_LOAD_KIND[int(choice.prospect.held[at])],
            refusals=refusals,
            booking=booking,
            stale=bool(self._view.stale[at] or self._view.unheard[at]),
        )

    def _candidates(self, choice: kernel.Choice, rows: Rows) -> list[Candidate]:
        prospect = choice.prospect
        scores = {name: score(prospect)[rows].tolist() for name, score in SCORERS.values()}
        worst_us = int(prospect.cost_us[choice.refusals == 0].max(initial=0)) or 1
        costs_us = prospect.cost_us[rows].tolist()
        terms_ms = prospect.terms_ms[:, rows].T.tolist()
        return [
            Candidate(
                engine=self._engine_at[at],
                tier=1 if scores[AFFINITY][i] > SAFE_EVICTION else 2,
                cost_ms=costs_us[i] / 1000.0,
                composite=1.0 - costs_us[i] / worst_us,
                terms_ms=tuple(terms_ms[i]),
                scores={name: values[i] for name, values in scores.items()},
            )
            for i, at in enumerate(rows.tolist())
        ]

    def _books_changed(self, engine: EngineId, adapter: EngineAdapter) -> None:
        member = self._members.get(engine)
        if member is not None:
            self._write_in_flight(member)
            self._index(member, adapter)

    def _write_in_flight(self, member: _Member) -> None:
        engine = member.row.engine
        books = self._bookings.on(engine)
        peers = self._peers.get(engine, {})
        slots = occupancy(
            member.row.hbm_slots, member.residents, {**peers, **books.adapters}.keys()
        )
        if slots.evicted != member.evicted:
            changed = slots.evicted ^ member.evicted
            member.evicted = slots.evicted
            for adapter in changed:
                self._index(member, adapter)
        write_in_flight(
            self._columns,
            member.at,
            member.row.wait,
            in_flight=books.requests + sum(peers.values()),
            queued_tokens=books.tokens,
            loads_done_at_ms=loads_done_at_ms(books, member.residents),
            slot=slots.slot,
        )

    def _index(self, member: _Member, adapter: EngineAdapter) -> None:
        """Write how the engine holds the adapter, or that it does not."""
        if adapter == BASE:
            return
        engine = member.row.engine
        held = holding(
            member.residents.get(adapter),
            self._bookings.on(engine).adapters.get(adapter),
            at_peers=adapter in self._peers.get(engine, {}),
            evicted=adapter in member.evicted,
        )
        self._holders.set(adapter, member.at, held)

    def _take_row(self, engine: EngineId) -> int:
        if self._vacant:
            at = self._vacant.pop()
            self._engine_at[at] = engine
            return at
        at = len(self._engine_at)
        self._engine_at.append(engine)
        if at == len(self._columns.identity):
            self._columns = resized(self._columns, 2 * at)
        self._view = first_rows(self._columns, at + 1)
        self._nowhere = np.zeros(at + 1, np.bool_)
        return at

    def _mask(self, rows: Collection[int]) -> Bools:
        """True on these rows."""
        if not rows:
            return self._nowhere
        mask = self._nowhere.copy()
        mask[list(rows)] = True
        return mask

    def _unmark_failures(self, member: _Member) -> None:
        for name in member.row.failures:
            rows = self._failed[name]
            rows.discard(member.at)
            if not rows:
                del self._failed[name]


def _held_otherwise(
    before: dict[EngineAdapter, Residency], now: dict[EngineAdapter, Residency]
) -> list[EngineAdapter]:
    """Adapters that came, went, or are held in another way than before. Their age is no matter."""
    return [
        adapter
        for adapter in before | now
        if (one := before.get(adapter)) is None
        or (other := now.get(adapter)) is None
        or one.state is not other.state
        or one.remaining_ms != other.remaining_ms
    ]
