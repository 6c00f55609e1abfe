"""What this gateway knows of one engine: the agent's word, and what its own requests have shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from axiom_common.model.engine import EngineState, EngineStatus, GpuState, NodeState
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.engine_row import EngineRow
from axiom_common.policy.evidence import (
    DEFAULT_LIMITS,
    Evidence,
    Memory,
    remember,
    remember_gpus,
)
from axiom_common.policy.moved import figures_moved, gpus_moved
from axiom_common.state.breaker import Breaker

FRESH_MS = 500.0
"""Two beats: a row that was written so lately needs no look for the sake of time alone."""
STALE_MS = DEFAULT_LIMITS.stale_ms
LAPSE_MS = 5_000.0
"""An engine's load that was told so long ago says nothing of now."""
IDLE_SAMPLES = 2
"""The first sample that comes after an order may have been taken before it."""
OWN_SAMPLES_MAX = 16
OWN_SAMPLE_MS = 10_000.0
"""Older streams say nothing of now: an engine that is avoided must not look slow for ever."""


@dataclass(frozen=True, slots=True)
class _OwnSample:
    at_ms: float
    ttft_ms: float | None
    tpot_ms: float | None


@dataclass(slots=True)
class EngineFacts:
    """One engine. `reported_ms` is when its node was last heard; so is `heard_ms`, on the clock of
    `Hearing`. `told_ms` is when the engine was last told whole, `gpu_told_ms` when its GPUs were
    told as they are. `row` is what was written, at `written_ms`. `order` is what an operator
    ordered of it, `samples` how many came since that changed.
    """

    state: EngineState
    gpu: tuple[GpuState, ...]
    reported_ms: float
    heard_ms: float
    told_ms: float
    gpu_told_ms: float
    agent_dead: bool = False
    ensure_failed: bool = False
    probe_ok: bool | None = None
    probed_ms: float = 0.0
    foreign: int = 0
    lapsed: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    memory: Memory = field(default_factory=Memory)
    row: EngineRow | None = None
    written_ms: float = float("-inf")
    flapping: bool = False
    order: EngineOrder | None = None
    samples: int = 0
    breaker_written: bool = False
    _written_of: EngineState | None = None
    _forgot: frozenset[EngineAdapter] = frozenset()
    _own: deque[_OwnSample] = field(default_factory=lambda: deque(maxlen=OWN_SAMPLES_MAX))

    @classmethod
    def unheard(
        cls, state: EngineState, gpu: tuple[GpuState, ...], now_ms: float, listened_ms: float
    ) -> EngineFacts:
        """An engine of a record of the cache, which is as good as a report that is about to be
        stale; and of one that is about to be heard."""
        return cls(
            state=state,
            gpu=gpu,
            reported_ms=now_ms - STALE_MS,
            heard_ms=listened_ms - STALE_MS,
            told_ms=now_ms - STALE_MS,
            gpu_told_ms=now_ms,
        )

    def heard(self, now_ms: float, heard_ms: float) -> bool:
        """Its node's agent spoke. Whether that ends anything that its silence began."""
        self.reported_ms, self.heard_ms = now_ms, heard_ms
        ends = self.lapsed or self.agent_dead or self.ensure_failed or self.probe_ok is not None
        self.lapsed = self.agent_dead = self.ensure_failed = False
        self.probe_ok = None
        return ends

    def ordered(self, order: EngineOrder | None) -> None:
        """An operator ordered something of it, or released it."""
        self.order, self.samples = order, 0

    def idle(self, in_flight: int, now_ms: float) -> bool | None:
        """Whether it has nothing to do: gateways have no request `in_flight`, and it reports none
        itself, by a sample that is newer than its order. None: nobody tells."""
        if in_flight:
            return False
        known = now_ms - self.reported_ms < LAPSE_MS and self.samples >= IDLE_SAMPLES
        return self.state.running + self.state.waiting == 0 if known else None

    def told(self, state: EngineState, now_ms: float) -> None:
        """The engine was told whole: all that is known of it otherwise gives way."""
        self._forgot = frozenset()
        self.told_ms = now_ms
        self._sampled(state)

    def beat(self, state: EngineState) -> None:
        """Figures were told: of what the engine holds nobody said anything new."""
        self._sampled(self._without_forgotten(state))

    def written(self, row: EngineRow, now_ms: float) -> bool:
        """The rules gave this row. Whether it says anything else than the one before."""
        self.breaker_written, self.written_ms = self.breaker.is_open(now_ms), now_ms
        self._written_of = self.state
        if row == self.row:
            return False
        self.row = row
        return True

    def due(self, now_ms: float) -> bool:
        """Whether time alone calls for a new row: nobody wrote it, or spoke of it, of late."""
        return max(now_ms - self.reported_ms, now_ms - self.written_ms) >= FRESH_MS

    def row_is_old(self) -> bool:
        """Whether what was told since the row was written calls for a new one. What time alone
        changes is for the sweep."""
        row, of, state = self.row, self._written_of, self.state
        return (
            row is None
            or of is None
            or row.stale
            or state.sample_age_ms >= FRESH_MS
            # Loads go on and failures are forgiven from beat to beat.
            or state.load_queue_ms > 0.0
            or bool(state.failures)
            or state.residents is not of.residents
            or (state is not of and figures_moved(of.figures, state.figures, state.limits))
        )

    def gpus(self, gpu: tuple[GpuState, ...], now_ms: float) -> bool:
        """Its GPUs were told. Whether that calls for a new row."""
        moved = gpus_moved(self.gpu, gpu)
        if gpu != self.gpu:
            self.memory = remember_gpus(
                self.memory, self.gpu, told_ms=self.gpu_told_ms, heard_ms=self.reported_ms
            )
            self.gpu = gpu
            self.gpu_told_ms = now_ms
        return moved

    def forgot(self, adapter: EngineAdapter) -> None:
        """The engine does not answer to the adapter's name, whatever its agent told last."""
        self._forgot |= {adapter}
        self.state = self._without_forgotten(self.state)

    def lapse(self) -> None:
        """Nobody has told for long what runs there: it must not count for ever."""
        self.lapsed = True
        self.foreign = 0
        self.state = replace(
            self.state,
            running=0,
            waiting=0,
            deferred=0,
            kv_usage=None,
            residents=tuple(replace(r, in_flight=0) for r in self.state.residents),
        )

    def timed(self, ttft_ms: float | None, tpot_ms: float | None, now_ms: float) -> None:
        """One of this gateway's own streams ended."""
        self._own.append(_OwnSample(now_ms, ttft_ms, tpot_ms))

    def _sampled(self, state: EngineState) -> None:
        """A newer state; the one before it goes to the memory. A repeated sample (a change between
        two scrapes, an engine that hangs) is none to remember."""
        if state.sample != self.state.sample:
            self.memory = remember(self.memory, self.state)
            self.samples += 1
        self.state = state

    def _without_forgotten(self, state: EngineState) -> EngineState:
        if not self._forgot:
            return state
        return replace(
            state,
            residents=tuple(r for r in state.residents if r.adapter not in self._forgot),
            registered=tuple(name for name in state.registered if name not in self._forgot),
        )

    def evidence(self, now_ms: float, listened_ms: float) -> Evidence:
        """All that the rules may look at, now on the usual clock and on that of `Hearing`."""
        while self._own and now_ms - self._own[0].at_ms > OWN_SAMPLE_MS:
            self._own.popleft()
        return Evidence(
            heard_age_ms=listened_ms - self.heard_ms,
            told_age_ms=now_ms - self.told_ms,
            agent_dead=self.agent_dead,
            ensure_failed=self.ensure_failed,
            flapping=self.flapping,
            probe_ok=self.probe_ok,
            breaker_open=self.breaker.is_open(now_ms),
            gpu=self.gpu,
            gpu_age_ms=now_ms - self.gpu_told_ms,
            gpu_stood_ms=max(0.0, self.reported_ms - self.gpu_told_ms),
            own_ttft_ms=_mean(sample.ttft_ms for sample in self._own),
            own_tpot_ms=_mean(sample.tpot_ms for sample in self._own),
            cordoned=self.order is not None,
            memory=self.memory,
        )


def silent(engines: Iterable[EngineFacts], now_ms: float) -> list[tuple[EngineId, str]]:
    """Engines without fresh news and their URLs, those first that were probed least lately."""
    old = [facts for facts in engines if now_ms - facts.reported_ms >= STALE_MS]
    old.sort(key=lambda facts: facts.probed_ms)
    return [(facts.state.engine, facts.state.url) for facts in old]


def serves_alone(one: EngineFacts, engines: Iterable[EngineFacts]) -> bool:
    """Whether this engine serves, and no other that does could take over its base model, or the
    adapters on it."""
    mine = one.state
    return _serves(one) and not any(
        _serves(other)
        and other.state.engine != mine.engine
        and other.state.base_model == mine.base_model
        and (other.state.limits.hbm_slots > 0 or not mine.limits.hbm_slots)
        for other in engines
    )


def _serves(facts: EngineFacts) -> bool:
    ready = facts.state.status is EngineStatus.READY
    return ready and facts.order is None and not facts.agent_dead


def gpus_of(engine: EngineState, node: NodeState) -> tuple[GpuState, ...]:
    """The GPUs of its node that an engine runs on."""
    return tuple(gpu for gpu in node.gpus if gpu.index in engine.gpus)


def left_out(engines: Iterable[EngineFacts]) -> Iterator[Reason]:
    """Why engines get no requests, or only what nobody else can take; one reason an engine."""
    for facts in engines:
        row = facts.row
        if row is None:
            continue
        if row.refusal is not None:
            yield row.refusal
        elif row.stale or row.unheard:
            yield Reason.STALE_TELEMETRY
        elif row.flapping:
            yield Reason.FLAPPING


def _mean(samples: Iterable[float | None]) -> float | None:
    known = [sample for sample in samples if sample is not None]
    return sum(known) / len(known) if known else None
