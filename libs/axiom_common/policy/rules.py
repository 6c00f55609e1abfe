"""From what is known of one engine to its row: the rules, run when something changed.

The wait model follows continuous batching. Up to `seats` requests run together and wait only for
half a step and for the prefill tokens ahead of them; each of them slows the others' steps. Beyond
the seats they queue and leave it at the engine's drain rate, service time / seats. What the engine
reports as running or waiting is no part of it: the fleet counts those requests as in flight.
"""

from __future__ import annotations

from dataclasses import replace

from axiom_common.model.adapter import Residency
from axiom_common.model.engine import EngineState
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.policy.batching import LOAD_FACTOR, load_slowdown, unloaded_tpot_ms
from axiom_common.policy.cohort import Cohort, median
from axiom_common.policy.engine_row import EngineRow, WaitRule
from axiom_common.policy.evidence import DEFAULT_LIMITS, Evidence, Facts, RuleLimits
from axiom_common.policy.filters.agent_silent import loads_allowed
from axiom_common.policy.filters.staleness import stale, unheard
from axiom_common.policy.registry import ENGINE_FILTERS
from axiom_common.policy.scorers.kv_headroom import HARD_LIMIT, kv_headroom, kv_slowdown
from axiom_common.policy.scorers.latency_health import (
    SLOWDOWN_MAX,
    latency_health,
    tpot_slowdown,
    ttft_excess_ms,
)
from axiom_common.policy.scorers.thermal_safety import thermal_safety

OUTPUT_TOKENS = 200
"""Tokens that a request is expected to generate: about the mean of public chat traces (211)."""

TPOT_MS = 12.0
PREFILL_MS_PER_TOKEN = 0.15
"""An 8B model on one H100, for as long as neither the engine nor its peers have a sample."""


def engine_row(
    state: EngineState,
    evidence: Evidence,
    cohort: Cohort,
    now_ms: float,
    limits: RuleLimits = DEFAULT_LIMITS,
) -> EngineRow:
    """The row of one engine at `now_ms`. Pure; see `EngineRow` for units.

    `service_ms` is at normal speed, so that a slow-down costs what it adds and no more.
    `evidence.memory` holds the reports before this one; the GPU reading in `evidence` is applied
    as old as it is, so that a throttle counts as soon as it has stood long enough.
    """
    told_ms = now_ms - evidence.gpu_age_ms
    thermal = evidence.memory.thermal.after(
        evidence.gpu, told_ms=told_ms, heard_ms=told_ms + evidence.gpu_stood_ms
    ).slowdown(now_ms)
    facts = Facts(state=state, evidence=evidence, thermal_slowdown=thermal, limits=limits)
    seen = evidence.memory.latency
    engine_tpot_ms = unloaded_tpot_ms(state, state.tpot_ms)
    # The first real sample; a mean time of 0 is none.
    tpot_ms = engine_tpot_ms or median(seen.tpot_ms) or cohort.unloaded_tpot_ms or TPOT_MS
    prefill_ms = state.prefill_ms_per_token or cohort.prefill_ms_per_token or PREFILL_MS_PER_TOKEN
    worst_tpot_ms = _worst(engine_tpot_ms, unloaded_tpot_ms(state, evidence.own_tpot_ms))
    slow_tokens = tpot_slowdown(worst_tpot_ms, seen, cohort)
    late_ms = ttft_excess_ms(_worst(state.ttft_ms, evidence.own_ttft_ms), seen, cohort)
    service_ms = OUTPUT_TOKENS * (worst_tpot_ms or tpot_ms) * _slowdown_of(state) / slow_tokens
    latency = min(slow_tokens + late_ms / service_ms, SLOWDOWN_MAX)
    told_age_ms = evidence.told_age_ms
    return EngineRow(
        engine=state.engine,
        base_model=state.base_model,
        role=state.role,
        refusal=_refusal(facts),
        stale=stale(facts),
        unheard=unheard(facts),
        flapping=evidence.flapping,
        max_lora_rank=state.limits.max_lora_rank if state.limits.hbm_slots else 0,
        hbm_slots=state.limits.hbm_slots,
        link=state.link,
        load_queue_ms=max(0.0, state.load_queue_ms - (evidence.heard_age_ms or 0.0)),
        wait=_wait(state, tpot_ms, prefill_ms),
        prefill_ms_per_token=prefill_ms,
        service_ms=service_ms,
        kv_slowdown=kv_slowdown(state.kv_usage),
        thermal_slowdown=thermal,
        latency_slowdown=latency,
        kv_headroom=kv_headroom(state.kv_usage),
        thermal_safety=thermal_safety(thermal),
        latency_health=latency_health(latency),
        residents=_aged(state.residents, told_age_ms),
        registered=state.registered,
        loads_allowed=loads_allowed(facts),
        failures=_failures(state, told_age_ms),
    )


def _refusal(facts: Facts) -> Reason | None:
    return next((reason for reason, refuses in ENGINE_FILTERS.items() if refuses(facts)), None)


def _wait(state: EngineState, tpot_ms: float, prefill_ms: float) -> WaitRule:
    """The wait rule from the TPOT of the unloaded engine and the prefill time of a token."""
    limits = state.limits
    seats = max(1, state.running if _kv_is_full(state) else limits.max_num_seqs)
    full_batch_ms = OUTPUT_TOKENS * tpot_ms * load_slowdown(seats, limits.max_num_seqs)
    return WaitRule(
        base_ms=0.5 * tpot_ms,
        per_request_ms=full_batch_ms / seats,
        per_token_ms=prefill_ms,
        seats=seats,
        slowdown_per_request_ms=(
            OUTPUT_TOKENS * tpot_ms * (LOAD_FACTOR - 1.0) / limits.max_num_seqs
        ),
    )


def _kv_is_full(state: EngineState) -> bool:
    """True when requests wait for KV blocks: then no more run together than do now.

    A request that waits while KV is free only waits for the next step. Deferred requests wait for
    an adapter's slot, and others pass them.
    """
    full = state.kv_usage is not None and state.kv_usage >= HARD_LIMIT
    return full and state.waiting > state.deferred


def _slowdown_of(state: EngineState) -> float:
    return load_slowdown(state.running, state.limits.max_num_seqs)


def _aged(residents: tuple[Residency, ...], age_ms: float) -> tuple[Residency, ...]:
    """A load that was under way goes on while no news of it comes. The same object if there is
    none: most of the time, and cheap for who compares."""
    for resident in residents:
        if resident.remaining_ms:
            break
    else:
        return residents
    return tuple(
        replace(resident, remaining_ms=max(0.0, resident.remaining_ms - age_ms))
        for resident in residents
    )


def _failures(state: EngineState, age_ms: float) -> frozenset[EngineAdapter]:
    if not state.failures:
        return frozenset()
    return frozenset(f.adapter for f in state.failures if f.retry_in_ms > age_ms)


def _worst(one: float | None, other: float | None) -> float:
    return max(one or 0.0, other or 0.0)
