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
from axiom_common.policy.scorers.prefix_match import credited, prefix_match, uncached_tokens
from axiom_common.policy.scorers.queue_pressure import queue_pressure
from axiom_common.policy.scorers.thermal_safety import (
    LEAVE_MS,
    SUSTAINED_MS,
    UNKNOWN_MS,
    UNTOLD_MS,
    ThermalMemory,
    sustained_bits,
    thermal_safety,
)


def state(**changes: object) -> EngineState:
    return engine_state("n.e", **({"limits": EngineLimits(max_num_seqs=10)} | changes))


@pytest.mark.parametrize(
    ("wait_ms", "expected"), [(0.0, 1.0), (125.0, 0.75), (500.0, 0.0), (9000.0, 0.0)]
)
def test_queue_pressure(wait_ms: float, expected: float) -> None:
    assert queue_pressure(wait_ms, 500.0) == pytest.approx(expected)


def test_queue_pressure_without_a_cap_is_never_felt() -> None:
    assert queue_pressure(1e9, float("inf")) == 1.0


def test_a_prefix_counts_by_its_share_of_the_prompt_and_less_out_of_hbm() -> None:
    hbm, any_tier = np.array([0.0, 0.0, 80.0, 40.0]), np.array([0.0, 80.0, 80.0, 80.0])
    assert credited(hbm, any_tier).tolist() == [0.0, 40.0, 80.0, 60.0]
    # 100 tokens in 400 bytes of which 256 and none are held
    assert uncached_tokens(100, 400, np.array([256.0, 0.0])).tolist() == [36.0, 100.0]
    assert prefix_match(64.0, 36.0) == 0.64
    assert prefix_match(0.0, 0.0) == 0.0


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


def gpus(*masks: int | None, stood_ms: float | None = None) -> tuple[GpuState, ...]:
    """GPUs with these masks; each of their bits told to have stood so long."""
    return tuple(
        GpuState(
            index=i,
            throttle=mask,
            throttled_ms=tuple(
                (1 << bit, stood_ms)
                for bit in range(9)
                if stood_ms is not None and (mask or 0) & 1 << bit
            ),
        )
        for i, mask in enumerate(masks)
    )


def after(
    *readings: tuple[float, tuple[GpuState, ...]], memory: ThermalMemory | None = None
) -> ThermalMemory:
    """Each reading told at its time and confirmed until the next one came."""
    memory = memory or ThermalMemory()
    ends = [told_ms for told_ms, _ in readings[1:]] + [readings[-1][0]]
    for (told_ms, reading), end_ms in zip(readings, ends, strict=True):
        memory = memory.after(reading, told_ms=told_ms, heard_ms=end_ms)
    return memory


def score(memory: ThermalMemory, now_ms: float) -> float:
    return thermal_safety(memory.slowdown(now_ms))


HOT = after((0.0, gpus(64, stood_ms=SUSTAINED_MS)))
"""In force since 0."""


@pytest.mark.parametrize(
    ("mask", "expected"),
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
def test_only_four_throttle_reasons_count(mask: int, expected: float) -> None:
    memory = after((0.0, gpus(mask, stood_ms=1e6)))
    assert score(memory, 0.0) == pytest.approx(expected)


def test_a_throttle_counts_only_once_the_agent_saw_it_stand() -> None:
    flag = after((0.0, gpus(64, stood_ms=SUSTAINED_MS - 1.0)))
    assert score(flag, 0.0) == 1.0
    assert score(after((200.0, gpus(64, stood_ms=SUSTAINED_MS)), memory=flag), 200.0) == 0.5


def test_one_that_no_agent_timed_counts_once_it_stood_for_longer_and_was_confirmed() -> None:
    flag = ThermalMemory().after(gpus(64), told_ms=0.0, heard_ms=UNTOLD_MS - 1.0)
    assert score(flag, 99_000.0) == 1.0
    stood = flag.after(gpus(64), told_ms=0.0, heard_ms=UNTOLD_MS)
    assert score(stood, UNTOLD_MS) == 0.5


def test_short_alarms_never_count() -> None:
    readings = [
        (i * 125.0, gpus(64 if i % 3 else 0, stood_ms=125.0 * (i % 3 - 1))) for i in range(99)
    ]
    assert all(score(after(*readings[: n + 1]), n * 125.0) == 1.0 for n in range(99))


def test_a_counted_throttle_leaves_only_after_a_long_clear_time() -> None:
    clear = after((3_000.0, gpus(0)), memory=HOT.after(gpus(64), told_ms=0.0, heard_ms=3_000.0))
    assert score(clear, 3_000.0 + LEAVE_MS - 1.0) == 0.5
    assert score(clear, 3_000.0 + LEAVE_MS) == 1.0
    again = after((2_999.0 + LEAVE_MS, gpus(64)), (3_001.0 + LEAVE_MS, gpus(0)), memory=clear)
    assert score(again, 3_000.0 + LEAVE_MS) == 0.5
    late = after((3_000.0 + LEAVE_MS, gpus(64)), memory=clear)
    assert score(late, 3_000.0 + LEAVE_MS) == 1.0, "it has to stand again"


def test_each_reason_has_its_own_memory() -> None:
    warm = after((0.0, gpus(32, stood_ms=SUSTAINED_MS)))
    flag = after((1_000.0, gpus(32 | 8, stood_ms=0.0)), memory=warm)
    assert score(flag, 1_000.0) == pytest.approx(0.8)
    both = after((1_000.0, gpus(32 | 8, stood_ms=SUSTAINED_MS)), (2_000.0, gpus(32)), memory=warm)
    assert score(both, 2_000.0 + LEAVE_MS - 1.0) == 0.5
    assert score(both, 2_000.0 + LEAVE_MS) == pytest.approx(0.8)


def test_the_worst_gpu_of_an_engine_counts() -> None:
    assert score(after((0.0, gpus(None, 0, 64, 32, stood_ms=SUSTAINED_MS))), 0.0) == 0.5


def test_an_unknown_mask_neither_enters_nor_leaves_until_it_was_unknown_for_long() -> None:
    nothing = after((0.0, gpus(None)), (9_000.0, ()))
    assert score(nothing, 9_000.0) == 1.0
    gap = after((0.0, gpus(64)), (10.0, gpus(None)), (UNTOLD_MS, gpus(64)))
    assert score(gap, UNTOLD_MS) == 1.0
    unknown = after((5.0, gpus(None)), memory=HOT)
    assert score(unknown, UNKNOWN_MS - 1.0) == 0.5
    assert score(unknown, UNKNOWN_MS) == 1.0


def test_sustained_bits_are_the_counting_ones_that_stood() -> None:
    gpu = GpuState(index=0, throttle=0xFF, throttled_ms=((8, 249.0), (32, 250.0), (1, 9e9)))
    assert sustained_bits(gpu) == 32


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
