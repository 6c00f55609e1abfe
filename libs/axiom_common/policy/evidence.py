"""What a gateway knows of an engine besides the agent's report.

Rules with a memory (thermal hysteresis, an engine's own recent latency) keep it in `Memory`, a
value: whoever folds reports calls `remember` on each sample and `remember_gpus` on each reading,
and hands the result to `engine_row`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from axiom_common.model.engine import EngineState, GpuState
from axiom_common.policy.scorers.latency_health import LatencyMemory
from axiom_common.policy.scorers.thermal_safety import ThermalMemory
from axiom_common.state.liveness import SUSPECT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """The thresholds of the rules that look at one engine."""

    stale_ms: float = 1000.0
    suspect_ms: float = SUSPECT_MS
    thermal_critical_c: float = 90.0


DEFAULT_LIMITS = RuleLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What must outlive one report of an engine."""

    thermal: ThermalMemory = field(default_factory=ThermalMemory)
    latency: LatencyMemory = field(default_factory=LatencyMemory)


class Evidence(NamedTuple):
    """Everything about one engine that its own report does not say. None: not known.

    `heard_age_ms` counts from the arrival of the last report (None: never heard), `told_age_ms`
    from that of the last one that told more than figures. `ensure_failed`: since then nobody
    answered an ensure. `flapping`: its agent comes and goes. `probe_ok` is this gateway's own
    /health probe, made while the agent is silent. `gpu` are the engine's GPUs, told `gpu_age_ms`
    ago and heard to be so still `gpu_stood_ms` later. `own_*` are means over this gateway's latest
    streams.
    """

    heard_age_ms: float | None = 0.0
    told_age_ms: float = 0.0
    agent_dead: bool = False
    ensure_failed: bool = False
    flapping: bool = False
    probe_ok: bool | None = None
    breaker_open: bool = False
    gpu: tuple[GpuState, ...] = ()
    gpu_age_ms: float = 0.0
    gpu_stood_ms: float = 0.0
    own_ttft_ms: float | None = None
    own_tpot_ms: float | None = None
    cordoned: bool = False
    memory: Memory = Memory()


class Facts(NamedTuple):
    """All that the filters of one engine may look at."""

    state: EngineState
    evidence: Evidence
    thermal_slowdown: float
    limits: RuleLimits


def remember(memory: Memory, state: EngineState) -> Memory:
    """The memory after one more sample of the engine."""
    return Memory(thermal=memory.thermal, latency=memory.latency.after(state))


def remember_gpus(
    memory: Memory, gpu: tuple[GpuState, ...], *, told_ms: float, heard_ms: float
) -> Memory:
    """The memory after one more reading of the engine's GPUs; see `ThermalMemory.after`."""
    thermal = memory.thermal.after(gpu, told_ms=told_ms, heard_ms=heard_ms)
    return Memory(thermal=thermal, latency=memory.latency)
