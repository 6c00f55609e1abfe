"""The fleet's rows: which engine stands in which, kept true to reports, bookings and peers.

A row has two parts. What the rules said of the engine is written when they ran; what is in flight
there, and the wait and the slot that follow from it, whenever a request begins or ends. Beside the
columns stand indexes by adapter: who holds it, where its load failed, where nobody could load it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from axiom_common.model.adapter import AdapterState, Residency
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.policy import kernel, load_times
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.fleet import KEPT_MAX
from axiom_common.policy.holder_index import HolderIndex
from axiom_common.policy.load_times import GBPS
from axiom_common.policy.occupancy import Occupancy, holding, loads_done_at_ms, occupancy
from axiom_common.policy.rendezvous import stable_hash
from axiom_common.policy.scorers.adapter_affinity import Slot
from axiom_common.policy.scorers.queue_pressure import predicted_wait_ms
from axiom_common.policy.view import (
    KV,
    LATENCY,
    PREFILL,
    REASON_CODE,
    ROLE_CODE,
    THERMAL,
    VACANT,
    WAIT,
    Bools,
    Codes,
    FleetView,
    Holders,
    Links,
    Wanted,
    first_rows,
    resized,
    vacant_view,
)
from axiom_common.state.bookings import Bookings

ROWS_MIN = 16


@dataclass(slots=True)
class _Member:
    """An engine with a row: where it stands, what the rules wrote, what it holds by name, and what
    a load would get, with what is booked: as long as the adapters `in_use` have requests there.
    None: that has to be found anew."""

    at: int
    row: EngineRow
    residents: dict[EngineAdapter, Residency]
    slots: Occupancy = field(default_factory=lambda: Occupancy(Slot.FREE))
    in_use: frozenset[EngineAdapter] | None = None


class FleetRows:
    """The rows of one fleet. `bookings` are read here and written by their owner, who tells."""

    def __init__(self, bookings: Bookings) -> None:
        self._bookings = bookings
        self._peers: dict[EngineId, dict[EngineAdapter, int]] = {}
        self._members: dict[EngineId, _Member] = {}
        self._engine_at: list[EngineId] = []
        self._vacant: list[int] = []
        self._columns = vacant_view(ROWS_MIN)
        self._holders = HolderIndex()
        self._failed: dict[EngineAdapter, set[int]] = {}
        self._closed: dict[EngineId, tuple[_Member, frozenset[EngineAdapter]]] = {}
        self._standing: dict[Wanted, Codes] = {}
        self._links: dict[int, Links] = {}
        self.view = first_rows(self._columns, 0)
        """The rows in use, on the memory that is written: read before anything changes."""

    def set(self, row: EngineRow) -> None:
        """Add an engine or replace what the rules said of it."""
        member = self._members.get(row.engine)
        is_same = member is not None and not self._forget_kept(member.row, row)
        if member is not None and is_same and only_figures_differ(member.row, row):
            member.row = row
            _write_figures(self._columns, member.at, row)
            self._write_in_flight(member)
            return
        residents = {resident.adapter: resident for resident in row.residents}
        if member is None:
            member = _Member(self._take_row(row.engine), row, residents)
            self._members[row.engine] = member
            changed = [*residents, *self._bookings.on(row.engine).adapters]
        else:
            changed = _held_otherwise(member.residents, residents)
            self._unmark_failures(member)
            member.row, member.residents, member.in_use = row, residents, None
        _write_nature(self._columns, member.at, row)
        _write_figures(self._columns, member.at, row)
        self._count_in_flight(member)
        for adapter in changed:
            self._index(member, adapter)
        for adapter in row.failures:
            self._failed.setdefault(adapter, set()).add(member.at)
        if row.loads_allowed:
            self._closed.pop(row.engine, None)
        else:
            self._closed[row.engine] = (member, frozenset(row.registered))

    def remove(self, engine: EngineId) -> None:
        """Free the engine's row; what peers have there is forgotten."""
        member = self._members.pop(engine, None)
        if member is None:
            return
        booked = self._bookings.on(engine).adapters
        for adapter in {**member.residents, **booked, **self._peers.pop(engine, {})}:
            self._holders.set(adapter, member.at, None)
        self._unmark_failures(member)
        self._closed.pop(engine, None)
        self._standing.clear()
        self._columns.base_model[member.at] = VACANT
        self._vacant.append(member.at)

    def set_peers(self, engine: EngineId, counts: Mapping[EngineAdapter, int]) -> None:
        """Replace what others have in flight on an engine; one without a row is ignored."""
        member = self._members.get(engine)
        if member is None:
            return
        before = self._peers.pop(engine, {})
        now = {adapter: count for adapter, count in counts.items() if count > 0}
        if now:
            self._peers[engine] = now
        self._count_in_flight(member)
        for adapter in before.keys() ^ now.keys():
            self._index(member, adapter)

    def booked(self, engine: EngineId, adapter: EngineAdapter) -> None:
        """The bookings of an adapter on an engine changed."""
        member = self._members.get(engine)
        if member is None:
            return
        self._count_in_flight(member)
        reported = member.residents.get(adapter)
        if reported is None or reported.state is not AdapterState.RESIDENT:
            # What is resident stays so until the next report, or until it is evicted.
            self._index(member, adapter)

    def at(self, engine: EngineId) -> int | None:
        """The row of an engine; None: it has none."""
        member = self._members.get(engine)
        return member.at if member is not None else None

    def engine(self, at: int) -> EngineId:
        """The engine in a row that is not vacant."""
        return self._engine_at[at]

    def engines(self) -> list[tuple[EngineId, int]]:
        """All engines with their rows, by id."""
        return [(engine, member.at) for engine, member in sorted(self._members.items())]

    def holders(self, adapter: EngineAdapter) -> Holders:
        """Who holds an adapter, or is about to."""
        return self._holders.holders(adapter)

    def standing(self, wanted: Wanted) -> Codes:
        """`kernel.standing` now; to read only."""
        kept = self._standing.get(wanted)
        if kept is None:
            if len(self._standing) >= KEPT_MAX:
                self._standing.clear()
            kept = self._standing[wanted] = kernel.standing(self.view, wanted)
        return kept

    def links(self, size_bytes: int) -> Links:
        """What an adapter of that size takes on each engine's links; to read only."""
        kept = self._links.get(size_bytes)
        if kept is None:
            if len(self._links) >= KEPT_MAX:
                self._links.clear()
            kept = self._links[size_bytes] = Links(
                transfer_ms=load_times.transfer_ms(self.view, size_bytes),
                fetch_ms=load_times.fetch_ms(self.view, size_bytes),
            )
        return kept

    def failed(self, adapter: EngineAdapter) -> Bools | None:
        """Where the adapter's load failed; None: nowhere."""
        return self._mask(self._failed.get(adapter, ()))

    def closed(self, adapter: EngineAdapter) -> Bools | None:
        """Where nobody could load the adapter; None: nowhere."""
        if not self._closed:
            return None
        closed = self._closed.values()
        return self._mask([member.at for member, names in closed if adapter not in names])

    def of(self, engines: Iterable[EngineId]) -> Bools | None:
        """Where these engines stand; those without a row are ignored. None: nowhere."""
        return self._mask([self._members[e].at for e in engines if e in self._members])

    def _count_in_flight(self, member: _Member) -> None:
        engine = member.row.engine
        books = self._bookings.on(engine)
        peers = self._peers.get(engine, {})
        in_use = peers.keys() | books.adapters.keys() if peers else books.adapters.keys()
        if member.in_use != in_use:
            self._share_slots(member, frozenset(in_use))
        self._write_in_flight(member)

    def _write_in_flight(self, member: _Member) -> None:
        engine = member.row.engine
        books = self._bookings.on(engine)
        _write_in_flight(
            self._columns,
            member.at,
            member.row.wait,
            in_flight=books.requests + sum(self._peers.get(engine, {}).values()),
            queued_tokens=books.tokens,
            loads_done_at_ms=loads_done_at_ms(books, member.residents),
            slot=member.slots.slot,
        )

    def _share_slots(self, member: _Member, in_use: frozenset[EngineAdapter]) -> None:
        """Who has the slots, now that these adapters have requests there."""
        slots = occupancy(member.row.hbm_slots, member.residents, in_use)
        before, member.slots, member.in_use = member.slots, slots, in_use
        for adapter in slots.evicted ^ before.evicted:
            self._index(member, adapter)

    def _forget_kept(self, before: EngineRow, now: EngineRow) -> bool:
        """Drop what was kept of rows that say something else from now on; whether it was any."""
        stands_otherwise, links_otherwise = stands(before) != stands(now), before.link != now.link
        if stands_otherwise:
            self._standing.clear()
        if links_otherwise:
            self._links.clear()
        return stands_otherwise or links_otherwise

    def _index(self, member: _Member, adapter: EngineAdapter) -> None:
        """Write how the engine holds the adapter, or that it does not."""
        if adapter == BASE:
            return
        engine = member.row.engine
        held = holding(
            member.residents.get(adapter),
            self._bookings.on(engine).adapters.get(adapter),
            at_peers=adapter in self._peers.get(engine, {}),
            evicted=adapter in member.slots.evicted,
        )
        self._holders.set(adapter, member.at, held)

    def _take_row(self, engine: EngineId) -> int:
        self._standing.clear()
        self._links.clear()
        if self._vacant:
            at = self._vacant.pop()
            self._engine_at[at] = engine
            return at
        at = len(self._engine_at)
        self._engine_at.append(engine)
        if at == len(self._columns.identity):
            self._columns = resized(self._columns, 2 * at)
        self.view = first_rows(self._columns, at + 1)
        return at

    def _mask(self, rows: Collection[int]) -> Bools | None:
        """True on these rows; None for none."""
        if not rows:
            return None
        mask = np.zeros(len(self.view.identity), np.bool_)
        mask[list(rows)] = True
        return mask

    def _unmark_failures(self, member: _Member) -> None:
        for adapter in member.row.failures:
            rows = self._failed[adapter]
            rows.discard(member.at)
            if not rows:
                del self._failed[adapter]


def stands(row: EngineRow) -> tuple[object, ...]:
    """What `kernel.standing` looks at."""
    return row.base_model, row.role, row.refusal, row.max_lora_rank


def only_figures_differ(before: EngineRow, now: EngineRow) -> bool:
    """Whether nothing differs that an index or a slot follows from."""
    return (
        now.residents is before.residents
        and now.hbm_slots == before.hbm_slots
        and now.loads_allowed == before.loads_allowed
        and (now.loads_allowed or now.registered == before.registered)
        and now.failures == before.failures
    )


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


def _write_nature(view: FleetView, at: int, row: EngineRow) -> None:
    """Write what an engine is; it changes seldom."""
    view.identity[at] = stable_hash(row.engine)
    view.base_model[at] = stable_hash(row.base_model)
    view.role[at] = ROLE_CODE[row.role]
    view.refusal[at] = REASON_CODE[row.refusal] if row.refusal is not None else 0
    view.max_lora_rank[at] = row.max_lora_rank
    view.h2d_fixed_ms[at] = row.link.h2d_fixed_ms
    view.h2d_bytes_per_ms[at] = row.link.h2d_gbps * GBPS
    view.store_fixed_ms[at] = row.link.store_fixed_ms
    view.store_bytes_per_ms[at] = row.link.store_gbps * GBPS


def _write_figures(view: FleetView, at: int, row: EngineRow) -> None:
    """Write what else rules decide."""
    view.stale[at] = row.stale
    view.unheard[at] = row.unheard
    view.flapping[at] = row.flapping
    view.doubtful[at] = row.stale or row.unheard or row.flapping
    view.terms_ms[PREFILL, at] = row.prefill_ms_per_token
    view.load_queue_ms[at] = row.load_queue_ms
    kv_ms, thermal_ms, latency_ms = row.slowdowns_ms
    view.terms_ms[KV, at] = kv_ms
    view.terms_ms[THERMAL, at] = thermal_ms
    view.terms_ms[LATENCY, at] = latency_ms
    view.kv_headroom[at] = row.kv_headroom
    view.thermal_safety[at] = row.thermal_safety
    view.latency_health[at] = row.latency_health


def _write_in_flight(
    view: FleetView,
    at: int,
    wait: WaitRule,
    *,
    in_flight: int,
    queued_tokens: int,
    loads_done_at_ms: float,
    slot: int,
) -> None:
    """Write what is in flight, and what follows from it; `slot` is what a load would get.

    The rules' part of the row stands there already.
    """
    wait_ms = predicted_wait_ms(wait, in_flight=in_flight, queued_tokens=queued_tokens)
    view.in_flight[at] = in_flight
    view.wait_ms[at] = wait_ms
    view.terms_ms[WAIT, at] = wait_ms + wait.slowdown_per_request_ms * in_flight
    _, _, _, kv_ms, thermal_ms, latency_ms = view.terms_ms[:, at].tolist()
    view.delay_ms[at] = wait_ms + kv_ms + thermal_ms + latency_ms
    view.loads_done_at_ms[at] = loads_done_at_ms
    view.slot[at] = slot
