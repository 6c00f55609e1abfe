"""The arithmetic of a decision: predict, filter, pick. Pure numpy over the fleet's columns.

The compiled fleet makes the same choice bit for bit. So: f64 throughout, terms added in the
order of `Term`, no fused multiply-add, costs rounded to 1 us before they are compared.

    hard filters -> soft filter (no news) -> probes -> rings: holders, first tier, all -> picker

One request in PROBE_ONE_IN goes to an engine that was never heard from, if there is one. All others
stay with the engines that hold their adapter (bounded spread), then with the first tier, engines
that need no eviction (affinity above 0); the second tier, affinity exactly 0.0, is the last resort.
A ring opens when there is nobody within it, or when a load further out is worth it: the least delay
within exceeds that load, and delays have cost this adapter as much already (ski rental). Where
those that may win are fewer than are shown, the best of the rings further out come after them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from axiom_common.model.ids import EngineId
from axiom_common.model.prefix import linked, prefix_bytes
from axiom_common.model.reason import Reason
from axiom_common.policy import load_times
from axiom_common.policy.fleet import Prompt
from axiom_common.policy.registry import (
    CAPABILITY_FILTERS,
    LATE_FILTERS,
    PICKERS,
    REQUEST_FILTERS,
)
from axiom_common.policy.scorers.adapter_affinity import (
    COLD_AFFINITY,
    RESIDENT,
    SAFE_EVICTION,
    Held,
    adapter_affinity,
)
from axiom_common.policy.scorers.prefix_match import credited, uncached_tokens
from axiom_common.policy.view import (
    LOAD,
    PREFILL,
    REASON_CODE,
    VACANT,
    VACANT_CODE,
    Ask,
    Bools,
    Codes,
    Credit,
    FleetView,
    Floats,
    Holders,
    Ints,
    Links,
    Prospect,
    Rows,
    Seen,
    StandingView,
    Terms,
    Wanted,
)

PROBE_ONE_IN = 20
"""The share of a base model's requests that tries an engine which was never heard from."""

_STANDING = [
    [(REASON_CODE[reason], refuses) for reason, refuses in reversed(filters.items())]
    for filters in (CAPABILITY_FILTERS, REQUEST_FILTERS)
]
_LATE = [(REASON_CODE[reason], refuses) for reason, refuses in reversed(LATE_FILTERS.items())]
"""Last filter first: an earlier one overwrites, so it names the reason."""
_STALE = REASON_CODE[Reason.STALE_TELEMETRY]
_FLAPPING = REASON_CODE[Reason.FLAPPING]


class Choice(NamedTuple):
    """The outcome on rows. `ranked` are those that could win, best first; empty: nobody can. `next`
    are some that could not, best first: those to show where `ranked` are few.

    `refusals` holds a reason's code for each row, 0 for candidates, VACANT_CODE for vacant rows. To
    read only: it may be the ask's own `standing`.
    """

    prospect: Prospect
    refusals: Codes
    ranked: Rows
    next: Rows


def choose(view: FleetView, ask: Ask, shown: int) -> Choice:
    """Decide on a frozen view; `ranked` and `next` are `shown` rows at least, if so many are
    candidates. Pure."""
    prospect = predict(view, ask)
    refusals = refuse(prospect)
    candidates = refusals == 0
    rows = _contenders(prospect, candidates)
    ranked = _ranked(prospect, rows)
    following = rows[:0]
    if len(rows) < shown and np.count_nonzero(candidates) > len(rows):
        candidates[rows] = False
        following = _by_ring(prospect, candidates, shown - len(rows))
    return Choice(prospect, refusals, ranked, following)


def _ranked(prospect: Prospect, rows: Rows) -> Rows:
    return PICKERS[prospect.ask.profile.picker](prospect, rows) if len(rows) > 1 else rows


def _by_ring(prospect: Prospect, candidates: Bools, shown: int) -> Rows:
    """The best of each ring, the nearest ring first, until there are `shown`."""
    ask = prospect.ask
    found: list[int] = []
    rings: list[Bools] = []
    if ask.holders is not None and ask.profile.quarantine:
        rings = [prospect.held > Held.HOST, prospect.affinity > SAFE_EVICTION]
    for ring in (*rings, np.ones(len(candidates), np.bool_)):
        (rows,) = (candidates & ring).nonzero()
        candidates = candidates & ~ring
        found += _ranked(prospect, rows)[: shown - len(found)].tolist()
    return np.array(found, np.intp)


def standing(view: StandingView, wanted: Wanted) -> Codes:
    """The code of the first reason that stands against each row for all that want the same, however
    much is in flight; 0 for none. It changes only when the rules write a row."""
    refusals = np.zeros(len(view.base_model), np.int8)
    capability, request = _STANDING
    for code, refuses in capability:
        np.putmask(refusals, refuses(view, wanted), code)
    np.putmask(refusals, view.refusal != 0, view.refusal)
    for code, refuses in request:
        np.putmask(refusals, refuses(view, wanted), code)
    np.putmask(refusals, view.base_model == VACANT, VACANT_CODE)
    return refusals


def predict(view: FleetView, ask: Ask) -> Prospect:
    """Everything that filters and pickers look at, for every row."""
    terms_ms = view.terms_ms.copy()
    tokens = ask.prompt_tokens if ask.credit is None else ask.credit.uncached_tokens
    terms_ms[PREFILL] *= tokens
    if ask.holders is None or ask.links is None:
        held, affinity, load_ms = _at_home(len(view.identity))
    else:
        held, affinity, load_ms, stall_ms = _loads(view, ask.holders, ask.links, ask.now_ms)
        np.add(load_ms, stall_ms, out=terms_ms[LOAD])
    return Prospect(view, ask, held, affinity, load_ms, terms_ms, _cost_us(terms_ms, ask.weights))


@lru_cache(maxsize=64)
def _at_home(rows: int) -> tuple[Codes, Floats, Floats]:
    """The base model is everywhere and needs no load: `Held`, affinity, load. To read only."""
    columns = np.full(rows, Held.RESIDENT, np.int8), np.full(rows, RESIDENT), np.zeros(rows)
    for column in columns:
        column.flags.writeable = False
    return columns


def _loads(
    view: FleetView, holders: Holders, links: Links, now_ms: float
) -> tuple[Codes, Floats, Floats, Floats]:
    """`Held`, affinity, and the times that a load takes and takes from those in flight, for every
    row: as if nobody held the adapter, then as it is where somebody does."""
    h2d_ms = load_times.queue_ms(view, now_ms) + links.transfer_ms
    load_ms = links.fetch_ms + h2d_ms
    stall_ms = links.transfer_ms * view.in_flight
    affinity = COLD_AFFINITY.take(view.slot)
    held = np.zeros(len(load_ms), np.int8)
    rows = holders.rows
    held[rows] = holders.held
    if holders.all_resident:
        affinity[rows] = RESIDENT
        load_ms[rows] = stall_ms[rows] = 0.0
        return held, affinity, load_ms, stall_ms
    times = {
        "remaining_ms": np.maximum(holders.remaining_ms, holders.ready_at_ms - now_ms),
        "h2d_ms": h2d_ms[rows],
        "cold_ms": load_ms[rows],
    }
    affinity[rows] = adapter_affinity(holders.held, view.slot[rows], **times)
    load_ms[rows] = load_times.load_ms(holders.held, **times)
    stall_ms[rows[holders.held >= Held.LOADING]] = 0.0
    return held, affinity, load_ms, stall_ms


def credit(rows: int, prompt_tokens: int, prompt: Prompt) -> Credit | None:
    """What is held of a prompt on each of so many rows; None for a text without bytes."""
    if not prompt.text:
        return None
    whole_bytes = len(prompt.text) + prompt.beyond_bytes
    links = linked(prompt.seed, prompt.text)
    hbm, any_tier = (_held_parts(rows, found) for found in prompt.holders.lookup(links))
    return Credit(
        credited(hbm[0], any_tier[0]),
        uncached_tokens(prompt_tokens, whole_bytes, credited(hbm[1], any_tier[1])),
    )


def _held_parts(rows: int, found: bytes) -> Floats:
    """Tokens, and bytes of text, that each row holds by a look-up of the prompt."""
    engines, depths, tokens = np.frombuffer(found, "<u4").reshape(-1, 3).T
    known = engines < rows
    parts = np.zeros((2, rows))
    parts[:, engines[known]] = tokens[known], prefix_bytes(depths[known].astype(np.int64))
    return parts


def seen(prospect: Prospect, at: int, engine: EngineId) -> Seen:
    """What was seen of the engine in one row."""
    view, ask = prospect.view, prospect.ask
    rest_ms = h2d_ms = cold_ms = 0.0
    if ask.holders is not None and ask.links is not None:
        queue_ms = max(view.load_queue_ms.item(at), view.loads_done_at_ms.item(at) - ask.now_ms)
        h2d_ms = queue_ms + ask.links.transfer_ms.item(at)
        cold_ms = ask.links.fetch_ms.item(at) + h2d_ms
        if prospect.held[at] == Held.LOADING:
            rest_ms = prospect.load_ms.item(at)
    return Seen(
        engine=engine,
        cost_us=prospect.cost_us.item(at),
        held=int(prospect.held[at]),
        slot=int(view.slot[at]),
        terms_ms=tuple(prospect.terms_ms[:, at].tolist()),
        rest_ms=rest_ms,
        h2d_ms=h2d_ms,
        cold_ms=cold_ms,
        wait_ms=view.wait_ms.item(at),
        kv_headroom=view.kv_headroom.item(at),
        thermal_safety=view.thermal_safety.item(at),
        latency_health=view.latency_health.item(at),
        credited_tokens=ask.credit.credited_tokens.item(at) if ask.credit else 0.0,
        uncached_tokens=ask.credit.uncached_tokens.item(at) if ask.credit else ask.prompt_tokens,
    )


def refuse(prospect: Prospect) -> Codes:
    """The code of the first reason against each row, as `Choice.refusals`."""
    view, ask = prospect.view, prospect.ask
    late = None
    for code, refuses in _LATE:
        mask = refuses(prospect)
        if mask is not None and _some(mask):
            late = np.zeros(len(mask), np.int8) if late is None else late
            np.putmask(late, mask, code)
    refusals = ask.standing if late is None else np.where(ask.standing, ask.standing, late)
    if not _some(view.doubtful):
        return refusals
    if not _probes(ask):
        refusals = _set_aside(refusals, view.unheard, _STALE)
    refusals = _set_aside(refusals, view.stale, _STALE)
    return _set_aside(refusals, view.flapping, _FLAPPING)


def _probes(ask: Ask) -> bool:
    return ask.request_hash % PROBE_ONE_IN == 0


def _set_aside(refusals: Codes, doubtful: Bools, code: int) -> Codes:
    """A soft filter: refuse candidates that can't be relied on while others remain."""
    if not _some(doubtful):
        return refusals
    candidates = refusals == 0
    if not _some(candidates & ~doubtful):
        return refusals
    return np.where(candidates & doubtful, np.int8(code), refusals)


def _contenders(prospect: Prospect, candidates: Bools) -> Rows:
    """The candidates that the picker may take: probes first, then the rings."""
    ask = prospect.ask
    if _probes(ask) and _some(probed := candidates & prospect.view.unheard):
        return probed.nonzero()[0]
    (rows,) = candidates.nonzero()
    if ask.holders is None or not ask.profile.quarantine:
        return rows
    for value, above in ((prospect.held, Held.HOST), (prospect.affinity, SAFE_EVICTION)):
        is_near = value[rows] > above
        near = rows[is_near]
        if len(near) == len(rows):
            return near
        if len(near) and not _load_is_worth_it(prospect, near, rows, is_near):
            return near
    return rows


def _load_is_worth_it(prospect: Prospect, near: Rows, rows: Rows, is_near: Bools) -> bool:
    """Whether a load on one of `rows` further out beats the delay at the best of `near`."""
    delay_ms = np.minimum.reduce(prospect.view.delay_ms[near])
    if delay_ms <= 0.0:
        # No load takes less.
        return False
    load_ms = np.minimum.reduce(prospect.load_ms[rows[~is_near]])
    return bool(delay_ms > load_ms and prospect.ask.waited_ms >= load_ms)


def _some(mask: Bools) -> bool:
    """`mask.any()`, several times as fast on the few rows of a small fleet."""
    return bool(np.count_nonzero(mask))


def _cost_us(terms_ms: Terms, weights: Terms) -> Ints:
    """The weighted sum of each column, added term by term in their order."""
    cost_ms: Floats = np.add.reduce(weights * terms_ms, axis=0)
    cost_ms *= 1000.0
    return np.rint(cost_ms, out=cost_ms).astype(np.int64)
