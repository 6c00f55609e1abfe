"""When news of an engine calls for a new row, and that what calls for none moves no prediction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_common.model.engine import (
    EngineFigures,
    EngineLimits,
    EngineState,
    EngineStatus,
    GpuState,
)
from axiom_common.model.ids import EngineId
from axiom_common.policy.cohort import Cohort
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.evidence import Evidence
from axiom_common.policy.moved import SHARE, figures_moved, gpus_moved
from axiom_common.policy.rules import engine_row

LIMITS = EngineLimits(max_num_seqs=64)
BEFORE = EngineFigures(
    sample=7,
    sample_age_ms=20.0,
    running=10,
    waiting=2,
    deferred=1,
    kv_usage=0.5,
    ttft_ms=100.0,
    tpot_ms=12.0,
    prefill_ms_per_token=0.1,
)


def row(figures: EngineFigures) -> EngineRow:
    state = EngineState(
        engine=EngineId("n.e"),
        url="http://127.0.0.1:1",
        base_model="base",
        served_name="base",
        status=EngineStatus.READY,
        limits=LIMITS,
    ).with_figures(figures)
    return engine_row(state, Evidence(), Cohort(), 0.0)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"sample": 8, "sample_age_ms": 240.0}, False),
        ({"waiting": 3, "preemptions_per_s": 1.0, "prefix_hit_share": 0.9}, False),
        ({"tpot_ms": 12.1}, False),
        ({"tpot_ms": 12.5}, True),
        ({"tpot_ms": None}, True),
        ({"ttft_ms": 103.0}, True),
        ({"prefill_ms_per_token": 0.11}, True),
        ({"kv_usage": 0.51}, False),
        ({"kv_usage": 0.53}, True),
        ({"kv_usage": 0.96}, True),
        ({"kv_usage": None}, True),
        ({"running": 12}, True),
        ({"load_queue_ms": 40.0}, True),
    ],
)
def test_what_calls_for_a_new_row(changes: dict[str, float | None], moved: bool) -> None:
    now = BEFORE._replace(**changes)  # type: ignore[arg-type]
    assert figures_moved(BEFORE, now, LIMITS) is moved
    assert figures_moved(now, BEFORE, LIMITS) is moved


def test_where_kv_is_full_what_runs_decides() -> None:
    full = BEFORE._replace(kv_usage=0.99)
    assert figures_moved(full, full._replace(waiting=5), LIMITS)
    assert not figures_moved(full, full, LIMITS)


MS = st.none() | st.floats(0.01, 1e4)
FIGURES = st.builds(
    EngineFigures,
    running=st.integers(0, 64),
    waiting=st.integers(0, 20),
    deferred=st.integers(0, 3),
    kv_usage=st.none() | st.floats(0, 1),
    ttft_ms=MS,
    tpot_ms=MS,
    prefill_ms_per_token=MS,
    load_queue_ms=st.floats(0, 1e4),
)


def near(figures: EngineFigures, by: float) -> EngineFigures:
    """Figures that differ a little in everything."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * (1 + by)

    kv = figures.kv_usage
    return figures._replace(
        ttft_ms=scaled(figures.ttft_ms),
        tpot_ms=scaled(figures.tpot_ms),
        prefill_ms_per_token=scaled(figures.prefill_ms_per_token),
        kv_usage=None if kv is None else min(1.0, kv + by),
        running=figures.running + (by > SHARE / 2),
        waiting=figures.waiting + 1,
    )


@given(before=FIGURES, by=st.floats(0.0, 2 * SHARE))
def test_what_calls_for_no_row_moves_no_prediction(before: EngineFigures, by: float) -> None:
    now = near(before, by)
    if figures_moved(before, now, LIMITS):
        return
    old, new = row(before), row(now)
    assert old.refusal is new.refusal
    assert old.wait.seats == new.wait.seats
    for one, other in (
        (old.wait.base_ms, new.wait.base_ms),
        (old.wait.per_request_ms, new.wait.per_request_ms),
        (old.prefill_ms_per_token, new.prefill_ms_per_token),
        (old.service_ms, new.service_ms),
        (old.kv_slowdown, new.kv_slowdown),
    ):
        assert other == pytest.approx(one, rel=3 * SHARE)
    for one, other in (
        (old.kv_headroom, new.kv_headroom),
        (old.latency_health, new.latency_health),
    ):
        assert other == pytest.approx(one, abs=3 * SHARE)


def gpu(throttle: int | None = 0, temperature_c: float | None = 60.0, **more: object) -> GpuState:
    return GpuState(index=0, throttle=throttle, temperature_c=temperature_c, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        ((), (), False),
        ((gpu(),), (gpu(temperature_c=70.0, power_w=500.0),), False),
        ((gpu(),), (gpu(throttle=4),), False),
        ((gpu(),), (gpu(throttle=64),), True),
        ((gpu(throttle=64),), (gpu(throttle=64),), True),
        ((gpu(throttle=64),), (gpu(),), True),
        ((gpu(),), (gpu(throttle=None),), True),
        ((gpu(throttle=None),), (gpu(throttle=None),), False),
        ((gpu(),), (gpu(temperature_c=91.0),), True),
        ((gpu(),), (), True),
    ],
)
def test_gpus_call_for_a_row_when_a_rule_would_judge_otherwise(
    before: tuple[GpuState, ...], now: tuple[GpuState, ...], moved: bool
) -> None:
    assert gpus_moved(before, now) is moved
