"""Reading metrics pages: vLLM's traps, one by one."""

from __future__ import annotations

import pytest

from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.errors import EngineCallError
from axiom_common.ports.engine import Histogram

LABELS = 'engine="0",model_name="m"'
MINIMUM = f"""\
# HELP vllm:num_requests_running Requests in the batch.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{LABELS}}} 3.0
vllm:num_requests_waiting{{{LABELS}}} 2.0
"""


def lora(running: str, waiting: str, updated: str) -> str:
    labels = f'max_lora="4",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {updated}\n"


def test_what_is_absent_is_unknown_or_nothing_yet() -> None:
    sample = read_metrics(MINIMUM)
    assert (sample.running, sample.waiting, sample.deferred) == (3, 2, 0)
    assert sample.kv_usage is None
    assert sample.max_loras is None
    assert sample.in_use == frozenset()
    assert sample.ttft == sample.tpot == sample.prefill == Histogram()
    assert sample.started_s is None


@pytest.mark.parametrize(
    "page",
    ["", "<html>busy</html>", MINIMUM.replace("running", "walking"), MINIMUM + "x" * 100_000],
    ids=["empty", "other", "no-running", "long-line"],
)
def test_only_an_engines_page_is_read(page: str) -> None:
    if page.startswith(MINIMUM):
        assert read_metrics(page).running == 3
    else:
        with pytest.raises(EngineCallError):
            read_metrics(page)


@pytest.mark.parametrize("value", ["three", "", "NaN"])
def test_a_value_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(EngineCallError):
        read_metrics(MINIMUM.replace(" 3.0", f" {value}"))


@pytest.mark.parametrize("value", ["-1.0", "1e300", "+Inf"])
def test_a_value_that_counts_nothing_is_as_if_it_were_not_there(value: str) -> None:
    with pytest.raises(EngineCallError):
        read_metrics(MINIMUM.replace(" 3.0", f" {value}"))
    page = MINIMUM + f"vllm:kv_cache_usage_perc {value}\nvllm:prompt_tokens_total {value}\n"
    page += f'vllm:num_requests_waiting_by_reason{{reason="deferred"}} {value}\n'
    sample = read_metrics(page)
    assert (sample.kv_usage, sample.prompt_tokens, sample.deferred) == (None, 0.0, 0)


@pytest.mark.parametrize("slots", ["-1", "4097", "two"])
def test_a_page_with_absurd_slots_is_refused(slots: str) -> None:
    with pytest.raises(EngineCallError, match="does not parse"):
        read_metrics(MINIMUM + lora("a", "a", "3.5e+09").replace('"4"', f'"{slots}"'))


def test_waiting_by_reason_does_not_count_as_waiting() -> None:
    page = MINIMUM + (
        f'vllm:num_requests_waiting_by_reason{{{LABELS},reason="capacity"}} 1.0\n'
        f'vllm:num_requests_waiting_by_reason{{{LABELS},reason="deferred"}} 7.0\n'
    )
    sample = read_metrics(page)
    assert (sample.waiting, sample.deferred) == (2, 7)


def test_several_engines_behind_one_page_add_up() -> None:
    page = MINIMUM + 'vllm:num_requests_running{engine="1",model_name="m"} 4.0\n'
    assert read_metrics(page).running == 7


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("vllm:kv_cache_usage_perc{e} 0.25\n", 0.25),
        ("vllm:gpu_cache_usage_perc{e} 0.5\n", 0.5),
        ("vllm:gpu_cache_usage_perc{e} 0.5\nvllm:kv_cache_usage_perc{e} 0.25\n", 0.25),
        ("vllm:kv_cache_usage_perc{e} NaN\n", None),
        ("vllm:kv_cache_usage_perc{e} +Inf\nvllm:kv_cache_usage_perc{e} 0.1\n", 0.1),
        ("vllm:kv_cache_usage_perc{e} 0.25 1796057196000\n", 0.25),
        ("vllm:kv_cache_usage_perc 0.25", 0.25),
    ],
    ids=["new", "old", "new-beats-old", "nan", "inf", "time-stamp", "bare-and-last"],
)
def test_kv_usage_under_both_names(lines: str, expected: float | None) -> None:
    assert read_metrics(MINIMUM + lines.replace("{e}", f"{{{LABELS}}}")).kv_usage == expected


def test_histograms_under_new_and_old_names_without_their_created_samples() -> None:
    name = "vllm:time_per_output_token_seconds"
    old = (
        f'{name}_bucket{{{LABELS},le="+Inf"}} 5.0\n'
        f"{name}_count{{{LABELS}}} 5.0\n"
        f"{name}_sum{{{LABELS}}} 0.75\n"
        f"{name}_created{{{LABELS}}} 1.79e+09\n"
    )
    new = old.replace("time_per_output_token", "inter_token_latency").replace(" 5.0", " 6.0")
    assert read_metrics(MINIMUM + old).tpot == Histogram(sum_s=0.75, count=5)
    assert read_metrics(MINIMUM + old + new).tpot == Histogram(sum_s=0.75, count=6)


def test_the_latest_combination_of_adapters_counts_wherever_it_stands() -> None:
    page = MINIMUM + lora("a", "a", "3.5e+09") + lora("b", "b", "3.6e+09") + lora("", "", "3e+09")
    sample = read_metrics(page)
    assert sample.in_use == {"b"}
    assert sample.max_loras == 4


def test_an_idle_engine_uses_no_adapter() -> None:
    sample = read_metrics(MINIMUM + lora("a,b", "a,b", "3.5e+09") + lora("", "", "3.6e+09"))
    assert sample.in_use == frozenset()
    assert sample.max_loras == 4


def test_adapter_lists_may_have_spaces_and_waiting_ones_are_not_in_use() -> None:
    sample = read_metrics(MINIMUM + lora("a~1, b/c~2", "d", "3.5e+09"))
    assert sample.in_use == {"a~1", "b/c~2"}


def test_label_values_may_hold_braces_quotes_and_spaces() -> None:
    page = MINIMUM.replace('model_name="m"', r'model_name="a } \"b\" 9.0"')
    assert read_metrics(page).running == 3
