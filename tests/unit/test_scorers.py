"""Queue pressure, KV headroom, thermal safety, latency health, prefix match."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engine_parts import engine_state

from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, GpuState
from axiom_common.policy.cohort import Cohort, cohort, median
from axiom_common.policy.scorers.kv_headroom import HARD_LIMIT, kv_headroom, kv_slowdown
from axiom_common.policy.scorers.latency_health import (
    SAMPLES_MAX,
    SLOWDOWN_MAX,
    LatencyMemory,
    latency_health,
    tpot_slowdown,
    ttft_excess_ms,
)
from axiom_common.policy.scorers.prefix_match import prefix_match
from axiom_common.policy.scorers.queue_pressure import queue_pressure
from axiom_common.policy.scorers.thermal_safety import (
    ENTER_MS,
    LEAVE_MS,
    ThermalMemory,
    thermal_safety,
)


def state(**changes: object) -> EngineState:
    return engine_state("n.e", **({"limits": EngineLimits(max_num_seqs=10)} | changes))


@pytest.mark.parametrize(
    ("wait_ms", "expected"), [(0.0, 1.0), (125.0, 0.75), (500.0, 0.0), (9000.0, 0.0)]
)
def test_queue_pressure(wait_ms: float, expected: float) -> None:
    assert queue_pressure(np.array([wait_ms]), 500.0)[0] == pytest.approx(expected)


def test_queue_pressure_without_a_cap_is_never_felt() -> None:
    assert queue_pressure(np.array([1e9]), float("inf"))[0] == 1.0


def test_nothing_is_credited_to_a_prefix_that_nobody_announced() -> None:
    assert prefix_match(3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("usage", "score", "slowdown"),
    [
        (None, 1.0, 1.0),
        (0.0, 1.0, 1.0),
        (0.8, 0.2, 1.0),
        (0.875, 0.125, 1.5),
        (0.9499, 0.0501, 1.9993),
        (HARD_LIMIT, 0.0, 2.0),
        (1.0, 0.0, 2.3333),
    ],
)
def test_kv_headroom(usage: float | None, score: float, slowdown: float) -> None:
    assert kv_headroom(usage) == pytest.approx(score)
    assert kv_slowdown(usage) == pytest.approx(slowdown, abs=1e-3)


def gpus(*masks: int | None) -> tuple[GpuState, ...]:
    return tuple(GpuState(index=i, throttle=mask) for i, mask in enumerate(masks))


def after(*readings: tuple[float, tuple[GpuState, ...]]) -> ThermalMemory:
    memory = ThermalMemory()
    for now_ms, reading in readings:
        memory = memory.after(reading, now_ms)
    return memory


@pytest.mark.parametrize(
    ("mask", "score"),
    [
        (0, 1.0),
        (1 | 2 | 4 | 16 | 256, 1.0),  # idle, application clocks, power cap, sync boost, display
        (8, 0.5),
        (32, 0.8),
        (64, 0.5),
        (128, 0.5),
        (1 | 32 | 64, 0.5),
    ],
)
def test_only_four_throttle_reasons_count(mask: int, score: float) -> None:
    memory = after((0.0, gpus(mask)), (ENTER_MS, gpus(mask)))
    assert thermal_safety(memory) == pytest.approx(score)


def test_a_throttle_counts_only_when_it_lasts() -> None:
    memory = after((0.0, gpus(64)), (ENTER_MS - 1.0, gpus(64)))
    assert thermal_safety(memory) == 1.0
    assert thermal_safety(memory.after(gpus(64), ENTER_MS)) == 0.5


def test_short_alarms_never_count() -> None:
    readings = [(i * 500.0, gpus(64 if i % 4 else 0)) for i in range(40)]
    assert thermal_safety(after(*readings)) == 1.0


def test_a_counted_throttle_leaves_only_after_a_long_clear_time() -> None:
    hot = after((0.0, gpus(64)), (ENTER_MS, gpus(64)))
    clear = hot.after(gpus(0), 3000.0)
    assert thermal_safety(clear.after(gpus(0), 3000.0 + LEAVE_MS - 1.0)) == 0.5
    assert thermal_safety(clear.after(gpus(0), 3000.0 + LEAVE_MS)) == 1.0
    again = clear.after(gpus(64), 3000.0 + LEAVE_MS - 1.0)
    assert thermal_safety(again.after(gpus(0), 3000.0 + LEAVE_MS + 1.0)) == 0.5


def test_the_worst_gpu_of_an_engine_counts_and_silence_changes_nothing() -> None:
    memory = after((0.0, gpus(0, 64)), (ENTER_MS, gpus(None, 64)))
    assert thermal_safety(memory) == 0.5
    assert memory.after(gpus(None), 99_000.0) == memory
    assert memory.after((), 99_000.0) == memory


NO_PEERS = Cohort()
CALM = LatencyMemory(ttft_ms=(100.0,) * 8, tpot_ms=(10.0,) * 8)
NEW = LatencyMemory(ttft_ms=(100.0,) * 3, tpot_ms=(10.0,) * 3)


@pytest.mark.parametrize(
    ("tpot_ms", "memory", "slowdown"),
    [
        (10.0, CALM, 1.0),
        (15.0, CALM, 1.0),
        (30.0, CALM, 2.0),
        (1e6, CALM, SLOWDOWN_MAX),
        (30.0, NEW, 1.0),  # too few samples to know what is usual
    ],
)
def test_tokens_slower_than_its_own_median(
    tpot_ms: float, memory: LatencyMemory, slowdown: float
) -> None:
    assert tpot_slowdown(tpot_ms, memory, NO_PEERS) == pytest.approx(slowdown)
    assert latency_health(slowdown) == pytest.approx(1.0 / slowdown)


@pytest.mark.parametrize(
    ("ttft_ms", "memory", "excess_ms"),
    [(0.0, CALM, 0.0), (300.0, CALM, 0.0), (900.0, CALM, 600.0), (900.0, NEW, 0.0)],
)
def test_first_tokens_later_than_its_own_median(
    ttft_ms: float, memory: LatencyMemory, excess_ms: float
) -> None:
    assert ttft_excess_ms(ttft_ms, memory, NO_PEERS) == pytest.approx(excess_ms)


def test_peers_count_only_when_there_are_enough() -> None:
    two = Cohort(engines=2, unloaded_tpot_ms=5.0, ttft_ms=10.0)
    assert tpot_slowdown(15.0, NEW, two) == 1.0
    assert ttft_excess_ms(100.0, NEW, two) == 0.0
    three = Cohort(engines=3, unloaded_tpot_ms=5.0, ttft_ms=10.0)
    assert tpot_slowdown(15.0, NEW, three) == pytest.approx(2.0)
    assert ttft_excess_ms(100.0, NEW, three) == pytest.approx(70.0)


def test_a_sick_engine_that_got_used_to_it_is_still_slower_than_its_peers() -> None:
    used_to_it = LatencyMemory(tpot_ms=(30.0,) * SAMPLES_MAX)
    assert tpot_slowdown(30.0, used_to_it, NO_PEERS) == 1.0
    assert tpot_slowdown(30.0, used_to_it, Cohort(engines=4, unloaded_tpot_ms=10.0)) == 2.0


def test_the_memory_is_bounded_and_skips_what_is_not_said() -> None:
    memory = LatencyMemory()
    for i in range(SAMPLES_MAX + 5):
        memory = memory.after(state(ttft_ms=float(i), tpot_ms=None))
    assert memory.tpot_ms == ()
    assert memory.ttft_ms == tuple(float(i) for i in range(5, SAMPLES_MAX + 5))


def test_load_is_no_illness() -> None:
    """TPOT of a full batch is compared as that of an unloaded engine."""
    idle = cohort([state(tpot_ms=10.0, running=0)])
    busy = cohort([state(tpot_ms=30.0, running=10)])
    assert busy.unloaded_tpot_ms == idle.unloaded_tpot_ms == 10.0


def test_the_cohort_counts_ready_engines_and_known_samples() -> None:
    found = cohort(
        [
            state(ttft_ms=10.0, prefill_ms_per_token=0.5),
            state(ttft_ms=20.0),
            state(ttft_ms=90.0, status=EngineStatus.UNREACHABLE),
            state(),
        ]
    )
    assert found == Cohort(engines=3, ttft_ms=20.0, unloaded_tpot_ms=None, prefill_ms_per_token=0.5)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([], None), ([None], None), ([3.0, None, 1.0, 2.0], 2.0), ([1.0, 2.0], 2.0)],
)
def test_median(samples: list[float | None], expected: float | None) -> None:
    assert median(samples) == expected
