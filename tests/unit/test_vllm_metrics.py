"""Reading metrics pages: vLLM's traps, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.errors import EngineCallError
from axiom_common.model.engine import EngineRank
from axiom_common.ports.engine import EngineSample, Histogram, LoadedAdapters

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


def test_what_newer_families_count() -> None:
    page = MINIMUM + (
        f"vllm:num_preemptions_total{{{LABELS}}} 3.0\n"
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 4.0\n'
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_tokens"} 1.0\n'
        'vllm:admission_rejections_created{model_name="m",reason="max_num_queued_reqs"} 1.7e+09\n'
        f"vllm:prefix_cache_queries_total{{{LABELS}}} 640.0\n"
        f"vllm:prefix_cache_hits_total{{{LABELS}}} 320.0\n"
    )
    sample = read_metrics(page)
    assert (sample.preemptions, sample.rejections) == (3.0, 5.0)
    assert (sample.prefix_queries, sample.prefix_hits) == (640.0, 320.0)
    before = read_metrics(MINIMUM)
    assert (before.preemptions, before.rejections, before.kv_tokens) == (None, None, None)
    assert (before.prefix_queries, before.prefix_hits, before.loaded) == (None, None, None)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ('block_size="32",kv_cache_size_tokens="16384",num_gpu_blocks="512"', 16384),
        ('block_size="32",kv_cache_size_tokens="None",num_gpu_blocks="100"', 3200),
        ('block_size="16",num_gpu_blocks="100"', 1600),
        ('block_size="16",num_gpu_blocks="None"', None),
        ('block_size="16",num_gpu_blocks="' + "9" * 40 + '"', None),
    ],
    ids=["told", "not-yet-told", "older", "unknown", "absurd"],
)
def test_size_of_the_kv_cache(config: str, tokens: int | None) -> None:
    page = MINIMUM + f'vllm:cache_config_info{{{config},engine="0"}} 1.0\n'
    assert read_metrics(page).kv_tokens == tokens
    other = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="10",engine="1"} 1.0\n'
    assert read_metrics(page + other).kv_tokens == (tokens and tokens + 160)


def two_ranks(name: str, first: float, second: float, more: str = "") -> str:
    return "".join(
        f'{name}{{engine="{rank}",model_name="m"{more}}} {value}\n'
        for rank, value in enumerate((first, second))
    )


def test_data_parallel_ranks() -> None:
    page = (
        two_ranks("vllm:num_requests_running", 3, 1)
        + two_ranks("vllm:num_requests_waiting", 2, 0)
        + two_ranks("vllm:num_requests_waiting_by_reason", 1, 4, ',reason="deferred"')
        + two_ranks("vllm:kv_cache_usage_perc", 0.25, 0.75)
        + two_ranks("vllm:prompt_tokens_total", 10, 20)
        + two_ranks("vllm:time_to_first_token_seconds_count", 2, 3)
        + two_ranks("vllm:time_to_first_token_seconds_sum", 0.5, 0.25)
        + two_ranks("vllm:cache_config_info", 1, 1, ',block_size="16",num_gpu_blocks="10"')
    )
    sample = read_metrics(page)
    assert (sample.running, sample.waiting, sample.deferred) == (4, 2, 5)
    assert (sample.kv_usage, sample.kv_tokens, sample.prompt_tokens) == (0.75, 320, 30)
    assert sample.ttft == Histogram(sum_s=0.75, count=5)
    assert sample.ranks == (
        EngineRank(rank=0, running=3, waiting=2, kv_usage=0.25),
        EngineRank(rank=1, running=1, waiting=0, kv_usage=0.75),
    )
    assert read_metrics(MINIMUM).ranks == ()


def test_each_rank_that_runs_has_its_own_list_of_adapters() -> None:
    page = (
        two_ranks("vllm:num_requests_running", 1, 1)
        + two_ranks("vllm:num_requests_waiting", 0, 0)
        + lora("old", "old", "1000.0")
        + lora("a", "a", "2000.0")
        + lora("b,c", "b,c", "2000.5")
    )
    sample = read_metrics(page)
    assert sample.in_use == {"a", "b", "c"}
    assert sample.max_loras == 4
    idle = page.replace(two_ranks("vllm:num_requests_running", 1, 1), "")
    idle += two_ranks("vllm:num_requests_running", 0, 0)
    assert read_metrics(idle).in_use == frozenset()


def test_more_ranks_than_anybody_runs_are_no_engines_page() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{n}"}} 0.0\n' for n in range(65))
    with pytest.raises(EngineCallError, match="ranks"):
        read_metrics(page + 'vllm:num_requests_waiting{engine="0"} 0.0\n')


def loaded_page(gpu: tuple[str, ...], cpu: tuple[str, ...]) -> str:
    """As vLLM's proposal (#54830, #54833) shows it: one series for each adapter held, at the best
    memory that holds it; those in HBM count as host copies as well."""
    series = "".join(
        f'vllm:lora_adapter_loaded{{adapter_name="{name}",level="{level}",pinned="false"}} 1.0\n'
        for level, names in (("gpu", gpu), ("cpu", cpu))
        for name in names
    )
    return MINIMUM + (
        "# TYPE vllm:lora_adapter_loaded gauge\n" + series + "vllm:num_gpu_loaded_lora_adapters"
        f"{{{LABELS}}} {len(gpu)}.0\nvllm:num_cpu_loaded_lora_adapters{{{LABELS}}} "
        f"{len(gpu) + len(cpu)}.0\nvllm:max_gpu_lora_adapters{{{LABELS}}} 2.0\n"
    )


@pytest.mark.parametrize(
    ("gpu", "cpu"),
    [
        (("alice",), ()),
        (("bob", "carol"), ("alice",)),
        (("alice", "carol"), ("bob",)),
        (("alice", "carol"), ()),
    ],
    ids=["start", "load-two", "chat-with-the-first", "unload-one"],
)
def test_residency_as_the_engine_tells_it(gpu: tuple[str, ...], cpu: tuple[str, ...]) -> None:
    """The steps of #54833: two HBM slots, three host copies."""
    sample = read_metrics(loaded_page(gpu, cpu))
    assert sample.loaded == LoadedAdapters(hbm=frozenset(gpu), host=frozenset(cpu), hbm_slots=2)
    assert sample.max_loras == 2


def test_an_engine_that_holds_nothing_says_so() -> None:
    assert read_metrics(loaded_page((), ())).loaded == LoadedAdapters(
        hbm=frozenset(), host=frozenset(), hbm_slots=2
    )
    bare = MINIMUM + "# TYPE vllm:lora_adapter_loaded gauge\n"
    assert read_metrics(bare).loaded == LoadedAdapters(hbm=frozenset(), host=frozenset())


def test_both_levels_and_pins_and_ended_series() -> None:
    name = "vllm:lora_adapter_loaded"
    page = MINIMUM + (
        f'{name}{{adapter_name="a \\"x\\"",level="cpu",pinned="True"}} 1.0\n'
        f'{name}{{adapter_name="a \\"x\\"",level="gpu",pinned="True"}} 1.0\n'
        f'{name}{{adapter_name="b",level="cpu",pinned="false"}} 1.0\n'
        f'{name}{{adapter_name="c",level="gpu",pinned="false"}} 0.0\n'
        f'{name}{{adapter_name="{"d" * 257}",level="gpu",pinned="false"}} 1.0\n'
    )
    assert read_metrics(page).loaded == LoadedAdapters(
        hbm=frozenset({'a "x"'}), host=frozenset({"b"}), pinned=frozenset({'a "x"'})
    )


@pytest.mark.parametrize("label", ["engine", "rank"])
def test_an_adapter_is_as_resident_as_on_the_rank_where_it_is_least(label: str) -> None:
    ranks = two_ranks("vllm:num_requests_running", 0, 0) if label == "engine" else ""
    held = (("0", "everywhere", "gpu"), ("1", "everywhere", "gpu"), ("0", "half", "gpu"))
    held += (("1", "half", "cpu"), ("0", "once", "gpu"))
    page = MINIMUM.replace("vllm:num_requests_running{", "other{") if ranks else MINIMUM
    page += ranks + "".join(
        f'vllm:lora_adapter_loaded{{adapter_name="{name}",level="{level}",{label}="{rank}"}} 1.0\n'
        for rank, name, level in held
    )
    assert read_metrics(page).loaded == LoadedAdapters(
        hbm=frozenset({"everywhere"}), host=frozenset({"half"})
    )
    nothing = page.replace(f'{label}="1"}} 1.0', f'{label}="1"}} 0.0')
    nothing += f'vllm:num_gpu_loaded_lora_adapters{{{label}="1"}} 0.0\n'
    assert read_metrics(nothing).loaded == LoadedAdapters(hbm=frozenset(), host=frozenset())


def test_pages_beyond_bounds_are_refused() -> None:
    series = "".join(
        f'vllm:lora_adapter_loaded{{adapter_name="a{n}",level="gpu"}} 1.0\n' for n in range(1100)
    )
    with pytest.raises(EngineCallError, match="more than"):
        read_metrics(MINIMUM + series)
    with pytest.raises(EngineCallError, match="more than"):
        read_metrics(MINIMUM * 1100)


def test_a_page_of_a_real_engine() -> None:
    """Recorded from vLLM 0.32 with `--max-loras 2 --num-gpu-blocks-override 512` after ten
    requests, its buckets left out."""
    page = (Path(__file__).parent.parent / "recorded" / "vllm-0.32-metrics.txt").read_text()
    sample = read_metrics(page)
    assert sample == EngineSample(
        running=0,
        waiting=0,
        deferred=0,
        kv_usage=0.0,
        max_loras=2,
        ttft=Histogram(sum_s=0.11681675910949707, count=10),
        tpot=Histogram(sum_s=0.057973411999796554, count=16),
        prefill=Histogram(sum_s=0.09081340200009436, count=10),
        prompt_tokens=44,
        generation_tokens=26,
        started_s=1796057141.3,
        kv_tokens=16384,
        preemptions=0,
        rejections=0,
        prefix_queries=44,
        prefix_hits=0,
    )
