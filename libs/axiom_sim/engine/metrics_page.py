"""The engine's `/metrics`: vLLM's families, names, labels and traps.

`vllm:lora_requests_info` is written as vLLM writes it: its value is the time of the update, every
combination of labels stays on the page (here up to a bound), the lists name adapters with a
request that has produced output, both lists alike, and nothing is written while the engine idles.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from axiom_sim.engine.batch import Batch, Sequence
from axiom_sim.engine.slots import AdapterSlots

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_LORA_SERIES_MAX = 4096
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)


class Histogram:
    """Counts of values up to each bound."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.count += 1


def _histograms() -> dict[str, Histogram]:
    return {
        "vllm:request_prompt_tokens": Histogram(_TOKENS),
        "vllm:request_generation_tokens": Histogram(_TOKENS),
        "vllm:time_to_first_token_seconds": Histogram(_FIRST_TOKEN_S),
        "vllm:inter_token_latency_seconds": Histogram(_TOKEN_S),
        "vllm:request_time_per_output_token_seconds": Histogram(_TOKEN_S),
        "vllm:e2e_request_latency_seconds": Histogram(_REQUEST_S),
        "vllm:request_queue_time_seconds": Histogram(_REQUEST_S),
        "vllm:request_inference_time_seconds": Histogram(_REQUEST_S),
        "vllm:request_prefill_time_seconds": Histogram(_REQUEST_S),
        "vllm:request_decode_time_seconds": Histogram(_REQUEST_S),
    }


@dataclass(slots=True)
class EngineMetrics:
    """Counts what the page shows beyond the batch's own tallies. Times of the caller in ms."""

    model_name: str
    max_loras: int
    started_unix_s: float
    tell_loaded: bool = False
    rejected: int = 0
    requests: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FINISH_REASONS, 0))
    histograms: dict[str, Histogram] = field(default_factory=_histograms)
    _lora_updates: dict[str, float] = field(default_factory=dict)

    def observe_step(self, advanced: Iterable[Sequence], in_use: str, unix_s: float) -> None:
        """A step has ended: its sequences moved on; `in_use` names adapters, comma separated."""
        first = self.histograms["vllm:time_to_first_token_seconds"]
        between = self.histograms["vllm:inter_token_latency_seconds"]
        for sequence in advanced:
            if sequence.generated == 1:
                first.observe((sequence.last_token_ms - sequence.arrived_ms) / 1e3)
            elif sequence.generated > 1:
                between.observe(sequence.token_gap_ms / 1e3)
            if sequence.finished:
                self._observe_end(sequence)
        if self.max_loras:
            if in_use not in self._lora_updates and len(self._lora_updates) >= _LORA_SERIES_MAX:
                del self._lora_updates[next(iter(self._lora_updates))]
            self._lora_updates[in_use] = unix_s

    def _observe_end(self, sequence: Sequence) -> None:
        self.finished[sequence.ends_by] += 1
        arrived, scheduled = sequence.arrived_ms, sequence.scheduled_ms
        first, last = sequence.first_token_ms, sequence.last_token_ms
        gaps = max(1, sequence.generated - 1)
        for name, value in (
            ("vllm:request_prompt_tokens", float(sequence.prompt_tokens)),
            ("vllm:request_generation_tokens", float(sequence.generated)),
            ("vllm:request_time_per_output_token_seconds", (last - first) / gaps / 1e3),
            ("vllm:e2e_request_latency_seconds", (last - arrived) / 1e3),
            ("vllm:request_queue_time_seconds", (scheduled - arrived) / 1e3),
            ("vllm:request_inference_time_seconds", (last - scheduled) / 1e3),
            ("vllm:request_prefill_time_seconds", (first - scheduled) / 1e3),
            ("vllm:request_decode_time_seconds", (last - first) / 1e3),
        ):
            self.histograms[name].observe(value)

    def page(self, batch: Batch) -> str:
        """The whole page."""
        return "".join(self._lines(batch))

    def _lines(self, batch: Batch) -> Iterator[str]:
        own = f'engine="0",model_name="{self.model_name}"'
        deferred = batch.deferred
        yield family("process_start_time_seconds", "gauge", [("", self.started_unix_s)])
        yield family("vllm:num_requests_running", "gauge", [(own, batch.running)])
        yield family("vllm:num_requests_waiting", "gauge", [(own, batch.waiting)])
        yield family(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            [
                (f'{own},reason="capacity"', batch.waiting - deferred),
                (f'{own},reason="deferred"', deferred),
            ],
        )
        yield family(
            "vllm:engine_sleep_state",
            "gauge",
            [
                (f'{own},sleep_state="awake"', 1),
                (f'{own},sleep_state="weights_offloaded"', 0),
                (f'{own},sleep_state="discard_all"', 0),
            ],
        )
        yield family("vllm:kv_cache_usage_perc", "gauge", [(own, batch.kv_usage)])
        for name, samples in self._counters(batch, own):
            yield family(f"{name}_total", "counter", samples)
            yield family(
                f"{name}_created", "gauge", [(labels, self.started_unix_s) for labels, _ in samples]
            )
        for name, histogram in self.histograms.items():
            yield histogram_family(name, own, histogram, self.started_unix_s)
        if self.max_loras:
            yield family("vllm:lora_requests_info", "gauge", self._lora_samples())
        if self.max_loras and self.tell_loaded:
            yield from self._loaded(batch.slots, own)
        yield family("vllm:cache_config_info", "gauge", [(self._cache_labels(batch), 1)])

    def _counters(self, batch: Batch, own: str) -> list[tuple[str, list[tuple[str, float]]]]:
        tallies = batch.tallies
        hits = tallies.prefix_hit_tokens
        computed = max(0, tallies.prompt_tokens - hits)
        return [
            ("vllm:prefix_cache_queries", [(own, tallies.prefix_query_tokens)]),
            ("vllm:prefix_cache_hits", [(own, hits)]),
            ("vllm:external_prefix_cache_queries", [(own, 0)]),
            ("vllm:external_prefix_cache_hits", [(own, 0)]),
            ("vllm:num_preemptions", [(own, 0)]),
            ("vllm:prompt_tokens", [(own, tallies.prompt_tokens)]),
            (
                "vllm:prompt_tokens_by_source",
                [
                    (f'{own},source="local_compute"', computed),
                    (f'{own},source="local_cache_hit"', hits),
                    (f'{own},source="external_kv_transfer"', 0),
                ],
            ),
            (
                "vllm:prompt_tokens_cached_by_source",
                [
                    (f'{own},source="{source}"', hits if source == "device" else 0)
                    for source in ("device", "host", "p2p", "disk", "external_unspecified")
                ],
            ),
            ("vllm:generation_tokens", [(own, tallies.generation_tokens)]),
            (
                "vllm:request_success",
                [
                    (f'engine="0",finished_reason="{r}",model_name="{self.model_name}"', n)
                    for r, n in self.finished.items()
                ],
            ),
            (
                "vllm:admission_rejections",
                [
                    (f'model_name="{self.model_name}",reason="max_num_queued_reqs"', self.rejected),
                    (f'model_name="{self.model_name}",reason="max_num_queued_tokens"', 0),
                ],
            ),
        ]

    def _loaded(self, slots: AdapterSlots, own: str) -> Iterator[str]:
        """Residency as a later vLLM tells it (vLLM#54830): a copy keeps its series after its name
        was unloaded, until an LRU drops it."""
        in_hbm = {adapter.number for adapter in slots.hbm}
        levels = [(a, "gpu" if a.number in in_hbm else "cpu") for a in slots.host]
        yield family(
            "vllm:lora_adapter_loaded",
            "gauge",
            [
                (f'adapter_name="{adapter.name}",{own},level="{level}",pinned="false"', 1)
                for adapter, level in levels
            ],
        )
        for name, count in (
            ("vllm:num_gpu_loaded_lora_adapters", len(in_hbm)),
            ("vllm:num_cpu_loaded_lora_adapters", len(levels)),
            ("vllm:max_gpu_lora_adapters", slots.hbm_slots),
        ):
            yield family(name, "gauge", [(own, count)])

    def _lora_samples(self) -> list[tuple[str, float]]:
        return [
            (
                f'max_lora="{self.max_loras}",running_lora_adapters="{names}",'
                f'waiting_lora_adapters="{names}"',
                updated,
            )
            for names, updated in self._lora_updates.items()
        ]

    def _cache_labels(self, batch: Batch) -> str:
        kv = batch.kv
        return (
            f'block_size="{kv.block_tokens}",enable_prefix_caching="True",engine="0",'
            f'kv_cache_size_tokens="{kv.blocks * kv.block_tokens}",'
            f'num_gpu_blocks="{kv.blocks}",prefix_caching_hash_algo="sha256"'
        )


def family(name: str, kind: str, samples: list[tuple[str, float]]) -> str:
    """A family's part of a page; samples as (labels, value)."""
    lines = [f"# HELP {name} Simulated.\n# TYPE {name} {kind}\n"]
    lines += [f"{name}{{{labels}}} {float(value)!r}\n" for labels, value in samples if labels]
    lines += [f"{name} {float(value)!r}\n" for labels, value in samples if not labels]
    return "".join(lines)


def histogram_family(
    name: str, own: str, histogram: Histogram, created_s: float | None = None
) -> str:
    """A histogram's part of a page, its buckets with the label `le` behind the first of `own`."""
    lines = [f"# HELP {name} Simulated.\n# TYPE {name} histogram\n"]
    engine, _, model = own.partition(",")
    below = 0
    bounds = [repr(bound) for bound in histogram.bounds] + ["+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{engine},le="{bound}",{model}}} {float(below)!r}\n')
    lines.append(f"{name}_count{{{own}}} {float(histogram.count)!r}\n")
    lines.append(f"{name}_sum{{{own}}} {histogram.total!r}\n")
    if created_s is not None:
        lines.append(family(f"{name}_created", "gauge", [(own, created_s)]))
    return "".join(lines)
