"""Reading an engine's `/metrics`: only the needed families, by plain search, many times a second.

vLLM's traps, kept here and nowhere else:

- `vllm:lora_requests_info` carries its content in labels and the time of writing as its value, and
  old combinations of labels stay on the page for ever: the largest value is the one that counts.
  No sample means that the engine has run no step yet. Its lists say *in use*: neither residency
  nor demand.
- `*_created` samples stand beside counters and histograms and mean nothing here.
- Families were renamed over time; each has its newest name first, and the first present one counts.
- With several engines behind one page there is one sample for each: counts add up.
- What is no count of anything (negative, infinite, absurdly large) is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from axiom_common.errors import EngineCallError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineSample, Histogram

RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
LORA_INFO = "vllm:lora_requests_info"
FIRST_TOKEN = ("vllm:time_to_first_token_seconds",)
BETWEEN_TOKENS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
PREFILL = ("vllm:request_prefill_time_seconds",)
PROMPT_TOKENS = ("vllm:prompt_tokens_total",)
GENERATION_TOKENS = ("vllm:generation_tokens_total",)
STARTED = ("process_start_time_seconds",)

_FIGURE_MAX = float(1 << 53)

_DEFERRED = 'reason="deferred"'
_RUNNING_ADAPTERS = "running_lora_adapters"
_MAX_LORAS = "max_lora"
_SLOTS_MAX = 4096
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read_metrics(page: str) -> EngineSample:
    """The sample of a page; EngineCallError when it is not the page of an engine."""
    page = "\n" + page
    try:
        running = _total(page, RUNNING)
        waiting = _total(page, WAITING)
        if running is None or waiting is None:
            raise EngineCallError(f"the metrics page has no {RUNNING[0]}", status=200)
        max_loras, in_use = _adapters_in_use(page)
        return EngineSample(
            running=int(running),
            waiting=int(waiting),
            deferred=_deferred(page),
            kv_usage=_largest(page, KV_USAGE),
            max_loras=max_loras,
            in_use=in_use,
            ttft=_histogram(page, FIRST_TOKEN),
            tpot=_histogram(page, BETWEEN_TOKENS),
            prefill=_histogram(page, PREFILL),
            prompt_tokens=_total(page, PROMPT_TOKENS) or 0.0,
            generation_tokens=_total(page, GENERATION_TOKENS) or 0.0,
            started_s=_largest(page, STARTED),
        )
    except (ValueError, OverflowError) as error:
        raise EngineCallError(f"the metrics page does not parse: {error}", status=200) from error


def _samples(page: str, name: str) -> Iterator[tuple[str, float]]:
    """(labels, value) of each sample of exactly `name`."""
    needle = "\n" + name
    start = page.find(needle)
    while start >= 0:
        end = page.find("\n", start + len(needle))
        rest = page[start + len(needle) : end if end >= 0 else len(page)]
        start = page.find(needle, start + len(needle))
        if rest.startswith("{"):
            labels, _, value = rest[1:].rpartition("}")
        elif rest.startswith(" "):
            labels, value = "", rest
        else:
            continue
        # A sample may carry a time stamp behind its value.
        yield labels, float(value.split()[0] if value.split() else "nan")


def _values(page: str, names: tuple[str, ...]) -> list[float]:
    for name in names:
        values = [value for _, value in _samples(page, name) if 0 <= value <= _FIGURE_MAX]
        if values:
            return values
    return []


def _total(page: str, names: tuple[str, ...]) -> float | None:
    values = _values(page, names)
    return min(sum(values), _FIGURE_MAX) if values else None


def _largest(page: str, names: tuple[str, ...]) -> float | None:
    return max(_values(page, names), default=None)


def _deferred(page: str) -> int:
    samples = _samples(page, WAITING_BY_REASON)
    deferred = sum(value for labels, value in samples if _DEFERRED in labels)
    return int(deferred) if 0 <= deferred <= _FIGURE_MAX else 0


def _histogram(page: str, names: tuple[str, ...]) -> Histogram:
    for name in names:
        count = _total(page, (f"{name}_count",))
        if count is not None:
            return Histogram(sum_s=_total(page, (f"{name}_sum",)) or 0.0, count=count)
    return Histogram()


def _adapters_in_use(page: str) -> tuple[int | None, frozenset[EngineAdapter]]:
    latest = max(_samples(page, LORA_INFO), key=lambda sample: sample[1], default=None)
    if latest is None:
        return None, frozenset()
    labels = dict(_LABEL.findall(latest[0]))
    names = (name.strip() for name in labels.get(_RUNNING_ADAPTERS, "").split(","))
    in_use = frozenset(EngineAdapter(name) for name in names if name)
    max_loras = int(labels[_MAX_LORAS]) if _MAX_LORAS in labels else None
    if max_loras is not None and not 0 <= max_loras <= _SLOTS_MAX:
        raise ValueError(f"{_MAX_LORAS}={max_loras}")
    return max_loras, in_use
