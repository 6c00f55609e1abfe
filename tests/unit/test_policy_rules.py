"""From an engine's state to its row: defaults for the unknown, and the wait model."""

from __future__ import annotations

import pytest
from tests.engine_parts import engine_state
from tests.fleet_parts import adapter, engine, held

from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import (
    EngineLimits,
    EngineState,
    EngineStatus,
    GpuState,
    LoadFailure,
)
from axiom_common.model.reason import Reason
from axiom_common.policy.batching import LOAD_FACTOR, load_slowdown
from axiom_common.policy.cohort import Cohort
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.evidence import Evidence, Memory, RuleLimits, remember, remember_gpus
from axiom_common.policy.rules import OUTPUT_TOKENS, PREFILL_MS_PER_TOKEN, TPOT_MS, engine_row
from axiom_common.policy.scorers.thermal_safety import LEAVE_MS, SUSTAINED_MS, UNTOLD_MS

LIMITS = EngineLimits(max_num_seqs=10, hbm_slots=2, host_slots=4, max_lora_rank=32)


def state(**changes: object) -> EngineState:
    return engine_state(engine(0), **({"limits": LIMITS} | changes))


def made(
    told: EngineState, peers: Cohort | None = None, now_ms: float = 0.0, **evidence: object
) -> EngineRow:
    return engine_row(told, Evidence(**evidence), peers or Cohort(), now_ms)  # type: ignore[arg-type]


def test_what_nobody_knows_gets_a_default_and_no_blame() -> None:
    row = made(state())
    assert row.prefill_ms_per_token == PREFILL_MS_PER_TOKEN
    assert row.service_ms == OUTPUT_TOKENS * TPOT_MS
    assert (row.kv_headroom, row.thermal_safety, row.latency_health) == (1.0, 1.0, 1.0)
    assert (row.kv_slowdown, row.thermal_slowdown, row.latency_slowdown) == (1.0, 1.0, 1.0)
    assert (row.refusal, row.stale, row.unheard) == (None, False, False)


def test_peers_stand_in_for_what_the_engine_does_not_say() -> None:
    peers = Cohort(engines=3, unloaded_tpot_ms=7.0, prefill_ms_per_token=0.5)
    row = made(state(), peers)
    assert (row.prefill_ms_per_token, row.service_ms) == (0.5, OUTPUT_TOKENS * 7.0)
    row = made(state(tpot_ms=9.0, prefill_ms_per_token=0.2), peers)
    assert (row.prefill_ms_per_token, row.service_ms) == (0.2, OUTPUT_TOKENS * 9.0)


def test_a_mean_time_of_zero_is_no_sample() -> None:
    row = made(state(tpot_ms=0.0, prefill_ms_per_token=0.0), Cohort(engines=1))
    assert (row.prefill_ms_per_token, row.service_ms) == (
        PREFILL_MS_PER_TOKEN,
        OUTPUT_TOKENS * TPOT_MS,
    )


@pytest.mark.parametrize(("running", "slowdown"), [(0, 1.0), (5, 2.0), (10, 3.0), (25, 3.0)])
def test_steps_slow_down_with_the_batch(running: int, slowdown: float) -> None:
    assert LOAD_FACTOR == 3.0
    assert load_slowdown(running, 10) == pytest.approx(slowdown)
    row = made(state(running=running, tpot_ms=12.0 * slowdown))
    assert row.service_ms == pytest.approx(OUTPUT_TOKENS * 12.0 * slowdown)
    # half a step; the batch counts through the requests in flight
    assert row.wait.base_ms == pytest.approx(6.0)
    # one more request slows the others alike, whatever runs now
    assert row.wait.slowdown_per_request_ms == pytest.approx(OUTPUT_TOKENS * 12.0 * 2.0 / 10)


@pytest.mark.parametrize(
    ("changes", "seats", "drained_ms"),
    [
        ({}, 10, 600.0),
        ({"running": 10, "waiting": 4}, 10, 600.0),
        # a request that waits while KV is free waits for the next step only
        ({"running": 3, "waiting": 4, "kv_usage": 0.5}, 10, 600.0),
        ({"running": 3, "waiting": 4, "kv_usage": 0.97}, 3, 1066.667),
        ({"running": 3, "waiting": 4, "deferred": 4, "kv_usage": 0.97}, 10, 600.0),
        ({"running": 0, "waiting": 4, "kv_usage": 0.97}, 1, 2400.0),
    ],
)
def test_seats(changes: dict[str, object], seats: int, drained_ms: float) -> None:
    """Answers of 200 tokens; a token takes 10 ms alone, 30 ms with 10 in the batch, 16 with 3."""
    row = made(state(**changes), Cohort(engines=1, unloaded_tpot_ms=10.0))
    assert row.wait.seats == seats
    assert row.wait.per_request_ms == pytest.approx(drained_ms)


@pytest.mark.parametrize(
    ("told", "evidence", "reason"),
    [
        (state(status=EngineStatus.STARTING), {}, Reason.NOT_READY),
        (state(status=EngineStatus.DRAINING), {}, Reason.DRAINING),
        (state(), {"cordoned": True}, Reason.DRAINING),
        (state(), {"breaker_open": True}, Reason.BREAKER_OPEN),
        (state(), {"agent_dead": True, "probe_ok": False}, Reason.NOT_READY),
        (state(status=EngineStatus.STARTING), {"breaker_open": True}, Reason.NOT_READY),
    ],
)
def test_the_engines_own_refusal(
    told: EngineState, evidence: dict[str, object], reason: Reason
) -> None:
    assert made(told, **evidence).refusal is reason


def test_a_throttle_counts_once_it_has_stood_and_is_critical_when_hot() -> None:
    def hot(stood_ms: float, temperature_c: float = 95.0) -> tuple[GpuState, ...]:
        told = ((64, stood_ms),)
        return (GpuState(index=0, throttle=64, throttled_ms=told, temperature_c=temperature_c),)

    early = made(state(), gpu=hot(SUSTAINED_MS - 1.0))
    assert (early.thermal_safety, early.refusal) == (1.0, None)
    late = made(state(), gpu=hot(SUSTAINED_MS))
    assert (late.thermal_safety, late.thermal_slowdown) == (0.5, 2.0)
    assert late.refusal is Reason.THERMAL_CRITICAL
    assert made(state(), gpu=hot(SUSTAINED_MS, 80.0)).refusal is None


def test_a_throttle_of_untold_duration_counts_without_a_new_reading_while_its_node_is_heard() -> (
    None
):
    hot = (GpuState(index=0, throttle=64),)
    times = {"gpu": hot, "now_ms": 9_000.0, "gpu_age_ms": UNTOLD_MS}
    assert made(state(), **times, gpu_stood_ms=UNTOLD_MS).thermal_safety == 0.5
    assert made(state(), **times, gpu_stood_ms=UNTOLD_MS - 1.0).thermal_safety == 1.0


def test_a_throttle_leaves_as_time_passes_without_a_new_reading() -> None:
    hot = (GpuState(index=0, throttle=8, throttled_ms=((8, 500.0),)),)
    memory = remember_gpus(Memory(), hot, told_ms=0.0, heard_ms=400.0)
    clear = {"gpu": (GpuState(index=0, throttle=0),), "memory": memory}
    kept = made(state(), now_ms=399.0 + LEAVE_MS, gpu_age_ms=LEAVE_MS - 100.0, **clear)
    assert kept.thermal_safety == 0.5
    left = made(state(), now_ms=400.0 + LEAVE_MS, gpu_age_ms=LEAVE_MS - 99.0, **clear)
    assert left.thermal_safety == 1.0


def test_a_micro_stall_shows_in_own_streams_first() -> None:
    memory = Memory()
    for _ in range(8):
        memory = remember(memory, state(tpot_ms=10.0, ttft_ms=50.0))
    calm = made(state(tpot_ms=10.0), memory=memory)
    stalled = made(state(tpot_ms=10.0), memory=memory, own_tpot_ms=60.0)
    assert calm.latency_health == 1.0
    assert stalled.latency_health < 0.5
    assert stalled.latency_slowdown == pytest.approx(4.0)
    assert stalled.service_ms == pytest.approx(OUTPUT_TOKENS * 15.0)
    late = made(state(tpot_ms=10.0), memory=memory, own_ttft_ms=450.0)
    assert (late.latency_slowdown - 1.0) * late.service_ms == pytest.approx(300.0)


def test_silence_is_no_symptom() -> None:
    """An avoided engine has no samples: what it once was is no evidence against it now."""
    memory = Memory()
    for _ in range(8):
        memory = remember(memory, state(tpot_ms=40.0))
    peers = Cohort(engines=4, unloaded_tpot_ms=10.0)
    sick = made(state(tpot_ms=40.0), peers, memory=memory)
    assert sick.latency_slowdown == pytest.approx(4.0 / 1.5)
    silent = made(state(), peers, memory=memory)
    assert silent.latency_slowdown == 1.0
    assert silent.service_ms == OUTPUT_TOKENS * 40.0


def test_a_slowdown_costs_what_it_adds() -> None:
    """30 ms a token where 15 would be tolerated: 15 ms x tokens. A late first token: its delay."""
    memory = Memory()
    for _ in range(8):
        memory = remember(memory, state(tpot_ms=10.0, ttft_ms=50.0))
    slow = made(state(tpot_ms=30.0), memory=memory)
    assert slow.latency_slowdown == pytest.approx(2.0)
    assert slow.service_ms == pytest.approx(OUTPUT_TOKENS * 15.0)
    late = made(state(tpot_ms=10.0, ttft_ms=450.0), memory=memory)
    assert (late.latency_slowdown - 1.0) * late.service_ms == pytest.approx(300.0)


def test_time_goes_on_while_no_news_comes() -> None:
    told = state(
        load_queue_ms=500.0,
        residents=(held(adapter(1), AdapterState.LOADING, remaining_ms=300.0),),
        failures=(
            LoadFailure(adapter=adapter(2), reason=Reason.ADAPTER_NOT_FOUND, retry_in_ms=300.0),
            LoadFailure(adapter=adapter(3), reason=Reason.ADAPTER_NOT_FOUND, retry_in_ms=900.0),
        ),
    )
    row = made(told, heard_age_ms=400.0, told_age_ms=400.0)
    assert row.load_queue_ms == 100.0
    assert row.residents[0].remaining_ms == 0.0
    assert row.failures == {adapter(3)}
    assert made(told, heard_age_ms=600.0).load_queue_ms == 0.0


def test_figures_that_are_fresh_make_nothing_else_younger() -> None:
    """A beat tells how long the loads take, and nothing of each."""
    told = state(
        load_queue_ms=500.0,
        residents=(held(adapter(1), AdapterState.LOADING, remaining_ms=300.0),),
        failures=(
            LoadFailure(adapter=adapter(2), reason=Reason.ADAPTER_NOT_FOUND, retry_in_ms=300.0),
        ),
    )
    row = made(told, heard_age_ms=0.0, told_age_ms=400.0)
    assert (row.load_queue_ms, row.residents[0].remaining_ms) == (500.0, 0.0)
    assert row.failures == frozenset()


@pytest.mark.parametrize(
    ("age_ms", "stale", "unheard"),
    [(10.0, False, False), (800.0, True, False), (None, False, True)],
)
def test_staleness_lowers_no_score(age_ms: float | None, stale: bool, unheard: bool) -> None:
    evidence = Evidence(heard_age_ms=age_ms)
    row = engine_row(state(kv_usage=0.5), evidence, Cohort(), 0.0, RuleLimits(stale_ms=500.0))
    assert (row.stale, row.unheard) == (stale, unheard)
    assert row.kv_headroom == 0.5


def test_a_silent_agent_leaves_what_the_engine_answers_to() -> None:
    told = state(registered=(adapter(1),), residents=(held(adapter(1)),))
    assert made(told).loads_allowed
    silent = made(told, agent_dead=True)
    assert not silent.loads_allowed
    assert silent.registered == (adapter(1),)
    assert [r.adapter for r in silent.residents] == [adapter(1)]


def test_an_engine_without_slots_takes_no_adapters() -> None:
    assert made(state(limits=EngineLimits(max_lora_rank=64, hbm_slots=0))).max_lora_rank == 0
    assert made(state()).max_lora_rank == 32
