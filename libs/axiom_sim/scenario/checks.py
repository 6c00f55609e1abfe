"""What the fields of a scenario must mean together: names that exist, indexes within, tables whole.

Each check raises InvalidInputError with the `path` of the field that is wrong.
"""

from __future__ import annotations

from axiom_common.errors import InvalidInputError
from axiom_sim.scenario.schema import EngineEvent, Region, Scenario
from axiom_sim.scenario.traffic import Diurnal
from axiom_sim.scenario.values import REQUESTS_MAX

ENGINES_MAX = 100_000
"""Of the whole fleet."""
FLIPS_TIMES_ADAPTERS_MAX = 20_000_000
MARKOV_ADAPTERS_MAX = 10_000
_RING_FIELDS = ("count", "rtt_ms_neighbour", "rtt_ms_max")


def check(scenario: Scenario, *, ends: bool) -> None:
    """All checks. `ends`: something else, a phase, says when requests stop coming."""
    _regions(scenario)
    _rtt(scenario)
    _events(scenario)
    _arrivals(scenario, ends=ends)
    _popularity(scenario)
    _fits(scenario)


def _refuse(path: str, expected: str) -> InvalidInputError:
    return InvalidInputError(expected, path=path)


def region_names(scenario: Scenario) -> list[str]:
    """Of a scenario; those of a ring counted out."""
    ring = scenario.regions.get("ring")
    if ring is None:
        return list(scenario.regions)
    return [f"r{i}" for i in range(ring.count or 0)]


def _regions(scenario: Scenario) -> None:
    total = 0
    for name, region in scenario.regions.items():
        path = f"regions.{name}"
        if region.profile not in scenario.profiles:
            raise _refuse(f"{path}.profile", f"expected one of {', '.join(scenario.profiles)}")
        if name == "ring" and len(scenario.regions) > 1:
            raise _refuse(path, "a ring stands alone, its regions have names of their own")
        for field in _RING_FIELDS:
            if (getattr(region, field) is not None) != (name == "ring"):
                told = "a ring needs it" if name == "ring" else "only a ring has it"
                raise _refuse(f"{path}.{field}", told)
        total += region.engines * (region.count or 1)
    if total > ENGINES_MAX:
        raise _refuse("regions", f"expected at most {ENGINES_MAX} engines, got {total}")


def _rtt(scenario: Scenario) -> None:
    if "ring" in scenario.regions:
        if scenario.rtt_ms:
            raise _refuse("rtt_ms", "a ring says its RTT itself")
        return
    told: dict[frozenset[str], float] = {}
    for a, row in scenario.rtt_ms.items():
        if a not in scenario.regions:
            raise _refuse(f"rtt_ms.{a}", "no such region")
        for b, ms in row.items():
            if b not in scenario.regions or b == a:
                raise _refuse(f"rtt_ms.{a}.{b}", "expected another region")
            if told.setdefault(frozenset((a, b)), ms) != ms:
                raise _refuse(f"rtt_ms.{a}.{b}", f"{b}.{a} says {told[frozenset((a, b))]:g}")
    names = list(scenario.regions)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if frozenset((a, b)) not in told:
                raise _refuse(f"rtt_ms.{a}.{b}", "expected a time: both are regions")


def _events(scenario: Scenario) -> None:
    names = region_names(scenario)
    for i, event in enumerate(scenario.events):
        path = f"events.{i}.{event.kind}"
        told = getattr(event, event.kind)
        if told.region is not None and told.region not in names:
            raise _refuse(f"{path}.region", f"expected one of {_some(names)}")
        if isinstance(told, EngineEvent):
            engines = _region(scenario, told.region or names[0]).engines
            if told.engine >= engines:
                raise _refuse(f"{path}.engine", f"expected an index below {engines}")
        elif told.adapter_rank > scenario.adapters.count:
            raise _refuse(f"{path}.adapter_rank", f"expected at most {scenario.adapters.count}")


def _region(scenario: Scenario, name: str) -> Region:
    return scenario.regions.get("ring") or scenario.regions[name]


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _arrivals(scenario: Scenario, *, ends: bool) -> None:
    arrivals = scenario.arrivals
    if arrivals.endless and scenario.duration_s is None and not ends:
        raise _refuse("duration_s", "expected it: these arrivals have no end of their own")
    if arrivals.diurnal is not None:
        _diurnal(arrivals.diurnal, region_names(scenario))
    if scenario.whole and arrivals.poisson is not None:
        asked = arrivals.poisson * (scenario.duration_s or 0)
        if asked > REQUESTS_MAX:
            raise _refuse("arrivals.poisson", f"{asked:.0f} requests, {REQUESTS_MAX} are the most")


def _diurnal(diurnal: Diurnal, names: list[str]) -> None:
    for field in ("mean", "phase_s"):
        by_region = getattr(diurnal, field)
        if isinstance(by_region, dict) and by_region.keys() != set(names):
            raise _refuse(f"arrivals.diurnal.{field}", f"expected the regions {_some(names)}")


def _popularity(scenario: Scenario) -> None:
    popularity = scenario.popularity
    count = scenario.adapters.count
    if popularity.shares is not None and len(popularity.shares) != count:
        raise _refuse(
            "popularity.shares", f"expected {count}, as adapters, got {len(popularity.shares)}"
        )
    if len(popularity.flips) * count > FLIPS_TIMES_ADAPTERS_MAX:
        raise _refuse("popularity.flips", f"too many for {count} adapters")
    if popularity.markov is not None and count > MARKOV_ADAPTERS_MAX:
        raise _refuse("popularity.markov", f"expected at most {MARKOV_ADAPTERS_MAX} adapters")
    of_trace = (
        scenario.arrivals.mooncake
        or scenario.prefixes.mooncake
        or any(part.kind == "mooncake" for part in scenario.lengths.parts)
    )
    if popularity.by is not None and not of_trace:
        raise _refuse("popularity.by", "expected arrivals, lengths or prefixes of mooncake")


def _fits(scenario: Scenario) -> None:
    """What is fixed must fit into an engine; what is drawn is cut to fit."""
    kv_tokens = min(scenario.profiles[r.profile].kv_tokens for r in scenario.regions.values())
    for i, part in enumerate(scenario.lengths.parts):
        tokens = (part.fixed_in or 0) + (part.fixed_out or 0)
        if tokens > kv_tokens:
            path = "lengths.fixed" if scenario.lengths.fixed else f"lengths.mix.{i}"
            raise _refuse(path, f"{tokens} tokens, an engine holds {kv_tokens}")
    sessions = scenario.prefixes.sessions
    if sessions is not None and sessions.turns * sessions.growth_tokens > kv_tokens // 2:
        raise _refuse(
            "prefixes.sessions", f"turns x growth_tokens above half of kv_tokens ({kv_tokens})"
        )
