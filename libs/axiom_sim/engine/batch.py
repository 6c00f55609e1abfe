"""The scheduler of the simulated engine: continuous batching with chunked prefill, in steps.

    submit -> waiting -> (begin_step: slot, blocks and budget are to be had) -> running
           -> prefill, in chunks, over one or more steps -> one token a step -> finished
    abort: out of any of these

`begin_step` says what the next step does and how long it takes; `end_step` carries it out. The
caller keeps the time. Rules of the waiting line, as in vLLM: first come, first served, except that
a request whose adapter would need one slot more than there are is passed over (`deferred`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from axiom_sim.engine.kv_blocks import KvBlocks, Lease
from axiom_sim.engine.profiles import EngineProfile
from axiom_sim.engine.slots import Adapter, AdapterSlots


@dataclass(slots=True, eq=False)
class Sequence:
    """One request. `output_tokens` 0: it ends with its prefill (embeddings).

    `ends_by` is the finish reason that its last token will carry; `deferred`: it was passed over
    for want of an adapter slot. Times are the caller's, in ms; 0 until there is one.
    """

    adapter: Adapter | None
    prompt_tokens: int
    chunks: tuple[int, ...]
    output_tokens: int
    arrived_ms: float
    ends_by: str = "length"
    prefilled: int = 0
    generated: int = 0
    cached_tokens: int = 0
    scheduled_ms: float = 0.0
    first_token_ms: float = 0.0
    last_token_ms: float = 0.0
    token_gap_ms: float = 0.0
    lease: Lease | None = None
    deferred: bool = False
    gone: bool = False

    @property
    def finished(self) -> bool:
        """Whether it has all its tokens."""
        return self.prefilled >= self.prompt_tokens and self.generated >= self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `prefill` holds (sequence, tokens to compute in it); all else decodes."""

    duration_ms: float
    load_ms: float
    prefill: tuple[tuple[Sequence, int], ...]
    sequences: tuple[Sequence, ...]


@dataclass(slots=True)
class Tallies:
    """What has happened since the start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Plan:
    budget: int
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)
    starts: int = 0

    def take(self, sequence: Sequence) -> None:
        tokens = min(self.budget, sequence.prompt_tokens - sequence.prefilled)
        self.budget -= tokens
        self.prefill.append((sequence, tokens))


class Batch:
    """The waiting line, the running batch, and the memory that both draw on."""

    def __init__(
        self, *, profile: EngineProfile, max_num_seqs: int, slots: AdapterSlots, kv: KvBlocks
    ) -> None:
        self.slots = slots
        self.kv = kv
        self.tallies = Tallies()
        self._profile = profile
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._adapters: dict[int, int] = {}

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the waiting line, deferred ones included."""
        return len(self._waiting)

    @property
    def deferred(self) -> int:
        """Waiting requests that were passed over for want of an adapter slot."""
        return sum(sequence.deferred for sequence in self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of blocks that live requests use; cached blocks count as free."""
        private = sum(
            self._blocks(s.prefilled + s.generated) - s.lease.published
            for s in self._running
            if s.lease is not None
        )
        return (self.kv.shared + max(0, private)) / self.kv.blocks

    def adapters_in_use(self) -> tuple[str, ...]:
        """Names of adapters with a live request that has produced output."""
        names = (s.adapter.name for s in self._running if s.adapter is not None and s.generated)
        return tuple(dict.fromkeys(names))

    def wants(self, adapter: Adapter) -> bool:
        """Whether a live request, be it waiting, is for `adapter`."""
        return any(s.adapter is adapter for s in (*self._running, *self._waiting))

    def uses(self, number: int) -> bool:
        """Whether a request in the batch uses the adapter of this number."""
        return number in self._adapters

    def submit(self, sequence: Sequence) -> None:
        """Append to the waiting line. It must fit into an empty engine."""
        if not self.kv.fits(sequence.prompt_tokens + sequence.output_tokens):
            raise ValueError("a sequence larger than the KV memory would wait for ever")
        self._waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Take it out, wherever it is; a finished one is left alone."""
        if sequence.gone or sequence.finished:
            return
        if sequence.lease is None:
            sequence.gone = True
            self._waiting.remove(sequence)
        else:
            self._leave(sequence)

    def begin_step(self, now_ms: float) -> Step | None:
        """Admit what can be admitted and plan one step; None when nothing can run."""
        plan = _Plan(budget=self._profile.chunked_prefill_tokens)
        for sequence in self._running:
            if plan.budget and sequence.prefilled < sequence.prompt_tokens:
                plan.take(sequence)
        self._admit(plan, now_ms)
        if not self._running:
            return None
        load_ms = self._use_adapters()
        duration_ms = load_ms + self._profile.step_ms(
            running=len(self._running),
            max_num_seqs=self._max_num_seqs,
            prefill_tokens=sum(tokens for _, tokens in plan.prefill),
            starts=plan.starts,
        )
        return Step(duration_ms, load_ms, tuple(plan.prefill), tuple(self._running))

    def end_step(self, step: Step, now_ms: float) -> list[Sequence]:
        """Carry the step out; returns the sequences that gained a token or ended without one."""
        for sequence, tokens in step.prefill:
            if not sequence.gone and sequence.lease is not None:
                sequence.prefilled += tokens
                self.kv.publish(sequence.lease, sequence.prefilled)
        advanced = []
        for sequence in step.sequences:
            if sequence.gone or sequence.prefilled < sequence.prompt_tokens:
                continue
            if sequence.output_tokens:
                sequence.generated += 1
                self.tallies.generation_tokens += 1
            if not sequence.first_token_ms:
                sequence.first_token_ms = now_ms
                self.tallies.prompt_tokens += sequence.prompt_tokens
            sequence.token_gap_ms = now_ms - sequence.last_token_ms
            sequence.last_token_ms = now_ms
            advanced.append(sequence)
            if sequence.finished:
                self._leave(sequence)
        self.tallies.steps += 1
        return advanced

    def _admit(self, plan: _Plan, now_ms: float) -> None:
        passed_over: deque[Sequence] = deque()
        while self._waiting and plan.budget and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            if not self._has_slot(sequence.adapter):
                sequence.deferred = True
                passed_over.append(self._waiting.popleft())
                continue
            lease = self.kv.admit(
                sequence.chunks,
                prompt_tokens=sequence.prompt_tokens,
                tokens=sequence.prompt_tokens + sequence.output_tokens,
            )
            if lease is None:
                break
            self._waiting.popleft()
            self._enter(sequence, lease, now_ms)
            plan.take(sequence)
            plan.starts += 1
        self._waiting.extendleft(reversed(passed_over))

    def _enter(self, sequence: Sequence, lease: Lease, now_ms: float) -> None:
        sequence.lease = lease
        sequence.prefilled = sequence.cached_tokens = lease.cached_tokens
        sequence.scheduled_ms = now_ms
        self.tallies.prefix_query_tokens += sequence.prompt_tokens
        self.tallies.prefix_hit_tokens += lease.cached_tokens
        self._running.append(sequence)
        if sequence.adapter is not None:
            number = sequence.adapter.number
            self._adapters[number] = self._adapters.get(number, 0) + 1

    def _leave(self, sequence: Sequence) -> None:
        sequence.gone = True
        self._running.remove(sequence)
        if sequence.lease is not None:
            self.kv.release(sequence.lease)
        if sequence.adapter is not None:
            number = sequence.adapter.number
            self._adapters[number] -= 1
            if not self._adapters[number]:
                del self._adapters[number]

    def _has_slot(self, adapter: Adapter | None) -> bool:
        if adapter is None or adapter.number in self._adapters:
            return True
        return len(self._adapters) < self.slots.hbm_slots

    def _use_adapters(self) -> float:
        load_ms = 0.0
        used: set[int] = set()
        for sequence in self._running:
            adapter = sequence.adapter
            if adapter is not None and adapter.number not in used:
                used.add(adapter.number)
                load_ms += self._profile.load_ms(self.slots.use(adapter), adapter.size_bytes)
        return load_ms

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.kv.block_tokens)
