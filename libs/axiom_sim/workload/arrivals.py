"""When requests come, and in which region.

Rates that change in time become arrivals by thinning: a Poisson stream at the highest rate, of
which each arrival is kept with the share that the rate has then. It is drawn in blocks, in order of
time, so that a run that is cut needs no more than it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import pi
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from axiom_sim.scenario.resolved import Phase, RegionSpec
from axiom_sim.scenario.traffic import Arrivals, Diurnal
from axiom_sim.workload.chance import chance
from axiom_sim.workload.servegen import client_arrivals
from axiom_sim.workload.traces import mooncake

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 65_536
_LAPS_OF_A_PHASE = 1_000
_BURST_MS = 3_000.0
"""Mooncake's stamps are this far apart."""


class Arrived(NamedTuple):
    """Arrivals of a phase, in order of time.

    `row` is the row of Mooncake's trace that a request is, or would be: row follows row, and after
    the last one comes another lap, whose rows count on. No two requests of a run are the same row.
    `client` is the rank of servegen's client, -1 without one. `end_ms`: until when requests would
    have come; `cut`: there would have been more.
    """

    at_ms: Floats
    region: Ints
    client: Ints
    row: Ints
    end_ms: float
    cut: bool


class _Stream(NamedTuple):
    at_ms: Floats
    region: Ints | None
    client: Ints | None
    row: Ints | None
    end_ms: float


def draw_arrivals(
    phase: Phase, regions: Sequence[RegionSpec], adapters: int, seed: int, most: int
) -> Arrived:
    """At most `most` requests of a phase."""
    rng = chance(seed, "arrivals", phase.number)
    if phase.arrivals.mooncake:
        stream = _mooncake(phase, rng)
    elif phase.arrivals.servegen is not None:
        stream = _servegen(phase, adapters, rng, most)
    else:
        stream = _poisson(phase, regions, rng, most)
    at_ms = stream.at_ms
    end_ms, cut = stream.end_ms, len(at_ms) > most
    if cut:
        end_ms = float(at_ms[most])
    count = min(len(at_ms), most)
    none = np.full(count, -1, dtype=np.int64)
    region = stream.region
    if region is None:
        region = _regions_by_engines(regions, count, chance(seed, "regions", phase.number))
    return Arrived(
        at_ms=at_ms[:count],
        region=region[:count],
        client=none if stream.client is None else stream.client[:count],
        row=(np.arange(count) if stream.row is None else stream.row[:count])
        + phase.number * _LAPS_OF_A_PHASE * len(mooncake()),
        end_ms=end_ms,
        cut=cut,
    )


def _regions_by_engines(regions: Sequence[RegionSpec], count: int, rng: Generator) -> Ints:
    """Where nothing says how the regions share the traffic, their engines do."""
    if len(regions) == 1:
        return np.zeros(count, dtype=np.int64)
    engines = np.array([region.engines for region in regions], dtype=np.float64)
    edges = np.cumsum(engines / engines.sum())[:-1]
    return np.searchsorted(edges, rng.random(count), side="right")


def _mooncake(phase: Phase, rng: Generator) -> _Stream:
    rows = mooncake()
    at_ms = np.array([row.at_ms for row in rows]) + rng.random(len(rows)) * _BURST_MS
    order = np.argsort(at_ms, kind="stable")
    at_ms = at_ms[order] + phase.start_ms
    end_ms = phase.start_ms + rows[-1].at_ms + _BURST_MS
    if phase.end_ms is not None and phase.end_ms < end_ms:
        end_ms = phase.end_ms
        at_ms = at_ms[at_ms < end_ms]
    return _Stream(at_ms, None, None, order, end_ms)


def _servegen(phase: Phase, adapters: int, rng: Generator, most: int) -> _Stream:
    clients = adapters if phase.popularity.servegen else None
    drawn = client_arrivals(phase.arrivals, clients, rng, most)
    at_ms, client = drawn.at_ms + phase.start_ms, drawn.client
    end_ms = phase.start_ms + drawn.span_ms
    if phase.end_ms is not None and phase.end_ms < end_ms:
        end_ms = phase.end_ms
        kept = at_ms < end_ms
        at_ms, client = at_ms[kept], client[kept]
    return _Stream(at_ms, None, client, None, end_ms)


def _poisson(phase: Phase, regions: Sequence[RegionSpec], rng: Generator, most: int) -> _Stream:
    end_ms = phase.end_ms
    if end_ms is None:
        raise ValueError("these arrivals have no end of their own")
    times: list[Floats] = []
    places: list[Ints] = []
    count = 0
    diurnal = phase.arrivals.diurnal
    pieces = _pieces(phase.arrivals, end_ms - phase.start_ms)
    for from_ms, to_ms, rate in pieces:
        if diurnal is None:
            blocks = _steady(rate, from_ms, to_ms, rng)
        else:
            blocks = _thinned(_sines(diurnal, regions), from_ms, to_ms, rng)
        for at_ms, region in blocks:
            times.append(at_ms + phase.start_ms)
            places.append(region)
            count += len(at_ms)
            if count > most:
                break
        if count > most:
            break
    at_ms = np.concatenate(times) if times else np.empty(0)
    placed = np.concatenate(places) if places and diurnal is not None else None
    return _Stream(at_ms, placed, None, None, end_ms)


def _pieces(arrivals: Arrivals, span_ms: float) -> Iterator[tuple[float, float, float]]:
    """(from, to, rate) within a phase; the rate is 0 where it is not steady."""
    steps = arrivals.steps or ((0.0, arrivals.poisson or 0.0),)
    for (at_s, rate), (until_s, _) in pairwise((*steps, (span_ms / 1e3, 0.0))):
        if at_s * 1e3 < span_ms:
            yield at_s * 1e3, min(until_s * 1e3, span_ms), rate


def _steady(
    rate: float, from_ms: float, to_ms: float, rng: Generator, block_max: int = _BLOCK
) -> Iterator[tuple[Floats, Ints]]:
    """Blocks of a Poisson stream."""
    now = from_ms
    while rate > 0 and now < to_ms:
        block = min(block_max, int(rate * (to_ms - now) / 1e3 * 1.1) + 16)
        at_ms = now + np.cumsum(rng.exponential(1e3 / rate, block))
        now = float(at_ms[-1])
        at_ms = at_ms[at_ms < to_ms]
        yield at_ms, np.zeros(len(at_ms), dtype=np.int64)


class _Sines(NamedTuple):
    means: Floats
    swing: float
    phases_ms: Floats
    period_ms: float

    def rates(self, at_ms: Floats) -> Floats:
        """[time, region], requests a second."""
        angle = 2 * pi * (at_ms[:, None] - self.phases_ms[None, :]) / self.period_ms
        return self.means * (1 + self.swing * np.sin(angle))


def _sines(diurnal: Diurnal, regions: Sequence[RegionSpec]) -> _Sines:
    def of(value: float | dict[str, float] | None) -> Floats:
        if isinstance(value, dict):
            return np.array([value[region.name] for region in regions])
        return np.full(len(regions), value or 0.0)

    phases_s = of(diurnal.phase_s)
    if diurnal.phase == "even":
        phases_s = np.arange(len(regions)) * diurnal.period_s / len(regions)
    return _Sines(of(diurnal.mean), diurnal.swing, phases_s * 1e3, diurnal.period_s * 1e3)


def _thinned(
    sines: _Sines, from_ms: float, to_ms: float, rng: Generator
) -> Iterator[tuple[Floats, Ints]]:
    """Blocks of all regions' streams at once: a kept arrival falls to a region by its part of the
    rate."""
    highest = float(sines.means.sum()) * (1 + sines.swing)
    block = max(256, _BLOCK // len(sines.means))
    for at_ms, _ in _steady(highest, from_ms, to_ms, rng, block):
        edges = np.cumsum(sines.rates(at_ms), axis=1)
        level = rng.random(len(at_ms)) * highest
        region = (edges <= level[:, None]).sum(axis=1)
        kept = region < len(sines.means)
        yield at_ms[kept], region[kept]
