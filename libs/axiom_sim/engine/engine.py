"""The engine behind the HTTP surface: names, memory, batch and faults put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from axiom_common.drivers.system_clock import unix_s
from axiom_common.ports.clock import Clock
from axiom_sim.engine.adapters import AdapterNames, AdapterStore
from axiom_sim.engine.answers import Answer, Usage
from axiom_sim.engine.batch import Batch, Sequence
from axiom_sim.engine.compose import compose, prompt_too_long
from axiom_sim.engine.kv_blocks import KvBlocks
from axiom_sim.engine.metrics_page import EngineMetrics
from axiom_sim.engine.openai_api import EmbeddingQuestion, Question
from axiom_sim.engine.profiles import PROFILES, EngineProfile
from axiom_sim.engine.prompts import Prompt, embedding, read_prompt
from axiom_sim.engine.refusals import (
    RefusedError,
    bad_value,
    internal_error,
    queue_full,
    unknown_model,
)
from axiom_sim.engine.slots import Adapter, AdapterSlots
from axiom_sim.engine.steps import EngineLoop, TokenStream

_EMBEDDING_DIMENSIONS = 64
_EMBEDDING_DIMENSIONS_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to run one engine; names as vLLM's flags where it has them.

    `max_loras` 0: no adapters are served. `answer_tokens_max` bounds answers that nobody cuts.
    `tell_loaded`: the metrics name the adapters held, as a later vLLM's do.
    """

    served_model_name: str = "sim-8b"
    profile: EngineProfile = PROFILES["h100-8b"]
    max_loras: int = 4
    max_cpu_loras: int = 16
    max_lora_rank: int = 64
    max_num_seqs: int | None = None
    max_model_len: int = 32_768
    max_num_queued_reqs: int = 4096
    block_size: int = 16
    seed: int = 0
    time_scale: float = 1.0
    adapter_rank: int = 16
    check_paths: bool = False
    answer_tokens_max: int = 256
    prompt_tokens_details: bool = False
    request_id_headers: bool = False
    tell_residency: bool = False
    tell_loaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One question being answered: `words[i]` is the text of token i."""

    question: Question
    sequence: Sequence
    stream: TokenStream
    answer: Answer
    words: list[str]
    stopped_by: str | None
    breaks_after: int | None
    tell_cached: bool

    def usage(self, tokens: int) -> Usage:
        """After `tokens` of the answer."""
        cached = self.sequence.cached_tokens if self.tell_cached else None
        return Usage(prompt=self.sequence.prompt_tokens, completion=tokens, cached=cached)


class SimulatedEngine:
    """All that one engine knows and does. `loop.run()` must run as a task of its owner.

    Engines of other kinds are this one with their own ways with names, slots and metrics.
    """

    names_type: type[AdapterNames] = AdapterNames
    metrics_type: type[EngineMetrics] = EngineMetrics

    def __init__(
        self, config: EngineConfig, clock: Clock, *, slots: AdapterSlots | None = None
    ) -> None:
        profile = config.profile
        self.config = config
        self.names = self.names_type(
            base=config.served_model_name,
            store=AdapterStore(
                check_paths=config.check_paths,
                rank=config.adapter_rank,
                mib_per_rank=profile.mib_per_rank,
            ),
            max_rank=config.max_lora_rank,
        )
        self.slots = slots or AdapterSlots(
            hbm_slots=config.max_loras, host_slots=config.max_cpu_loras
        )
        self.batch = Batch(
            profile=profile,
            max_num_seqs=config.max_num_seqs or profile.max_num_seqs,
            slots=self.slots,
            kv=KvBlocks(
                blocks=profile.kv_tokens // config.block_size, block_tokens=config.block_size
            ),
        )
        self.metrics = self.metrics_type(
            model_name=config.served_model_name,
            max_loras=config.max_loras,
            started_unix_s=unix_s(),
            tell_loaded=config.tell_loaded,
        )
        self.loop = EngineLoop(
            self.batch,
            profile=profile,
            metrics=self.metrics,
            clock=clock,
            time_scale=config.time_scale,
        )
        self.last_arrival_s: float | None = None
        """When its server got the last question, in Unix time."""
        self._clock = clock
        self._ids = 0

    async def prepare(self, model: str | None) -> None:
        """Whatever has to be done before a request for `model` can be queued."""

    def ask(self, question: Question, request_id: str | None) -> Generation:
        """Queue a question; its tokens come by `stream`."""
        adapter = self._admit(question.model)
        prompt = self._read(question.prompt, adapter, question.prompt_tokens, question.cache_salt)
        composed = compose(
            question,
            prompt,
            seed=self.config.seed,
            max_model_len=self.config.max_model_len,
            natural_tokens_max=self.config.answer_tokens_max,
        )
        sequence = self._sequence(adapter, prompt, output_tokens=len(composed.words))
        sequence.ends_by = composed.reason
        generation = Generation(
            question=question,
            sequence=sequence,
            stream=TokenStream(each=question.stream),
            answer=Answer(
                chat=question.chat,
                identity=question.request_id or request_id or self._new_id(),
                model=question.model or self.config.served_model_name,
                created_s=int(unix_s()),
            ),
            words=composed.words,
            stopped_by=composed.stopped_by,
            breaks_after=self.loop.faults.take_stream_error() if question.stream else None,
            tell_cached=self.config.prompt_tokens_details,
        )
        self.loop.submit(sequence, generation.stream)
        return generation

    async def embed(self, question: EmbeddingQuestion) -> dict[str, Any]:
        """The vectors, once their prefills are done; the body but for the encoding."""
        adapter = self._admit(question.model)
        dimensions = question.dimensions or _EMBEDDING_DIMENSIONS
        if not 1 <= dimensions <= _EMBEDDING_DIMENSIONS_MAX:
            raise bad_value(
                "dimensions", f"must lie in 1..{_EMBEDDING_DIMENSIONS_MAX}.", dimensions
            )
        prompts = [self._read(data, adapter) for data in question.inputs]
        vectors = []
        for prompt in prompts:
            if prompt.tokens > self.config.max_model_len:
                raise prompt_too_long(prompt, self.config.max_model_len)
            stream = TokenStream(each=False)
            sequence = self._sequence(adapter, prompt, output_tokens=0)
            sequence.ends_by = "stop"
            self.loop.submit(sequence, stream)
            try:
                await stream.next()
            finally:
                self.loop.abort(sequence)
            if stream.cut:
                raise internal_error()
            vectors.append(embedding(prompt, seed=self.config.seed, dimensions=dimensions))
        tokens = sum(prompt.tokens for prompt in prompts)
        return {
            "id": f"embd-{self._new_id()}",
            "object": "list",
            "created": int(unix_s()),
            "model": question.model or self.config.served_model_name,
            "data": [
                {"index": i, "object": "embedding", "embedding": v} for i, v in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }

    async def load(self, name: str, path: str, *, in_place: bool) -> None:
        """Load and register an adapter, or refuse."""
        if self.loop.faults.take_load_failure():
            raise internal_error("Call to add_lora method failed: ordered by /sim/faults")
        if not self.config.max_loras:
            raise RefusedError(400, "LoRA is not enabled.", kind="BadRequestError")
        adapter = self.names.check_load(name, path, in_place=in_place)
        await self.loop.load(adapter, in_place=in_place)
        self.names.register(adapter)

    def stats(self) -> dict[str, Any]:
        """What the engine really did and holds: the truth that tests and figures compare with."""
        tallies = self.batch.tallies
        return {
            "adapter_loads": self.slots.activations,
            "loads_from_store": self.slots.loads_from_store,
            "requests": self.metrics.requests,
            "last_arrival_unix_s": self.last_arrival_s,
            "in_flight": self.loop.in_flight,
            "tokens": tallies.generation_tokens,
            "prompt_tokens": tallies.prompt_tokens,
            "prefix_query_tokens": tallies.prefix_query_tokens,
            "prefix_hit_tokens": tallies.prefix_hit_tokens,
            "steps": tallies.steps,
            "hbm": [adapter.name for adapter in self.slots.hbm],
            "host": [adapter.name for adapter in self.slots.host],
        }

    def residency(self) -> dict[str, Any] | None:
        """What Axiom's worker extension tells of a real engine; None without it."""
        if not self.config.tell_residency:
            return None
        hbm: list[int | None] = [adapter.number for adapter in self.slots.hbm]
        free = [None] * (self.slots.hbm_slots - len(hbm))
        worker = {
            "gpu_slots": hbm + free,
            "cpu_cached": [adapter.number for adapter in self.slots.host],
            "max_loras": self.slots.hbm_slots,
            "max_cpu_loras": self.slots.host_slots,
        }
        names = {adapter.name: adapter.number for adapter in self.names.all()}
        return {"names": names, "workers": [worker]}

    def _admit(self, model: str | None) -> Adapter | None:
        adapter = None
        if model is not None and model != self.config.served_model_name:
            adapter = self.names.get(model)
            if adapter is None:
                raise unknown_model(model, self.config.served_model_name)
        if self.loop.in_flight >= self.config.max_num_queued_reqs:
            self.metrics.rejected += 1
            raise queue_full()
        if self.loop.faults.take_request_failure():
            raise internal_error()
        self.metrics.requests += 1
        return adapter

    def _read(
        self, data: bytes, adapter: Adapter | None, tokens: int | None = None, salt: str = ""
    ) -> Prompt:
        scope = f"{adapter.name if adapter else ''}\n{salt}"
        return read_prompt(data, scope=scope, block_tokens=self.config.block_size, tokens=tokens)

    def _sequence(self, adapter: Adapter | None, prompt: Prompt, *, output_tokens: int) -> Sequence:
        return Sequence(
            adapter=adapter,
            prompt_tokens=prompt.tokens,
            chunks=prompt.chunks,
            output_tokens=output_tokens,
            arrived_ms=self._clock.now_ms(),
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self.config.seed & 0xFFFF:04x}{self._ids:012x}"
