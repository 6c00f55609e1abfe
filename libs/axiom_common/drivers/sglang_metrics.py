"""Reading an SGLang server's `/metrics` and `/v1/loads`.

What is taken from where, and SGLang's traps, kept here and nowhere else (read in its source:
srt/observability/metrics_collector.py, srt/entrypoints/v1_loads.py, srt/lora/mem_pool.py):

- The gauges of `/metrics` are written when the scheduler logs, and on an idle engine each 30 s: a
  request that ended may run there for half a minute. `/v1/loads` is written by every step, so what
  it tells goes first. Releases without it have the gauges alone.
- A server without `--enable-metrics` has no `/metrics`: then only the loads are known.
- `dp_rank` numbers data-parallel ranks. The gauges of tensor-parallel ranks, and of priorities,
  repeat what their data-parallel rank told: of each of those the largest sample counts.
- `sglang:time_to_first_token_seconds` of a request that does not stream (`is_streaming="false"`) is
  the time of the whole answer: it is left out.
- A retraction is what others call a preemption. Refusals are not counted.
- Prefix reuse is counted by `prefill_effective_tokens_total{mode}`: hits by tier, and `input` for
  what had to be computed. Older releases count hits when a request ends.
- The pool of adapters holds the base model, as an adapter that does nothing, before all others: it
  leaves last, so one slot less is there for adapters.
- No family names an adapter: neither residency nor use is told.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from axiom_common.drivers.prometheus_page import FIGURE_MAX, PrometheusPage, labels_of
from axiom_common.errors import EngineCallError
from axiom_common.model.engine import EngineRank
from axiom_common.ports.engine import EngineSample, Histogram
from axiom_common.wire.bounds import RANKS_MAX

RUNNING = "sglang:num_running_reqs"
WAITING = "sglang:num_queue_reqs"
USAGE = "sglang:token_usage"
KV_TOKENS = "sglang:max_total_num_tokens"
CACHE_CONFIG = "sglang:cache_config_info"
SLOTS = "sglang:lora_pool_slots_total"
RETRACTIONS = "sglang:num_retracted_requests_total"
PREFILLED = "sglang:prefill_effective_tokens_total"
CACHED = "sglang:cached_tokens_total"
PROMPT_TOKENS = "sglang:prompt_tokens_total"
GENERATION_TOKENS = "sglang:generation_tokens_total"
FIRST_TOKEN = "sglang:time_to_first_token_seconds"
BETWEEN_TOKENS = ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")
STARTED = "process_start_time_seconds"

_WHOLE_ANSWER = 'is_streaming="false"'
_SLOTS_MAX = 4096


class _AdapterPool(msgspec.Struct):
    slots_total: int = 0


class _RankLoad(msgspec.Struct):
    """One data-parallel rank now. What a release does not tell is None."""

    dp_rank: int = 0
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    token_usage: float | None = None
    max_total_num_tokens: int | None = None
    lora: _AdapterPool | None = None


class _Loads(msgspec.Struct):
    loads: list[_RankLoad]


_LOADS = msgspec.json.Decoder(_Loads)


def read_sample(page: str | None, loads: bytes | None) -> EngineSample:
    """The sample of a server whose `/metrics` and `/v1/loads` answered so; None: it has no such
    route. EngineCallError when neither tells how many requests run."""
    try:
        told = PrometheusPage(page or "")
        ranks = _ranks_of_loads(loads) or _ranks_of_page(told)
        if not ranks:
            raise EngineCallError("neither /v1/loads nor /metrics tells what runs", status=200)
        usages = [rank.token_usage for rank in ranks if rank.token_usage is not None]
        queries, hits = _prefix(told)
        return EngineSample(
            running=sum(rank.num_running_reqs for rank in ranks),
            waiting=sum(rank.num_waiting_reqs for rank in ranks),
            kv_usage=max(usages, default=None),
            max_loras=_adapter_slots(ranks),
            ttft=_first_token(told),
            tpot=told.histogram(*BETWEEN_TOKENS),
            prompt_tokens=told.total(PROMPT_TOKENS) or 0.0,
            generation_tokens=told.total(GENERATION_TOKENS) or 0.0,
            started_s=told.largest(STARTED),
            kv_tokens=_kv_tokens(ranks),
            preemptions=_over_ranks(told, RETRACTIONS),
            prefix_queries=queries,
            prefix_hits=hits,
            ranks=_told_ranks(ranks),
        )
    except (ValueError, OverflowError) as error:
        raise EngineCallError(f"the metrics do not parse: {error}", status=200) from error


def _ranks_of_loads(body: bytes | None) -> list[_RankLoad]:
    if body is None:
        return []
    try:
        ranks = _LOADS.decode(body).loads
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    for rank in ranks:
        figures: Iterable[float | None] = (
            rank.dp_rank,
            rank.num_running_reqs,
            rank.num_waiting_reqs,
            rank.token_usage,
            rank.max_total_num_tokens,
        )
        if any(figure is not None and not 0 <= figure <= FIGURE_MAX for figure in figures):
            raise ValueError("a figure of /v1/loads is none of anything")
    return _bounded(ranks)


def _ranks_of_page(page: PrometheusPage) -> list[_RankLoad]:
    """The ranks as the gauges told them last."""
    running, waiting = _by_rank(page, RUNNING), _by_rank(page, WAITING)
    usage, slots = _by_rank(page, USAGE), _by_rank(page, SLOTS)
    tokens = _by_rank(page, KV_TOKENS) or _configured(page)
    return _bounded(
        [
            _RankLoad(
                dp_rank=number,
                num_running_reqs=int(running[number]),
                num_waiting_reqs=int(waiting[number]),
                token_usage=usage.get(number),
                max_total_num_tokens=int(tokens[number]) if number in tokens else None,
                lora=_AdapterPool(int(slots[number])) if number in slots else None,
            )
            for number in sorted(running.keys() & waiting.keys())
        ]
    )


def _bounded(ranks: list[_RankLoad]) -> list[_RankLoad]:
    if len(ranks) > RANKS_MAX:
        raise ValueError(f"more than {RANKS_MAX} data-parallel ranks")
    return ranks


def _by_rank(page: PrometheusPage, name: str) -> dict[int, float]:
    """The largest sample of each data-parallel rank."""
    largest: dict[int, float] = {}
    for labels, value in page.figures(name):
        rank = _rank(labels)
        largest[rank] = max(value, largest.get(rank, 0.0))
    return largest


def _rank(labels: str) -> int:
    told = labels_of(labels).get("dp_rank", "")
    return int(told) if told.isdecimal() and len(told) <= 6 else 0


def _configured(page: PrometheusPage) -> dict[int, float]:
    """Tokens of the KV cache by rank, where they are told as pages."""
    tokens = {}
    for labels, _ in page.figures(CACHE_CONFIG):
        config = labels_of(labels)
        size, pages = config.get("page_size", ""), config.get("num_pages", "")
        if size.isdecimal() and pages.isdecimal() and len(size + pages) <= 15:
            tokens[_rank(labels)] = float(int(size) * int(pages))
    return tokens


def _over_ranks(page: PrometheusPage, name: str) -> float | None:
    by_rank = _by_rank(page, name)
    return min(sum(by_rank.values()), FIGURE_MAX) if by_rank else None


def _kv_tokens(ranks: list[_RankLoad]) -> int | None:
    """Over all ranks; None where one of them does not say."""
    tokens = 0
    for rank in ranks:
        if not rank.max_total_num_tokens:
            return None
        tokens += rank.max_total_num_tokens
    return tokens if tokens <= FIGURE_MAX else None


def _adapter_slots(ranks: list[_RankLoad]) -> int | None:
    """The slots that adapters have: those of the rank with the fewest, but for the base model's."""
    totals = [rank.lora.slots_total for rank in ranks if rank.lora is not None]
    if not totals:
        return None
    if not 0 <= min(totals) <= max(totals) <= _SLOTS_MAX:
        raise ValueError(f"{totals} slots for adapters")
    return min(totals) and max(1, min(totals) - 1)


def _told_ranks(ranks: list[_RankLoad]) -> tuple[EngineRank, ...]:
    if len(ranks) < 2:
        return ()
    return tuple(
        EngineRank(
            rank=rank.dp_rank,
            running=rank.num_running_reqs,
            waiting=rank.num_waiting_reqs,
            kv_usage=rank.token_usage,
        )
        for rank in ranks
    )


def _first_token(page: PrometheusPage) -> Histogram:
    def streamed(name: str) -> float:
        figures = page.figures(f"{FIRST_TOKEN}_{name}")
        return min(sum(v for labels, v in figures if _WHOLE_ANSWER not in labels), FIGURE_MAX)

    return Histogram(sum_s=streamed("sum"), count=streamed("count"))


def _prefix(page: PrometheusPage) -> tuple[float | None, float | None]:
    """(prompt tokens looked up, of them found in a cache)."""
    by_mode: dict[str, dict[int, float]] = {}
    for labels, value in page.figures(PREFILLED):
        largest = by_mode.setdefault(labels_of(labels).get("mode", ""), {})
        rank = _rank(labels)
        largest[rank] = max(value, largest.get(rank, 0.0))
    if by_mode:
        totals = {mode: sum(by_rank.values()) for mode, by_rank in by_mode.items()}
        hits = sum(total for mode, total in totals.items() if mode.endswith("_hit"))
        return min(sum(totals.values()), FIGURE_MAX), min(hits, FIGURE_MAX)
    prompt_tokens = page.total(PROMPT_TOKENS)
    if prompt_tokens is None:
        return None, None
    return prompt_tokens, min(page.total(CACHED) or 0.0, prompt_tokens)
