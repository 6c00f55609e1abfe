"""SGLang's `/metrics` (srt/observability/metrics_collector.py) and `/v1/loads` (srt/entrypoints/
v1_loads.py, srt/managers/load_snapshot.py).

Its gauges are written when the scheduler logs: with each first token, each 40 steps, and each 30 s
while nothing runs; a page repeats them in between. The loads are as of now. Simpler than the real
thing: all requests count as streamed, and tokens are counted as they come, not when a request ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from axiom_common.drivers.system_clock import unix_s
from axiom_sim.engine.batch import Batch, Sequence
from axiom_sim.engine.metrics_page import EngineMetrics, family, histogram_family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
VERSION = "0.5.6"
_LOG_STEPS = 40
_IDLE_LOG_S = 30.0
_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("sglang:time_to_first_token_seconds", True),
    "vllm:inter_token_latency_seconds": ("sglang:inter_token_latency_seconds", False),
    "vllm:e2e_request_latency_seconds": ("sglang:e2e_request_latency_seconds", True),
}


@dataclass(slots=True)
class SglangMetrics(EngineMetrics):
    """Counts as the simulated engine does; shows as SGLang does. `batch` is what it logs."""

    batch: Batch | None = None
    _steps: int = 0
    _logged_s: float = 0.0
    _gauges: list[tuple[str, float]] = field(default_factory=list)

    def observe_step(self, advanced: Iterable[Sequence], in_use: str, unix_s: float) -> None:
        """A step has ended: its sequences moved on."""
        advanced = list(advanced)
        EngineMetrics.observe_step(self, advanced, in_use, unix_s)
        self._steps += 1
        first_token = any(sequence.generated == 1 for sequence in advanced)
        if self.batch is not None and (first_token or self._steps % _LOG_STEPS == 0):
            self._log(self.batch, unix_s)

    def _lines(self, batch: Batch) -> Iterator[str]:
        own = f'engine_type="unified",model_name="{self.model_name}",pp_rank="0",tp_rank="0"'
        now_s = unix_s()
        if now_s - self._logged_s >= _IDLE_LOG_S:
            self._log(batch, now_s)
        for name, value in self._gauges:
            yield family(name, "gauge", [(own, value)])
        tokens = batch.tallies
        hits, looked_up = tokens.prefix_hit_tokens, tokens.prefix_query_tokens
        modes = {"input": looked_up - hits, "device_hit": hits, "host_hit": 0, "storage_hit": 0}
        yield family(
            "sglang:prefill_effective_tokens_total",
            "counter",
            [(f'{own},mode="{mode}"', count) for mode, count in modes.items()],
        )
        yield family("sglang:num_retracted_requests_total", "counter", [(own, 0)])
        model = f'model_name="{self.model_name}"'
        streamed = f'{model},is_streaming="true"'
        yield family("sglang:prompt_tokens_total", "counter", [(streamed, tokens.prompt_tokens)])
        yield family(
            "sglang:generation_tokens_total", "counter", [(streamed, tokens.generation_tokens)]
        )
        if hits:
            cached = f'{model},cache_source="device"'
            yield family("sglang:cached_tokens_total", "counter", [(cached, hits)])
        yield family("sglang:num_requests_total", "counter", [(streamed, self.requests)])
        for source, (name, tells_streams) in _HISTOGRAMS.items():
            labels = streamed if tells_streams else f"{model},"
            yield histogram_family(name, labels.rstrip(","), self.histograms[source])

    def _log(self, batch: Batch, now_s: float) -> None:
        self._logged_s = now_s
        kv_tokens = batch.kv.blocks * batch.kv.block_tokens
        self._gauges = [
            ("sglang:num_running_reqs", batch.running),
            ("sglang:num_queue_reqs", batch.waiting),
            ("sglang:num_used_tokens", int(batch.kv_usage * kv_tokens)),
            ("sglang:token_usage", batch.kv_usage),
            ("sglang:max_total_num_tokens", kv_tokens),
        ]
        if self.max_loras:
            used = pool_used(batch)
            self._gauges += [
                ("sglang:lora_pool_slots_used", used),
                ("sglang:lora_pool_slots_total", self.max_loras),
                ("sglang:lora_pool_utilization", used / self.max_loras),
            ]


def pool_used(batch: Batch) -> int:
    """Slots in use, the base model's among them."""
    return len(batch.slots.hbm) + 1


def loads(batch: Batch, *, max_loras: int, max_num_seqs: int) -> dict[str, Any]:
    """The body of /v1/loads, of an engine with one data-parallel rank."""
    kv_tokens = batch.kv.blocks * batch.kv.block_tokens
    used = int(batch.kv_usage * kv_tokens)
    rank: dict[str, Any] = {
        "dp_rank": 0,
        "timestamp": unix_s(),
        "num_running_reqs": batch.running,
        "num_waiting_reqs": batch.waiting,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": kv_tokens,
        "token_usage": round(batch.kv_usage, 4),
        "gen_throughput": 0.0,
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "max_running_requests": max_num_seqs,
        "queues": {"waiting": batch.waiting, "grammar": 0, "paused": 0, "retracted": 0},
    }
    if max_loras:
        slots = pool_used(batch)
        rank["lora"] = {
            "slots_used": slots,
            "slots_total": max_loras,
            "utilization": slots / max_loras,
        }
    return {"timestamp": "2026-01-01T00:00:00+00:00", "version": VERSION, "loads": [rank]}
