"""Which engines a simulated fleet has."""

from __future__ import annotations

from typing import NamedTuple

from axiom_common.model.ids import EngineId
from axiom_sim.engine.profiles import EngineProfile


class EngineSpec(NamedTuple):
    """One engine: its `number` in the fleet, its region's number and its node's, and its memory for
    adapters. `controlled`: the policy may name the victim of a load; else the oldest idle one goes
    (stock)."""

    number: int
    name: EngineId
    region: int
    node: int
    profile: EngineProfile
    hbm_slots: int
    host_slots: int
    controlled: bool
