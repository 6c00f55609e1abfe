"""The simulated engine's metrics page, by the driver's reader and by Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_sim.engine.batch import Batch, Sequence
from axiom_sim.engine.kv_blocks import KvBlocks
from axiom_sim.engine.metrics_page import EngineMetrics
from axiom_sim.engine.profiles import PROFILES
from axiom_sim.engine.slots import AdapterSlots


def make(*, max_loras: int = 2) -> tuple[EngineMetrics, Batch]:
    batch = Batch(
        profile=PROFILES["tiny"],
        max_num_seqs=4,
        slots=AdapterSlots(hbm_slots=max_loras, host_slots=4),
        kv=KvBlocks(blocks=100, block_tokens=16),
    )
    return EngineMetrics(model_name="m", max_loras=max_loras, started_unix_s=50.0), batch


def finished(*, arrived_ms: float, tokens_ms: list[float]) -> list[Sequence]:
    """A request as it stands after each of its tokens."""
    stages = []
    for number, token_ms in enumerate(tokens_ms, start=1):
        stages.append(
            Sequence(
                adapter=None,
                prompt_tokens=8,
                chunks=(),
                output_tokens=len(tokens_ms),
                arrived_ms=arrived_ms,
                prefilled=8,
                generated=number,
                scheduled_ms=arrived_ms + 5,
                first_token_ms=tokens_ms[0],
                last_token_ms=token_ms,
                token_gap_ms=token_ms - tokens_ms[number - 2] if number > 1 else 0.0,
            )
        )
    return stages


def test_latencies_add_up() -> None:
    metrics, batch = make()
    for stage in finished(arrived_ms=100.0, tokens_ms=[150.0, 160.0, 180.0]):
        metrics.observe_step([stage], "", 1.0)
    sample = read_metrics(metrics.page(batch))
    assert sample.ttft.sum_s == pytest.approx(0.050)
    assert sample.ttft.count == 1
    assert sample.tpot.sum_s == pytest.approx(0.030)
    assert sample.tpot.count == 2
    assert sample.prefill.sum_s == pytest.approx(0.045)
    assert sample.started_s == 50.0
    assert metrics.finished["length"] == 1


def test_the_page_is_valid_and_buckets_are_cumulative() -> None:
    metrics, batch = make()
    for stage in finished(arrived_ms=0.0, tokens_ms=[30.0, 90.0]):
        metrics.observe_step([stage], "a,b", 7.0)
    families = {f.name: f for f in text_string_to_metric_families(metrics.page(batch))}
    samples = families["vllm:time_to_first_token_seconds"].samples
    buckets = [s.value for s in samples if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1
    assert buckets[3] == 0
    assert buckets[4] == 1
    [info] = families["vllm:lora_requests_info"].samples
    assert info.labels == {
        "max_lora": "2",
        "running_lora_adapters": "a,b",
        "waiting_lora_adapters": "a,b",
    }
    assert info.value == 7.0


def test_before_the_first_step_nothing_is_said_of_adapters() -> None:
    metrics, batch = make()
    assert "vllm:lora_requests_info{" not in metrics.page(batch)
    assert read_metrics(metrics.page(batch)).max_loras is None


def test_an_engine_without_adapters_has_no_such_family() -> None:
    metrics, batch = make(max_loras=0)
    metrics.observe_step([], "", 1.0)
    assert "lora_requests_info" not in metrics.page(batch)


def test_combinations_stay_and_are_bounded() -> None:
    metrics, batch = make()
    for number in range(5000):
        metrics.observe_step([], f"a{number}", float(number))
    metrics.observe_step([], "a4998", 9999.0)
    page = metrics.page(batch)
    assert page.count("vllm:lora_requests_info{") == 4096
    assert read_metrics(page).in_use == {"a4998"}
