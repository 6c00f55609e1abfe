"""The arithmetic of a decision: predict, filter, pick. Pure numpy over the fleet's columns.

A compiled kernel must make the same choice bit for bit. So: f64 throughout, terms added in the
order of `Term`, no fused multiply-add, costs rounded to 1 us before they are compared.

    hard filters -> soft filter (no news) -> probes -> rings: holders, first tier, all -> picker

One request in PROBE_ONE_IN goes to an engine that was never heard from, if there is one. All others
stay with the engines that hold their adapter (bounded spread), then with the first tier, engines
that need no eviction (affinity above 0); the second tier, affinity exactly 0.0, is the last resort.
A ring opens when there is nobody within it, or when a load further out is worth it: the least delay
within exceeds that load, and delays have cost this adapter as much already (ski rental).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axiom_common.model.reason import Reason
from axiom_common.policy import load_times
from axiom_common.policy.registry import (
    ADAPTER_FILTERS,
    LAST_FILTERS,
    PICKERS,
    REQUEST_FILTERS,
    ProspectFilter,
)
from axiom_common.policy.scorers.adapter_affinity import (
    RESIDENT,
    SAFE_EVICTION,
    Held,
    adapter_affinity,
)
from axiom_common.policy.view import (
    REASON_CODE,
    VACANT,
    VACANT_CODE,
    Ask,
    Bools,
    Codes,
    FleetView,
    Floats,
    Holders,
    Ints,
    Prospect,
    Rows,
)

PROBE_ONE_IN = 20
"""The share of a base model's requests that tries an engine which was never heard from."""


def _last_first(filters: dict[Reason, ProspectFilter]) -> list[tuple[int, ProspectFilter]]:
    return [(REASON_CODE[reason], refuses) for reason, refuses in reversed(filters.items())]


_REQUEST, _ADAPTER, _LAST = map(_last_first, (REQUEST_FILTERS, ADAPTER_FILTERS, LAST_FILTERS))
_QUARANTINED = REASON_CODE[Reason.QUARANTINED]
_STALE = REASON_CODE[Reason.STALE_TELEMETRY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The outcome on rows. `ranked` are those that could win, best first; empty: nobody can.

    `refusals` holds a reason's code for each row, 0 for candidates, VACANT_CODE for vacant rows.
    """

    prospect: Prospect
    refusals: Codes
    ranked: Rows


def choose(view: FleetView, ask: Ask) -> Choice:
    """Decide on a frozen view. Pure."""
    prospect = predict(view, ask)
    refusals = refuse(prospect)
    (rows,) = _contenders(prospect, refusals == 0).nonzero()
    ranked = PICKERS[ask.profile.picker](prospect, rows) if len(rows) > 1 else rows
    return Choice(prospect=prospect, refusals=refusals, ranked=ranked)


def predict(view: FleetView, ask: Ask) -> Prospect:
    """Everything that filters and pickers look at, for every row."""
    rows = len(view.identity)
    if ask.holders is None:
        held = np.full(rows, Held.RESIDENT, np.int8)
        affinity = np.full(rows, RESIDENT)
        load_ms = load_term_ms = np.zeros(rows)
    else:
        held, remaining_ms = _spread_out(ask.holders, rows, ask.now_ms)
        transfer_ms = load_times.transfer_ms(view, ask.size_bytes)
        h2d_ms = load_times.queue_ms(view, ask.now_ms) + transfer_ms
        cold_ms = load_times.fetch_ms(view, ask.size_bytes) + h2d_ms
        affinity = adapter_affinity(
            held, view.slot, remaining_ms=remaining_ms, h2d_ms=h2d_ms, cold_ms=cold_ms
        )
        load_ms = load_times.load_ms(
            held, remaining_ms=remaining_ms, h2d_ms=h2d_ms, cold_ms=cold_ms
        )
        stall_ms = np.where(held < Held.LOADING, transfer_ms * view.in_flight, 0.0)
        load_term_ms = load_ms + stall_ms
    terms_ms = np.array(
        (
            view.wait_ms + view.crowd_ms,
            ask.prompt_tokens * view.prefill_ms_per_token,
            load_term_ms,
            view.kv_ms,
            view.thermal_ms,
            view.latency_ms,
        )
    )
    return Prospect(
        view=view,
        ask=ask,
        held=held,
        affinity=affinity,
        load_ms=load_ms,
        terms_ms=terms_ms,
        cost_us=_cost_us(terms_ms, ask.weights),
    )


def refuse(prospect: Prospect) -> Codes:
    """The code of the first reason against each row, as `Choice.refusals`."""
    view, ask = prospect.view, prospect.ask
    refusals = np.zeros(len(view.identity), np.int8)
    # Last filter first: the earlier one overwrites, so it names the reason.
    for code, refuses in _LAST:
        np.putmask(refusals, refuses(prospect), code)
    if ask.holders is not None:
        for code, refuses in _ADAPTER:
            if code != _QUARANTINED or ask.profile.quarantine:
                np.putmask(refusals, refuses(prospect), code)
    np.putmask(refusals, view.refusal != 0, view.refusal)
    for code, refuses in _REQUEST:
        np.putmask(refusals, refuses(prospect), code)
    np.putmask(refusals, view.base_model == VACANT, VACANT_CODE)
    if not _probes(ask):
        _set_aside(refusals, view.unheard)
    _set_aside(refusals, view.stale)
    return refusals


def _probes(ask: Ask) -> bool:
    return ask.request_hash % PROBE_ONE_IN == 0


def _set_aside(refusals: Codes, without_news: Bools) -> None:
    """The soft filter: refuse candidates without fresh news while others remain."""
    if not _some(without_news):
        return
    candidates = refusals == 0
    if _some(candidates & ~without_news):
        np.putmask(refusals, candidates & without_news, _STALE)


def _contenders(prospect: Prospect, candidates: Bools) -> Bools:
    """The candidates that the picker may take: probes first, then the rings."""
    if _probes(prospect.ask) and _some(candidates & prospect.view.unheard):
        return candidates & prospect.view.unheard
    if not prospect.ask.profile.quarantine:
        return candidates
    home = candidates & (prospect.held >= Held.LOADING)
    if not _load_is_worth_it(prospect, home, candidates & ~home):
        return home
    first = candidates & (prospect.affinity > SAFE_EVICTION)
    return candidates if _load_is_worth_it(prospect, first, candidates & ~first) else first


def _load_is_worth_it(prospect: Prospect, near: Bools, far: Bools) -> bool:
    """Whether a load on one of `far` beats the delay at the best of `near`."""
    if not _some(far):
        return False
    if not _some(near):
        return True
    load_ms = prospect.load_ms[far].min()
    is_dear = prospect.view.delay_ms[near].min() > load_ms
    return bool(is_dear and prospect.ask.waited_ms >= load_ms)


def _some(mask: Bools) -> bool:
    """`mask.any()`, several times as fast on the few rows of a small fleet."""
    return bool(np.count_nonzero(mask))


def _cost_us(terms_ms: Floats, weights: Floats) -> Ints:
    """The weighted sum of each column, added term by term in their order."""
    cost_ms: Floats = np.add.reduce(weights * terms_ms, axis=0)
    return np.rint(cost_ms * 1000.0).astype(np.int64)


def _spread_out(holders: Holders, rows: int, now_ms: float) -> tuple[Codes, Floats]:
    """The holders as columns: `Held` and the rest of a load, for every row."""
    held = np.zeros(rows, np.int8)
    held[holders.rows] = holders.held
    remaining_ms = np.zeros(rows)
    remaining_ms[holders.rows] = np.maximum(holders.remaining_ms, holders.ready_at_ms - now_ms)
    return held, remaining_ms
