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

from axiom_common.model.decision import Term
from axiom_common.model.reason import Reason
from axiom_common.policy import load_times
from axiom_common.policy.registry import (
    ADAPTER_FILTERS,
    LOAD_FILTERS,
    PICKERS,
    REQUEST_FILTERS,
    SCORERS,
    ProspectFilter,
)
from axiom_common.policy.scorers.adapter_affinity import (
    RESIDENT,
    SAFE_EVICTION,
    Held,
    adapter_affinity,
)
from axiom_common.policy.scorers.prefix_match import prefix_match
from axiom_common.policy.scorers.queue_pressure import predicted_wait_ms, queue_pressure
from axiom_common.policy.view import (
    REASON_CODE,
    VACANT,
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

VACANT_CODE = -1


def _last_first(filters: dict[Reason, ProspectFilter]) -> list[tuple[int, ProspectFilter]]:
    return [(REASON_CODE[reason], refuses) for reason, refuses in reversed(filters.items())]


_REQUEST, _ADAPTER, _LOAD = map(_last_first, (REQUEST_FILTERS, ADAPTER_FILTERS, LOAD_FILTERS))
_QUARANTINED = REASON_CODE[Reason.QUARANTINED]
_STALE = REASON_CODE[Reason.STALE_TELEMETRY]
_SCORER_NAMES = tuple(SCORERS[term] for term in Term)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The outcome on rows. `ranked` are those that could win, best first; empty: nobody can.

    `refusals` holds a reason's code for each row, 0 for candidates, VACANT_CODE for vacant rows.
    `tier` is 1 or 2 for candidates, 0 for the rest.
    """

    prospect: Prospect
    refusals: Codes
    tier: Codes
    ranked: Rows


def choose(view: FleetView, ask: Ask) -> Choice:
    """Decide on a frozen view. Pure."""
    prospect = predict(view, ask)
    refusals = refuse(prospect)
    tier = np.where(prospect.affinity > SAFE_EVICTION, np.int8(1), np.int8(2))
    np.putmask(tier, refusals != 0, 0)
    rows = np.flatnonzero(_contenders(prospect, tier))
    return Choice(
        prospect=prospect,
        refusals=refusals,
        tier=tier,
        ranked=PICKERS[ask.profile.picker](prospect, rows),
    )


def predict(view: FleetView, ask: Ask) -> Prospect:
    """Everything that filters and pickers look at, for every row."""
    wait_ms = predicted_wait_ms(view)
    if ask.holders is None:
        held = np.full(len(wait_ms), Held.RESIDENT, np.int8)
        affinity, load_ms, stall_ms = np.full(len(wait_ms), RESIDENT), _none(view), _none(view)
    else:
        held, remaining_ms = _spread_out(ask.holders, len(wait_ms), ask.now_ms)
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
    terms_ms = np.empty((len(Term), len(wait_ms)))
    terms_ms[0] = wait_ms + view.slowdown_per_request_ms * view.in_flight
    terms_ms[1] = ask.prompt_tokens * view.prefill_ms_per_token
    terms_ms[2] = load_ms + stall_ms
    terms_ms[3] = view.kv_ms
    terms_ms[4] = view.thermal_ms
    terms_ms[5] = view.latency_ms
    return Prospect(
        view=view,
        ask=ask,
        held=held,
        affinity=affinity,
        wait_ms=wait_ms,
        delay_ms=wait_ms + view.kv_ms + view.thermal_ms + view.latency_ms,
        load_ms=load_ms,
        terms_ms=terms_ms,
        cost_us=_cost_us(terms_ms, ask),
    )


def refuse(prospect: Prospect) -> Codes:
    """The code of the first reason against each row, as `Choice.refusals`."""
    view, ask = prospect.view, prospect.ask
    refusals = np.zeros(len(view.identity), np.int8)
    # Last filter first: the earlier one overwrites, so it names the reason.
    for code, refuses in _LOAD:
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
    candidates = refusals == 0
    if _some(candidates & ~without_news):
        np.putmask(refusals, candidates & without_news, _STALE)


def scores(prospect: Prospect, rows: Rows) -> dict[str, Floats]:
    """Every scorer's value on `rows`."""
    view = prospect.view
    columns = (
        queue_pressure(prospect.wait_ms[rows], prospect.ask.profile.wait_cap_ms),
        prefix_match(len(rows)),
        prospect.affinity[rows],
        view.kv_headroom[rows],
        view.thermal_safety[rows],
        view.latency_health[rows],
    )
    return dict(zip(_SCORER_NAMES, columns, strict=True))


def _contenders(prospect: Prospect, tier: Codes) -> Bools:
    """The candidates that the picker may take: probes first, then the rings."""
    left = tier > 0
    if _probes(prospect.ask) and _some(left & prospect.view.unheard):
        return left & prospect.view.unheard
    if not prospect.ask.profile.quarantine:
        return left
    home = left & (prospect.held >= Held.LOADING)
    if not _load_is_worth_it(prospect, home, left & ~home):
        return home
    first = left & (tier == 1)
    return left if _load_is_worth_it(prospect, first, left & ~first) else first


def _load_is_worth_it(prospect: Prospect, near: Bools, far: Bools) -> bool:
    """Whether a load on one of `far` beats the delay at the best of `near`."""
    if not _some(far):
        return False
    if not _some(near):
        return True
    load_ms = prospect.load_ms[far].min()
    is_dear = prospect.delay_ms[near].min() > load_ms
    return bool(is_dear and prospect.ask.waited_ms >= load_ms)


def _some(mask: Bools) -> bool:
    """`mask.any()`, several times as fast on the few rows of a small fleet."""
    return bool(np.count_nonzero(mask))


def _cost_us(terms_ms: Floats, ask: Ask) -> Ints:
    cost_ms = np.zeros(terms_ms.shape[1])
    for weight, term_ms in zip(ask.weights, terms_ms, strict=True):
        cost_ms = cost_ms + weight * term_ms
    return np.rint(cost_ms * 1000.0).astype(np.int64)


def _spread_out(holders: Holders, rows: int, now_ms: float) -> tuple[Codes, Floats]:
    """The holders as columns: `Held` and the rest of a load, for every row."""
    held = np.zeros(rows, np.int8)
    held[holders.rows] = holders.held
    remaining_ms = np.zeros(rows)
    remaining_ms[holders.rows] = np.maximum(holders.remaining_ms, holders.ready_at_ms - now_ms)
    return held, remaining_ms


def _none(view: FleetView) -> Floats:
    return np.zeros(len(view.identity))
