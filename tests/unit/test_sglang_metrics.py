"""Reading SGLang's metrics and loads: its traps, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from axiom_common.drivers.sglang_metrics import read_sample
from axiom_common.errors import EngineCallError
from axiom_common.model.engine import EngineRank
from axiom_common.ports.engine import EngineSample, Histogram

LABELS = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'
GAUGES = f"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{LABELS}}} 3.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{{LABELS}}} 2.0
"""


def loads(*ranks: dict[str, Any]) -> bytes:
    body = {"timestamp": "t", "version": "0.5.6", "loads": [{"dp_rank": 0} | r for r in ranks]}
    return json.dumps(body).encode()


def test_what_is_absent_is_unknown() -> None:
    assert read_sample(GAUGES, None) == EngineSample(running=3, waiting=2)


def test_loads_go_before_gauges_which_are_old() -> None:
    """The gauges of an idle engine are up to 30 s old."""
    page = GAUGES + f"sglang:token_usage{{{LABELS}}} 0.9\n"
    told = loads({"num_running_reqs": 0, "num_waiting_reqs": 0, "token_usage": 0.0})
    sample = read_sample(page, told)
    assert (sample.running, sample.waiting, sample.kv_usage) == (0, 0, 0.0)


def test_a_server_without_metrics_tells_its_loads() -> None:
    told = loads(
        {
            "num_running_reqs": 1,
            "num_waiting_reqs": 4,
            "token_usage": 0.25,
            "max_total_num_tokens": 8192,
            "lora": {"slots_used": 2, "slots_total": 5, "utilization": 0.4},
        }
    )
    sample = read_sample(None, told)
    assert sample == EngineSample(running=1, waiting=4, kv_usage=0.25, kv_tokens=8192, max_loras=4)


@pytest.mark.parametrize("page", [None, "", "<html>busy</html>", "vllm:num_requests_running 1\n"])
@pytest.mark.parametrize("told", [None, b'{"loads": []}'])
def test_a_server_that_tells_nothing_is_no_engine(page: str | None, told: bytes | None) -> None:
    with pytest.raises(EngineCallError):
        read_sample(page, told)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"loads": 1}',
        loads({"num_running_reqs": -1}),
        loads({"num_running_reqs": 1 << 60}),
        loads({"num_running_reqs": "many"}),
        loads({"token_usage": -0.5}),
        loads({"max_total_num_tokens": -1}),
        loads({"lora": {"slots_total": 5000}}),
        loads({"lora": {"slots_total": -1}}),
        loads(*[{"dp_rank": n} for n in range(65)]),
    ],
    ids=lambda told: told[:60].decode(),
)
def test_loads_that_are_none_are_refused(told: bytes) -> None:
    with pytest.raises(EngineCallError):
        read_sample(GAUGES, told)


@pytest.mark.parametrize(("slots", "for_adapters"), [(8, 7), (2, 1), (1, 1), (0, 0)])
def test_the_base_model_has_a_slot(slots: int, for_adapters: int) -> None:
    page = GAUGES + f"sglang:lora_pool_slots_total{{{LABELS}}} {slots}.0\n"
    assert read_sample(page, None).max_loras == for_adapters


def test_only_streams_tell_the_time_to_a_first_token() -> None:
    name = "sglang:time_to_first_token_seconds"
    split = (
        f'{name}_sum{{model_name="m",is_streaming="true"}} 0.5\n'
        f'{name}_sum{{model_name="m",is_streaming="false"}} 90.0\n'
        f'{name}_count{{model_name="m",is_streaming="true"}} 5.0\n'
        f'{name}_count{{model_name="m",is_streaming="false"}} 9.0\n'
    )
    older = f'{name}_sum{{model_name="m"}} 0.25\n{name}_count{{model_name="m"}} 2.0\n'
    assert read_sample(GAUGES + split, None).ttft == Histogram(sum_s=0.5, count=5)
    assert read_sample(GAUGES + older, None).ttft == Histogram(sum_s=0.25, count=2)


@pytest.mark.parametrize("name", ["inter_token_latency_seconds", "time_per_output_token_seconds"])
def test_time_between_tokens_under_both_names(name: str) -> None:
    page = GAUGES + f'sglang:{name}_sum{{m="m"}} 0.75\nsglang:{name}_count{{m="m"}} 5.0\n'
    assert read_sample(page, None).tpot == Histogram(sum_s=0.75, count=5)


def test_counters() -> None:
    page = GAUGES + (
        f"sglang:num_retracted_requests_total{{{LABELS}}} 3.0\n"
        'sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 100.0\n'
        'sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 20.0\n'
        'sglang:generation_tokens_total{model_name="m",is_streaming="true"} 50.0\n'
        f"sglang:max_total_num_tokens{{{LABELS}}} 4096.0\n"
    )
    sample = read_sample(page, None)
    assert (sample.preemptions, sample.prompt_tokens, sample.generation_tokens) == (3, 120, 50)
    assert sample.kv_tokens == 4096


def test_size_of_the_cache_in_pages() -> None:
    page = GAUGES + f'sglang:cache_config_info{{{LABELS},page_size="64",num_pages="100"}} 1.0\n'
    assert read_sample(page, None).kv_tokens == 6400


def test_prefix_reuse_by_tier_and_in_older_releases() -> None:
    by_mode = "".join(
        f'sglang:prefill_effective_tokens_total{{{LABELS},mode="{mode}"}} {count}\n'
        for mode, count in (("input", 60), ("device_hit", 30), ("host_hit", 8), ("storage_hit", 2))
    )
    sample = read_sample(GAUGES + by_mode, None)
    assert (sample.prefix_queries, sample.prefix_hits) == (100, 40)
    older = (
        'sglang:prompt_tokens_total{model_name="m"} 200.0\n'
        'sglang:cached_tokens_total{model_name="m",cache_source="device"} 50.0\n'
    )
    sample = read_sample(GAUGES + older, None)
    assert (sample.prefix_queries, sample.prefix_hits) == (200, 50)


def test_gauges_of_ranks_within_a_data_parallel_rank_are_no_further_requests() -> None:
    """Tensor-parallel ranks and priorities repeat what their data-parallel rank told."""

    def gauge(name: str, *samples: tuple[str, float]) -> str:
        return "".join(f"{name}{{{labels}}} {value}\n" for labels, value in samples)

    page = (
        gauge(
            "sglang:num_running_reqs",
            ('tp_rank="0",dp_rank="0"', 3),
            ('tp_rank="1",dp_rank="0"', 3),
            ('tp_rank="0",dp_rank="0",priority="1"', 2),
            ('tp_rank="2",dp_rank="1"', 5),
        )
        + gauge("sglang:num_queue_reqs", ('dp_rank="0"', 1), ('dp_rank="1"', 0))
        + gauge("sglang:token_usage", ('dp_rank="0"', 0.25), ('dp_rank="1"', 0.5))
        + gauge("sglang:max_total_num_tokens", ('dp_rank="0"', 100), ('dp_rank="1"', 100))
        + gauge("sglang:num_retracted_requests_total", ('tp_rank="0"', 2), ('tp_rank="1"', 2))
    )
    sample = read_sample(page, None)
    assert (sample.running, sample.waiting, sample.kv_usage, sample.kv_tokens) == (8, 1, 0.5, 200)
    assert sample.preemptions == 2
    assert sample.ranks == (
        EngineRank(rank=0, running=3, waiting=1, kv_usage=0.25),
        EngineRank(rank=1, running=5, waiting=0, kv_usage=0.5),
    )
    told = loads({"num_running_reqs": 1}, {"dp_rank": 1, "num_running_reqs": 2})
    assert [rank.running for rank in read_sample(page, told).ranks] == [1, 2]
    assert read_sample(page, told).running == 3
