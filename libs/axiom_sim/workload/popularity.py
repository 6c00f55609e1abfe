"""Which adapter a request asks for.

A request draws a rank by the popularity's shares; the order of ranks that is in force then, changed
at each flip, makes an adapter of it. A part of the traffic (`regional`) takes its region's own
permutation first. Then surges take their share of all requests, and the base model its own of those
that no surge took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from axiom_sim.fleet.requests import BASE_MODEL
from axiom_sim.scenario.resolved import Phase, Resolved
from axiom_sim.scenario.schema import SurgeEvent
from axiom_sim.scenario.traffic import Markov, Popularity
from axiom_sim.workload.arrivals import Arrived
from axiom_sim.workload.chance import chance
from axiom_sim.workload.servegen import WINDOW_S, client_shares
from axiom_sim.workload.traces import mooncake

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MARKOV_TICK_S = 1.0
"""How finely adapters come and go."""


class Surge(NamedTuple):
    """A surge of a run: its region's number (None: all), and times from the run's start."""

    region: int | None
    adapter: int
    at_ms: float
    ramp_ms: float
    hold_ms: float
    share: float

    def shares(self, at_ms: Floats) -> Floats:
        """The share of traffic that it takes at these times: up a ramp, level, down a ramp."""
        since, until = at_ms - self.at_ms, self.at_ms + 2 * self.ramp_ms + self.hold_ms - at_ms
        inside = (since >= 0) & (until > 0)
        if not self.ramp_ms:
            return np.where(inside, self.share, 0.0)
        height = np.minimum(1.0, np.minimum(since, until) / self.ramp_ms)
        return np.where(inside, self.share * height, 0.0)


def draw_adapters(resolved: Resolved, phase: Phase, arrived: Arrived, seed: int) -> Ints:
    """The adapter of each request, BASE_MODEL for the base model."""
    count = resolved.adapters.count
    popularity = phase.popularity
    rng = chance(seed, "popularity", phase.number)
    # One draw for all requests of a group; each is its own where nothing says that they ask alike.
    first = groups = np.arange(len(arrived.at_ms))
    if popularity.by is not None:
        _, first, groups = np.unique(
            _prefix_groups(arrived.row), return_index=True, return_inverse=True
        )
    if popularity.servegen and phase.arrivals.servegen is not None:
        ranks = arrived.client
    else:
        ranks = _ranks(popularity, count, arrived.at_ms[first], rng)[groups]
    if popularity.regional:
        own = chance(seed, "regional", phase.number).random(len(first))[groups]
        ranks = _regional(popularity.regional, ranks, arrived.region, own, count, seed)
    orders = _orders(popularity, count, seed)
    epoch = np.searchsorted(np.array(popularity.flips) * 1e3, arrived.at_ms, side="right")
    adapters = orders[epoch, ranks] if popularity.flips else ranks.copy()
    if phase.base_share:
        base = chance(seed, "base", phase.number).random(len(first)) < phase.base_share
        adapters[base[groups]] = BASE_MODEL
    _surge(surges(resolved, phase, seed), arrived, adapters, chance(seed, "surges", phase.number))
    return adapters


def surges(resolved: Resolved, phase: Phase, seed: int) -> list[Surge]:
    """The surges of a run, with the adapters that have their ranks when they begin."""
    orders = _orders(phase.popularity, resolved.adapters.count, seed)
    found = []
    for event in resolved.events:
        if event.surge is not None:
            epoch = sum(event.at_s >= flip for flip in phase.popularity.flips)
            found.append(_of(resolved, event.surge, event.at_s, orders[epoch]))
    return found


def _of(resolved: Resolved, surge: SurgeEvent, at_s: float, order: Ints) -> Surge:
    return Surge(
        region=None if surge.region is None else resolved.region_number(surge.region),
        adapter=int(order[surge.adapter_rank - 1]),
        at_ms=at_s * 1e3,
        ramp_ms=surge.ramp_s * 1e3,
        hold_ms=surge.hold_s * 1e3,
        share=surge.share,
    )


def _surge(found: Sequence[Surge], arrived: Arrived, adapters: Ints, rng: Generator) -> None:
    for surge in found:
        taken = rng.random(len(adapters)) < surge.shares(arrived.at_ms)
        if surge.region is not None:
            taken &= arrived.region == surge.region
        adapters[taken] = surge.adapter


def _ranks(popularity: Popularity, count: int, at_ms: Floats, rng: Generator) -> Ints:
    """A rank for each time, 0 the most popular one."""
    if popularity.servegen:
        return _client_ranks(count, at_ms, rng)
    if popularity.shares is not None:
        weights = np.array(popularity.shares)
    else:
        weights = np.arange(1, count + 1, dtype=np.float64) ** -(popularity.zipf or 0.0)
    if popularity.markov is not None:
        return _markov_ranks(popularity.markov, weights, at_ms, rng)
    return _drawn(weights, len(at_ms), rng)


def _drawn(weights: Floats, count: int, rng: Generator) -> Ints:
    edges = np.cumsum(weights / weights.sum())
    return np.minimum(
        np.searchsorted(edges, rng.random(count), side="right"), len(weights) - 1
    ).astype(np.int64)


def _client_ranks(count: int, at_ms: Floats, rng: Generator) -> Ints:
    """By the shares of servegen's clients in the window of each time."""
    windows = client_shares(count)
    which = (at_ms / (WINDOW_S * 1e3)).astype(np.int64) % len(windows)
    ranks = np.empty(len(at_ms), dtype=np.int64)
    for window in np.unique(which):
        chosen = np.flatnonzero(which == window)
        ranks[chosen] = _drawn(np.array(windows[int(window)]), len(chosen), rng)
    return ranks


def _markov_ranks(markov: Markov, weights: Floats, at_ms: Floats, rng: Generator) -> Ints:
    """Adapters are wanted or not, and change with a fixed chance a second; all are wanted where
    none is."""
    stay_on = np.exp(-_MARKOV_TICK_S / markov.on_s)
    stay_off = np.exp(-_MARKOV_TICK_S / markov.off_s)
    wanted = rng.random(len(weights)) < markov.on_s / (markov.on_s + markov.off_s)
    order = np.argsort(at_ms, kind="stable")
    ticks = (at_ms[order] / (_MARKOV_TICK_S * 1e3)).astype(np.int64)
    ranks = np.empty(len(at_ms), dtype=np.int64)
    bounds = np.searchsorted(ticks, np.arange(ticks[0], ticks[-1] + 2)) if len(ticks) else ticks
    for start, end in pairwise(bounds):
        stays = rng.random(len(weights)) < np.where(wanted, stay_on, stay_off)
        wanted = wanted == stays
        now = weights * wanted
        drawn = _drawn(now if now.any() else weights, int(end - start), rng)
        ranks[order[start:end]] = drawn
    return ranks


def _regional(share: float, ranks: Ints, region: Ints, own: Floats, count: int, seed: int) -> Ints:
    """Ranks, those of a share of the traffic permuted by their region's own permutation."""
    mapped = ranks.copy()
    for number in np.unique(region):
        # The same permutation in all phases.
        order = chance(seed, "order-of-region", int(number)).permutation(count)
        chosen = (own < share) & (region == number)
        mapped[chosen] = order[ranks[chosen]]
    return mapped


def _orders(popularity: Popularity, count: int, seed: int) -> Ints:
    """[flips passed, rank] -> adapter. At first rank and adapter are one."""
    rng = chance(seed, "flips")
    orders = [np.arange(count)]
    for _ in popularity.flips:
        orders.append(rng.permutation(orders[-1]))
    return np.stack(orders)


def _prefix_groups(rows: Ints) -> Ints:
    """A number for each row: the first block of its prompt that is not the one that all begin with,
    or one of its own where there is no other."""
    trace = mooncake()
    shared = shared_block()
    first = np.array(
        [next((b for b in row.blocks if b != shared), -1 - i) for i, row in enumerate(trace)]
    )
    lap, row = np.divmod(rows, len(trace))
    groups: Ints = first[row] + lap * (int(first.max()) + len(trace) + 2)
    return groups


def shared_block() -> int:
    """The block of Mooncake's trace that all, or almost all, prompts begin with."""
    return Counter(row.blocks[0] for row in mooncake()).most_common(1)[0][0]
