"""Whether news of an engine moves its row by more than a decision could make of it.

Figures of a busy engine differ on every beat by a little, and writing a row costs more than all
the rest of a beat. So a row stands until what it says would differ by more than `SHARE`, or a rule
would judge otherwise. What is compared is what the row was written from: small steps add up.
"""

from __future__ import annotations

from axiom_common.model.engine import EngineFigures, EngineLimits, GpuState
from axiom_common.policy.batching import load_slowdown
from axiom_common.policy.evidence import DEFAULT_LIMITS
from axiom_common.policy.scorers.kv_headroom import HARD_LIMIT, kv_slowdown
from axiom_common.policy.scorers.thermal_safety import COUNTING_BITS

SHARE = 0.02
LOAD_QUEUE_MS = 1.0
"""The rest of a load is told as a duration: each beat of one that runs differs."""


def figures_moved(before: EngineFigures, now: EngineFigures, limits: EngineLimits) -> bool:
    """Whether the rules would say something else of `now` than of `before`."""
    return (
        abs(before.load_queue_ms - now.load_queue_ms) > LOAD_QUEUE_MS
        or _differ(before.tpot_ms, now.tpot_ms)
        or _differ(before.ttft_ms, now.ttft_ms)
        or _differ(before.prefill_ms_per_token, now.prefill_ms_per_token)
        or _kv_moved(before, now)
        or _differ(
            load_slowdown(before.running, limits.max_num_seqs),
            load_slowdown(now.running, limits.max_num_seqs),
        )
    )


def gpus_moved(before: tuple[GpuState, ...], now: tuple[GpuState, ...]) -> bool:
    """Whether a rule looks at how the GPUs are: while a reason stands, at each reading."""
    return any(gpu.throttle and gpu.throttle & COUNTING_BITS for gpu in now) or [
        _judged(gpu) for gpu in before
    ] != [_judged(gpu) for gpu in now]


def _kv_moved(before: EngineFigures, now: EngineFigures) -> bool:
    if before.kv_usage is None or now.kv_usage is None:
        return before.kv_usage is not now.kv_usage
    if (before.kv_usage >= HARD_LIMIT) or (now.kv_usage >= HARD_LIMIT):
        # The requests that run are all that fit then.
        return before != now
    return abs(before.kv_usage - now.kv_usage) > SHARE or _differ(
        kv_slowdown(before.kv_usage), kv_slowdown(now.kv_usage)
    )


def _differ(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(before - now) > SHARE * max(before, now)


def _judged(gpu: GpuState) -> tuple[object, ...]:
    temperature_c = gpu.temperature_c
    return (
        gpu.index,
        gpu.throttle is None,
        (gpu.throttle or 0) & COUNTING_BITS,
        None if temperature_c is None else temperature_c >= DEFAULT_LIMITS.thermal_critical_c,
    )
