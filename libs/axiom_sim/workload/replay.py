"""From traces to the requests of one run: when, for which adapter, how long.

Arrivals and lengths come row by row from a request trace, its gaps stretched to the wanted rate, so
bursts and the joint draw of prompt and output stay. Adapters come from clients' rates: one client
stands for one adapter, its share drifts from window to window, and at a flip the ranks are permuted
(the most wanted adapter becomes another one at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from axiom_common.errors import InvalidInputError
from axiom_sim.workload.traces import ClientRate, TracedRequest

Shares = tuple[float, ...]
"""One adapter's share of the requests each, by adapter index; they sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One request of a run: sent at `at_ms` whatever became of those before it (open loop)."""

    at_ms: float
    adapter: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayShape:
    """How a trace becomes a run. Lengths above the caps are cut to them.

    `flip_ms` are the times at which popularity is permuted; an empty tuple keeps the ranks.
    """

    duration_ms: float
    rate_rps: float
    prompt_tokens_max: int
    output_tokens_max: int
    flip_ms: tuple[float, ...] = ()


def popularity(rates: Sequence[ClientRate], adapters: int) -> tuple[Shares, ...]:
    """Shares of the `adapters` busiest clients in each window, in order of time.

    Index 0 is the busiest client over all windows. A client without a row in a window is idle then.
    """
    totals: dict[int, float] = {}
    for rate in rates:
        totals[rate.client] = totals.get(rate.client, 0.0) + rate.rate_rps
    if len(totals) < adapters:
        raise InvalidInputError(f"the trace has {len(totals)} clients, {adapters} are wanted")
    busiest = sorted(totals, key=lambda client: (-totals[client], client))[:adapters]
    by_window: dict[float, dict[int, float]] = {}
    for rate in rates:
        by_window.setdefault(rate.at_s, {})[rate.client] = rate.rate_rps
    windows = []
    for at_s in sorted(by_window):
        weights = [by_window[at_s].get(client, 0.0) for client in busiest]
        if total := sum(weights):
            windows.append(tuple(weight / total for weight in weights))
    return tuple(windows)


def replay(
    trace: Sequence[TracedRequest], windows: Sequence[Shares], shape: ReplayShape, rng: Random
) -> tuple[ReplayRequest, ...]:
    """The requests of a run, in order of time; the same `rng` state gives the same requests.

    `windows` are spread evenly over the duration.
    """
    count = round(shape.rate_rps * shape.duration_ms / 1e3)
    if not 2 <= count <= len(trace):
        raise InvalidInputError(f"{count} requests are wanted, the trace has {len(trace)}")
    rows = trace[:count]
    start_ms, span_ms = rows[0].at_ms, rows[-1].at_ms - rows[0].at_ms
    if span_ms <= 0 or not windows:
        raise InvalidInputError("the traces span no time")
    # The last request arrives one mean gap before the end, as the rate asks.
    stretch = shape.duration_ms * (count - 1) / count / span_ms
    adapters = len(windows[0])
    orders = [list(range(adapters))]
    for _ in shape.flip_ms:
        orders.append(_derangement(orders[-1], rng))
    cumulated = [list(accumulate(window)) for window in windows]
    requests = []
    for row in rows:
        at_ms = (row.at_ms - start_ms) * stretch
        window = cumulated[min(int(at_ms / shape.duration_ms * len(windows)), len(windows) - 1)]
        order = orders[sum(at_ms >= flip for flip in shape.flip_ms)]
        rank = rng.choices(range(adapters), cum_weights=window)[0]
        requests.append(
            ReplayRequest(
                at_ms=at_ms,
                adapter=order[rank],
                prompt_tokens=max(1, min(row.prompt_tokens, shape.prompt_tokens_max)),
                output_tokens=max(1, min(row.output_tokens, shape.output_tokens_max)),
            )
        )
    return tuple(requests)


def _derangement(order: Sequence[int], rng: Random) -> list[int]:
    """The same adapters in another order in which none keeps its rank (Sattolo's cycle)."""
    shuffled = list(order)
    for i in range(len(shuffled) - 1, 0, -1):
        j = rng.randrange(i)
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
    return shuffled
