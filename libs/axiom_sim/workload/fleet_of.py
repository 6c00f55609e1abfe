"""The engines of a scenario, and what happens to them."""

from __future__ import annotations

from axiom_common.model.ids import engine_id
from axiom_sim.engine.profiles import EngineProfile
from axiom_sim.fleet.disturbances import Crash, Disturbance, Stall, Throttle
from axiom_sim.fleet.layout import EngineSpec
from axiom_sim.scenario.resolved import RegionSpec, Resolved


def make_layout(resolved: Resolved) -> tuple[EngineSpec, ...]:
    """All engines, region by region. Nodes are numbered over the whole fleet."""
    engines: list[EngineSpec] = []
    first_node = 0
    for region in resolved.regions:
        profile = engine_profile(region, resolved)
        for i in range(region.engines):
            node, place = divmod(i, region.engines_per_node)
            engines.append(
                EngineSpec(
                    number=region.first_engine + i,
                    name=engine_id(f"{region.name}-n{node}", f"e{place}"),
                    region=region.number,
                    node=first_node + node,
                    profile=profile,
                    hbm_slots=region.hbm_slots,
                    host_slots=region.host_slots,
                    controlled=resolved.controlled,
                )
            )
        first_node += -(-region.engines // region.engines_per_node)
    return tuple(engines)


def engine_profile(region: RegionSpec, resolved: Resolved) -> EngineProfile:
    """The constants of a region's engines. Adapters have sizes of their own here, so that the
    size of a rank is only what the smallest has."""
    rank = min(resolved.adapters.mib)
    return EngineProfile(
        name=region.profile_name,
        mib_per_rank=resolved.adapters.mib[rank] / rank,
        **region.profile.model_dump(),
    )


def make_disturbances(resolved: Resolved) -> tuple[Disturbance, ...]:
    """What the scenario's events do to engines, in the file's order."""
    found: list[Disturbance] = []
    for event in resolved.events:
        at_ms = event.at_s * 1e3
        if (throttle := event.throttle) is not None:
            engine = resolved.engine_number(throttle)
            found.append(Throttle(engine, throttle.factor, at_ms, throttle.for_s * 1e3))
        elif (stall := event.stall) is not None:
            engine = resolved.engine_number(stall)
            found.append(Stall(engine, at_ms, stall.for_s * 1e3, stall.every_s * 1e3, stall.times))
        elif (crash := event.crash) is not None:
            found.append(Crash(resolved.engine_number(crash), at_ms, crash.down_s * 1e3))
    return tuple(found)
