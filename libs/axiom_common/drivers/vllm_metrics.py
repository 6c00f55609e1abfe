"""Reading a vLLM server's `/metrics`: only the needed families, many times a second.

vLLM's traps, kept here and nowhere else:

- `vllm:lora_requests_info` carries its content in labels and the time of writing as its value, and
  old combinations of labels stay on the page for ever: the largest value is the one that counts.
  No sample means that the engine has run no step yet. Its lists say *in use*: neither residency
  nor demand. It has no engine's number: of several data-parallel ranks each writes its own lists,
  so with those all lists of the last moment count, and none while nothing runs.
- `vllm:lora_adapter_loaded` does say residency, in releases that have it (vLLM#54830): a sample of
  1 for each adapter held, `level` being the best memory that holds it. A name that was unloaded may
  stay until an LRU drops its copy. Where the samples name ranks, an adapter is as resident as on
  the rank where it is least.
- `vllm:admission_rejections_total` counts at the front end and has no engine's number.
- `*_created` samples stand beside counters and histograms and mean nothing here.
- Families were renamed over time; each has its newest name first, and the first present one counts.
- With several data-parallel ranks behind one page there is one sample for each, told by the label
  `engine`: counts add up, of KV usage the fullest counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from axiom_common.drivers.prometheus_page import (
    FIGURE_MAX,
    PrometheusPage,
    labels_of,
    total,
)
from axiom_common.errors import EngineCallError
from axiom_common.model.engine import EngineRank
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineSample, LoadedAdapters
from axiom_common.wire.bounds import RANKS_MAX, RESIDENTS_MAX

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
CACHE_CONFIG = "vllm:cache_config_info"
PREEMPTIONS = "vllm:num_preemptions_total"
REJECTIONS = "vllm:admission_rejections_total"
PREFIX_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
PREFIX_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
LORA_INFO = "vllm:lora_requests_info"
LORA_LOADED = "vllm:lora_adapter_loaded"
LORA_IN_HBM = "vllm:num_gpu_loaded_lora_adapters"
LORA_IN_HOST = "vllm:num_cpu_loaded_lora_adapters"
LORA_HBM_SLOTS = "vllm:max_gpu_lora_adapters"
LORA_HOST_SLOTS = "vllm:max_cpu_lora_adapters"
FIRST_TOKEN = "vllm:time_to_first_token_seconds"
BETWEEN_TOKENS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
PREFILL = "vllm:request_prefill_time_seconds"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
STARTED = "process_start_time_seconds"

_DEFERRED = 'reason="deferred"'
_ENGINE = 'engine="'
_RUNNING_ADAPTERS = "running_lora_adapters"
_MAX_LORAS = "max_lora"
_SLOTS_MAX = 4096
_NAME_CHARS_MAX = 256
_RANKS_APART_S = 1.0
"""Ranks that run write their lists at each step: what none wrote for so long is over."""

_Figures = list[tuple[str, float]]


def read_metrics(text: str) -> EngineSample:
    """The sample of a page; EngineCallError when it is not the page of an engine."""
    page = PrometheusPage(text)
    try:
        running, waiting = page.figures(RUNNING), page.figures(WAITING)
        if not running or not waiting:
            raise EngineCallError(f"the metrics page has no {RUNNING}", status=200)
        kv_usage = page.figures(*KV_USAGE)
        ranks = _ranks(running, waiting, kv_usage)
        max_loras, in_use = _in_use(page, ranks=len(ranks))
        loaded = _loaded(page, {str(rank.rank) for rank in ranks})
        return EngineSample(
            running=int(total(running) or 0),
            waiting=int(total(waiting) or 0),
            deferred=_deferred(page),
            kv_usage=max((value for _, value in kv_usage), default=None),
            max_loras=loaded.hbm_slots if loaded and loaded.hbm_slots is not None else max_loras,
            in_use=in_use,
            ttft=page.histogram(FIRST_TOKEN),
            tpot=page.histogram(*BETWEEN_TOKENS),
            prefill=page.histogram(PREFILL),
            prompt_tokens=page.total(PROMPT_TOKENS) or 0.0,
            generation_tokens=page.total(GENERATION_TOKENS) or 0.0,
            started_s=page.largest(STARTED),
            loaded=loaded,
            kv_tokens=_kv_tokens(page),
            preemptions=page.total(PREEMPTIONS),
            rejections=page.total(REJECTIONS),
            prefix_queries=page.total(*PREFIX_QUERIES),
            prefix_hits=page.total(*PREFIX_HITS),
            ranks=ranks,
        )
    except (ValueError, OverflowError) as error:
        raise EngineCallError(f"the metrics page does not parse: {error}", status=200) from error


def _deferred(page: PrometheusPage) -> int:
    figures = page.figures(WAITING_BY_REASON)
    return int(total([(labels, value) for labels, value in figures if _DEFERRED in labels]) or 0)


def _ranks(running: _Figures, waiting: _Figures, kv_usage: _Figures) -> tuple[EngineRank, ...]:
    """Of more than one engine's number, what each does."""
    numbers = {_rank(labels) for labels, _ in running}
    if len(numbers) < 2 or None in numbers:
        return ()
    if len(numbers) > RANKS_MAX:
        raise ValueError(f"more than {RANKS_MAX} data-parallel ranks")
    run, wait, usage = (
        {_rank(labels): value for labels, value in figures}
        for figures in (running, waiting, kv_usage)
    )
    return tuple(
        EngineRank(
            rank=number,
            running=int(run[number]),
            waiting=int(wait.get(number, 0)),
            kv_usage=usage.get(number),
        )
        for number in sorted(number for number in numbers if number is not None)
    )


def _rank(labels: str) -> int | None:
    """The number in the label `engine`; None without one."""
    number = labels.partition(_ENGINE)[2].partition('"')[0]
    return int(number) if number.isdecimal() and len(number) <= 6 else None


def _kv_tokens(page: PrometheusPage) -> int | None:
    """Size of the KV cache, over all ranks; None where one of them does not say."""
    tokens = 0.0
    for labels, _ in page.figures(CACHE_CONFIG):
        config = labels_of(labels)
        size = _number(config.get("kv_cache_size_tokens"))
        if size is None:
            block, blocks = _number(config.get("block_size")), _number(config.get("num_gpu_blocks"))
            if block is None or blocks is None:
                return None
            size = block * blocks
        tokens += size
    return int(tokens) if 0 < tokens <= FIGURE_MAX else None


def _number(text: str | None) -> float | None:
    """vLLM writes `None` for what it does not know."""
    return float(text) if text is not None and text.isdecimal() and len(text) <= 16 else None


def _in_use(page: PrometheusPage, *, ranks: int) -> tuple[int | None, frozenset[EngineAdapter]]:
    """The engine's slots, and the adapters with a request that has produced output."""
    updates = list(page.samples(LORA_INFO))
    newest, at_s = max(updates, key=lambda update: update[1], default=("", 0.0))
    if not newest:
        return None, frozenset()
    label = labels_of(newest).get(_MAX_LORAS)
    max_loras = _slots(int(label)) if label is not None else None
    if not ranks:
        return max_loras, frozenset(_names(newest))
    if not page.total(RUNNING):
        return max_loras, frozenset()
    recent = (labels for labels, written_s in updates if written_s >= at_s - _RANKS_APART_S)
    return max_loras, frozenset(name for labels in recent for name in _names(labels))


def _names(labels: str) -> Iterable[EngineAdapter]:
    listed = labels_of(labels).get(_RUNNING_ADAPTERS, "")
    return (EngineAdapter(name.strip()) for name in listed.split(",") if name.strip())


def _loaded(page: PrometheusPage, ranks: set[str]) -> LoadedAdapters | None:
    """The engine's own word on residency; None where its release has none."""
    known = any(page.declares(name) for name in (LORA_LOADED, LORA_IN_HBM, LORA_IN_HOST))
    samples = [labels_of(labels) for labels, value in page.figures(LORA_LOADED) if value > 0]
    if not known and not samples:
        return None
    if len(samples) > RESIDENTS_MAX * max(1, len(ranks)):
        raise ValueError(f"more than {RESIDENTS_MAX} adapters are told as loaded")
    label = "engine" if ranks else "rank"
    by_rank: dict[str, dict[EngineAdapter, str]] = {rank: {} for rank in ranks}
    for labels, _ in page.figures(LORA_IN_HBM):
        # A rank that holds nothing tells so here only.
        if (rank := labels_of(labels).get(label)) is not None:
            by_rank.setdefault(rank, {})
    pinned = set()
    for told in samples:
        name = told.get("adapter_name", "")
        if not 0 < len(name) <= _NAME_CHARS_MAX:
            continue
        held = by_rank.setdefault(told.get(label, ""), {})
        if held.get(EngineAdapter(name)) != "gpu":
            held[EngineAdapter(name)] = told.get("level", "")
        if told.get("pinned", "").lower() in ("true", "1"):
            pinned.add(EngineAdapter(name))
    # A release that does not tell ranks apart speaks for all of them.
    told_ranks = [by_rank[""]] if "" in by_rank else list(by_rank.values())
    everywhere = frozenset.intersection(*(frozenset(held) for held in told_ranks or [{}]))
    hbm = frozenset(n for n in everywhere if all(held[n] == "gpu" for held in told_ranks))
    return LoadedAdapters(
        hbm=hbm,
        host=everywhere - hbm,
        pinned=frozenset(pinned) & everywhere,
        hbm_slots=_slots_told(page, LORA_HBM_SLOTS),
        host_slots=_slots_told(page, LORA_HOST_SLOTS),
    )


def _slots_told(page: PrometheusPage, name: str) -> int | None:
    """Of several ranks the fewest: an adapter must have room on each."""
    slots = min((value for _, value in page.figures(name)), default=None)
    return None if slots is None else _slots(int(slots))


def _slots(slots: int) -> int:
    if not 0 <= slots <= _SLOTS_MAX:
        raise ValueError(f"{slots} slots for adapters")
    return slots
