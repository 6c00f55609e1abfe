"""ServeGen's clients as adapters: bursts, drift and on-off behaviour of real clients.

In each 10-minute window a client has a rate and a law of gaps (Gamma or Weibull, by its shape).
Arrivals of a window are drawn with that law and then stretched to fill it, so that the rate is met
and the burstiness stays; the law's scale doesn't matter then.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from axiom_common.errors import InvalidInputError
from axiom_sim.scenario.traffic import Arrivals
from axiom_sim.workload.traces import ClientRate, servegen

WINDOW_S = 600.0
_DAY_S = 86_400.0


class ClientArrivals(NamedTuple):
    """Arrivals in order of time from the span's start; `client` is a rank, 0 the busiest."""

    at_ms: NDArray[np.float64]
    client: NDArray[np.int64]
    span_ms: float


def client_arrivals(
    arrivals: Arrivals, clients: int | None, rng: Generator, most: int
) -> ClientArrivals:
    """Arrivals of the `clients` busiest clients of the span (all if None), scaled to `requests`,
    window by window until there are more than `most`."""
    from_s, to_s = _span(arrivals)
    rows = [row for row in servegen(arrivals.servegen or "m-large") if from_s <= row.at_s < to_s]
    if not rows:
        raise InvalidInputError("no client is active then", path="arrivals")
    ranks = _ranks(rows, clients)
    rows = [row for row in rows if row.client in ranks]
    natural = sum(row.rate_rps for row in rows) * WINDOW_S
    factor = 1.0 if arrivals.requests is None else arrivals.requests / natural
    windows: dict[float, list[ClientRate]] = defaultdict(list)
    for row in rows:
        windows[row.at_s].append(row)
    times: list[NDArray[np.float64]] = []
    who: list[NDArray[np.int64]] = []
    count = 0
    for at_s in sorted(windows):
        at_ms, client = _window(windows[at_s], ranks, factor, rng)
        times.append(at_ms + (at_s - from_s) * 1e3)
        who.append(client)
        count += len(at_ms)
        if count > most:
            break
    return ClientArrivals(np.concatenate(times), np.concatenate(who), (to_s - from_s) * 1e3)


def _span(arrivals: Arrivals) -> tuple[float, float]:
    """Seconds of the trace: a day, or hours of it."""
    first, last = arrivals.hours or (0, 24)
    day_s = (arrivals.day or 0) * _DAY_S
    return day_s + first * 3600.0, day_s + last * 3600.0


def _ranks(rows: list[ClientRate], clients: int | None) -> dict[int, int]:
    """Client -> rank of the busiest clients."""
    totals: dict[int, float] = defaultdict(float)
    for row in rows:
        totals[row.client] += row.rate_rps
    busiest = sorted(totals, key=lambda client: (-totals[client], client))[:clients]
    return {client: rank for rank, client in enumerate(busiest)}


def _window(
    rows: list[ClientRate], ranks: dict[int, int], factor: float, rng: Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Arrivals of one window, in ms from its start."""
    times: list[NDArray[np.float64]] = []
    who: list[NDArray[np.int64]] = []
    for row in rows:
        count = int(row.rate_rps * WINDOW_S * factor + rng.random())
        if not count:
            continue
        draw = rng.standard_gamma if row.gaps == "Gamma" else rng.weibull
        gaps = draw(row.shape, count + 1)
        total = float(gaps.sum())
        # Gaps of the burstiest clients may all be too small for a float.
        at_s = np.cumsum(gaps[:-1]) / total * WINDOW_S if total > 0 else np.zeros(count)
        times.append(at_s * 1e3)
        who.append(np.full(count, ranks[row.client], dtype=np.int64))
    if not times:
        return np.empty(0), np.empty(0, dtype=np.int64)
    at_ms = np.concatenate(times)
    order = np.argsort(at_ms, kind="stable")
    return at_ms[order], np.concatenate(who)[order]


@cache
def client_shares(adapters: int) -> tuple[tuple[float, ...], ...]:
    """The shares of the `adapters` busiest clients of m-large, window by window over its 14 days:
    popularity where arrivals have no clients of their own. An idle window repeats the one before.
    """
    rows = list(servegen("m-large"))
    ranks = _ranks(rows, adapters)
    windows: dict[int, list[float]] = {}
    for row in rows:
        if row.client in ranks:
            shares = windows.setdefault(int(row.at_s / WINDOW_S), [0.0] * len(ranks))
            shares[ranks[row.client]] = row.rate_rps
    whole: list[tuple[float, ...]] = []
    for window in range(max(windows) + 1):
        rates = windows.get(window)
        whole.append(whole[-1] if rates is None else tuple(r / sum(rates) for r in rates))
    return tuple(whole)
