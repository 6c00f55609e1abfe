"""A variant of a scenario, ready to run: regions counted out, phases one after another.

Regions are numbers here, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from axiom_sim.scenario.schema import (
    Adapters,
    EngineEvent,
    Event,
    Links,
    Profile,
    Region,
    Scenario,
    Slo,
    Telemetry,
)
from axiom_sim.scenario.traffic import Arrivals, Lengths, Popularity, Prefixes

CUT_REQUESTS = 200_000
"""A run ends after so many requests, unless its file says `whole`."""


class RegionSpec(NamedTuple):
    """One region and its engines; `first_engine` is the fleet's number of its engine 0."""

    number: int
    name: str
    engines: int
    first_engine: int
    profile_name: str
    profile: Profile
    hbm_slots: int
    host_slots: int
    engines_per_node: int
    links: Links | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """From `start_ms` to `end_ms` requests come so. `end_ms` None: as long as the trace lasts."""

    number: int
    start_ms: float
    end_ms: float | None
    arrivals: Arrivals
    popularity: Popularity
    lengths: Lengths
    prefixes: Prefixes
    base_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One variant of a scenario. `rtt_ms[a][b]` between regions, 0 within one."""

    scenario: str
    variant: str
    about: str
    regions: tuple[RegionSpec, ...]
    rtt_ms: tuple[tuple[float, ...], ...]
    adapters: Adapters
    phases: tuple[Phase, ...]
    telemetry: Telemetry
    slo: Slo
    controlled: bool
    """Whether engines let the policy name the victim of a load."""
    events: tuple[Event, ...]
    whole: bool

    def region_number(self, name: str | None) -> int:
        """The number of a region that is known to be there; the first, where none is named."""
        if name is None:
            return 0
        return next(region.number for region in self.regions if region.name == name)

    def engine_number(self, event: EngineEvent) -> int:
        """The fleet's number of the engine that an event hits."""
        return self.regions[self.region_number(event.region)].first_engine + event.engine

    @property
    def kv_tokens(self) -> int:
        """What every engine can hold: no request may need more."""
        return min(region.profile.kv_tokens for region in self.regions)


def region_specs(scenario: Scenario) -> tuple[RegionSpec, ...]:
    """The regions of a scenario whose profiles are known to be there."""
    specs: list[RegionSpec] = []
    first = 0
    for name, region in _named(scenario.regions).items():
        links = region.links
        specs.append(
            RegionSpec(
                number=len(specs),
                name=name,
                engines=region.engines,
                first_engine=first,
                profile_name=region.profile,
                profile=scenario.profiles[region.profile],
                hbm_slots=region.hbm_slots,
                host_slots=region.host_slots,
                engines_per_node=links.engines_per_node
                if links is not None
                else region.engines_per_node or 1,
                links=links,
            )
        )
        first += region.engines
    return tuple(specs)


def _named(regions: Mapping[str, Region]) -> Mapping[str, Region]:
    ring = regions.get("ring")
    if ring is None:
        return regions
    return {f"r{i}": ring for i in range(ring.count or 0)}


def rtt_table(scenario: Scenario) -> tuple[tuple[float, ...], ...]:
    """RTT between all regions of a scenario whose table is known to be complete."""
    ring = scenario.regions.get("ring")
    if ring is not None:
        count, step, most = ring.count or 0, ring.rtt_ms_neighbour or 0.0, ring.rtt_ms_max or 0.0
        away = [min(d, count - d) for d in range(count)]
        return tuple(
            tuple(min(away[abs(a - b)] * step, most) for b in range(count)) for a in range(count)
        )
    told = {frozenset((a, b)): ms for a, row in scenario.rtt_ms.items() for b, ms in row.items()}
    return tuple(
        tuple(0.0 if a == b else told[frozenset((a, b))] for b in scenario.regions)
        for a in scenario.regions
    )
