"""The agent's fold: all that is known of one engine, changed through the methods here only.

The poller tells what the engine said, the loader what it did, the handlers what gateways said. Each
change that others should hear of at once calls `on_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from axiom_common.model.adapter import AdapterSpec, ResidencySource
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.ports.engine import SGLANG, EngineModels, EngineSample
from axiom_common.ports.engine_extension import EngineWord
from axiom_common.state.adapter_lifecycle import AdapterLife, Event
from axiom_common.state.engine_lru import EngineLru
from axiom_node_agent.adapter_lives import AdapterLives
from axiom_node_agent.engine_health import EngineHealth
from axiom_node_agent.engine_names import EngineNames
from axiom_node_agent.foreign_use import ForeignUse
from axiom_node_agent.leases import Leases
from axiom_node_agent.link_correction import LinkCorrection, load_bytes
from axiom_node_agent.rates import RecentSamples, is_new_process
from axiom_node_agent.residency import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadUnderWay:
    """A load that waits (`started_ms` None) or runs. `declared_ms`: what the link model predicts
    for it before any correction."""

    spec: AdapterSpec
    declared_ms: float
    started_ms: float | None = None


class EngineBook:
    """One engine. `declared` holds what settings say of it, in the shape of a report.

    `activating` are the adapters that a request on its way brings into HBM, with the time by which
    it is predicted to have done so.
    """

    def __init__(self, declared: EngineState, on_change: Callable[[], None]) -> None:
        self.declared = declared
        self.names = EngineNames()
        self.restarts = 0
        self.sample: EngineSample | None = None
        self.samples = 0
        self.sampled_ms = 0.0
        self.rates = RecentSamples()
        self.correction = LinkCorrection()
        self.held = Held(
            lru=EngineLru(keeps_forgotten=declared.kind != SGLANG).resized(
                hbm_slots=declared.limits.hbm_slots, host_slots=declared.limits.host_slots
            )
        )
        self.loads: dict[EngineAdapter, LoadUnderWay] = {}
        self.activating: dict[EngineAdapter, float] = {}
        self.leases = Leases()
        self.counts: Mapping[EngineAdapter, int] = {}
        self.foreign = ForeignUse()
        self.unloading: set[EngineAdapter] = set()
        self._lives = AdapterLives()
        self._on_change = on_change
        self._told: object = None
        self._health = EngineHealth()
        self._asked_ms = 0.0
        self._processes: AbstractSet[str] = frozenset()

    # what the engine said

    def saw_sample(
        self, sample: EngineSample, now_ms: float, *, asked_ms: float | None = None
    ) -> None:
        """The engine answered with its metrics; it was asked at `asked_ms`, None: just now."""
        gap = self._health.reached is False
        if self.sample is not None and is_new_process(self.sample, sample, gap=gap):
            self._forget_process()
        self.sample = sample
        self.samples += 1
        self.sampled_ms = now_ms
        self._asked_ms = now_ms if asked_ms is None else asked_ms
        self.rates.add(sample, now_ms)
        self.foreign.sampled(sample.in_use, now_ms)
        self._health.answered()
        if sample.max_loras is not None and sample.max_loras != self.lru.hbm_slots:
            host_slots = self.lru.host_slots
            self._infer(self.lru.resized(hbm_slots=sample.max_loras, host_slots=host_slots))
        self._heard_metrics(sample, now_ms)
        self._infer_from_running(sample.in_use, now_ms)
        self._observe(now_ms)

    def saw_health(self, healthy: bool, now_ms: float) -> None:
        """The engine said whether it is healthy, or took too long to say."""
        self._health.said(healthy)
        self._observe(now_ms)

    def saw_models(self, models: EngineModels, now_ms: float) -> None:
        """The engine listed its names. Names that are new to the agent were loaded by others."""
        if models.by_use:
            idle = self.sample is not None and self.sample.running + self.sample.waiting == 0
            self._infer(self.lru.listed(models.adapters, now_ms, is_idle=idle))
        else:
            self.held = self.held.listed(
                models.adapters,
                known=None if self.names.base is None else self.registered.keys(),
                in_use=self.sample.in_use if self.sample else frozenset(),
                running=self._running(),
                now_ms=now_ms,
            )
        self.names.listed(models, now_ms)
        if self.sample is not None and self.sample.loaded is not None:
            # What it told of had no name until now.
            self._heard_metrics(self.sample, now_ms)
        self._observe(now_ms)

    def saw_word(self, word: EngineWord | None, now_ms: float) -> None:
        """The engine's extension spoke; None: it has no word (any more), so the next best source
        goes on from what is known now."""
        if word is None:
            if self.source is ResidencySource.EXTENSION:
                self.foreign.silent()
                self.held = self.held.silent()
                if self.sample is not None:
                    self._heard_metrics(self.sample, now_ms)
                self._observe(now_ms)
            return
        if self._processes and self._processes.isdisjoint(word.lives):
            self._forget_process()
            self.sample = None
        self._processes = word.lives
        if word.registered is not None:
            self.names.told(word.registered)
        self.held = self.held.told(word, self.registered.keys(), now_ms)
        self._arrived(copy.adapter for copy in self.lru.hbm)
        in_flight = {name: n for name, n in word.in_flight.items() if name != BASE}
        self.foreign.told(in_flight, now_ms)
        self._observe(now_ms)

    def unreachable(self, now_ms: float) -> None:
        """Nothing answered a poll. What the engine held is kept until it is known to be gone."""
        self._health.unreachable()
        self._observe(now_ms)

    def not_serving(self, now_ms: float) -> None:
        """The engine answered a poll with an error."""
        self._health.refused()
        self._observe(now_ms)

    # what the agent does

    def load_accepted(self, spec: AdapterSpec, now_ms: float) -> None:
        """The agent took a load on. Where the name stands for other weights, it does so no more."""
        if spec.engine_name in self.registered:
            self.names.unloaded(spec.engine_name)
            self._forgotten(spec.engine_name)
            self._lives.happened(spec.engine_name, Event.UNLOAD_STARTED, now_ms)
        declared_ms = self.declared.link.cold_ms(load_bytes(spec))
        self.loads[spec.engine_name] = LoadUnderWay(spec=spec, declared_ms=declared_ms)
        self._lives.happened(spec.engine_name, Event.ACCEPTED, now_ms)
        self._observe(now_ms)

    def load_started(self, name: EngineAdapter, now_ms: float) -> None:
        """The engine got the load."""
        self.loads[name] = replace(self.loads[name], started_ms=now_ms)
        self._lives.happened(name, Event.STARTED, now_ms)
        self._observe(now_ms)

    def load_withdrawn(self, name: EngineAdapter, now_ms: float) -> None:
        """The load is not done after all; nothing is held against the adapter."""
        del self.loads[name]
        self._lives.happened(name, Event.WITHDRAWN, now_ms)
        self._observe(now_ms)

    def load_ended(self, name: EngineAdapter, reason: Reason | None, now_ms: float) -> None:
        """The engine answered: `reason` None says that the adapter is there."""
        load = self.loads.pop(name)
        if reason is not None:
            self.names.doubted()
            self._lives.happened(name, Event.LOAD_FAILED, now_ms, reason)
        else:
            if load.started_ms is not None:
                self.correction = self.correction.learnt(
                    predicted_ms=load.declared_ms, took_ms=now_ms - load.started_ms
                )
            self.names.loaded(name, load.spec.path)
            self.held = self.held.loaded(name, now_ms, running=self._running())
            self._lives.happened(name, Event.LOADED, now_ms)
        self._observe(now_ms)

    def draining(self, names: Iterable[EngineAdapter], now_ms: float) -> None:
        """Exactly these are to be unloaded as soon as nobody uses them."""
        self._lives.draining(names, now_ms)
        self._observe(now_ms)

    def unload_started(self, name: EngineAdapter, now_ms: float) -> None:
        """The engine is being told to forget `name`."""
        self.unloading.add(name)
        self._lives.happened(name, Event.UNLOAD_STARTED, now_ms)
        self._observe(now_ms)

    def unload_ended(self, name: EngineAdapter, now_ms: float, *, done: bool) -> None:
        """The engine answered."""
        self.unloading.discard(name)
        if done:
            self.names.unloaded(name)
            self._forgotten(name)
        else:
            self.names.doubted()
            self._lives.happened(name, Event.UNLOAD_FAILED, now_ms)
        self._observe(now_ms)

    # what gateways said

    def granted(self, spec: AdapterSpec, now_ms: float) -> None:
        """A gateway was told that it may send a request for the adapter: it is about to run, and
        brings the adapter into HBM if it is not there."""
        name = spec.engine_name
        self.leases.grant(name, now_ms)
        if self.source is not ResidencySource.EXTENSION and name in self.registered:
            held = self.lru.copy_of(name)
            self._infer(self.lru.used(name, now_ms, running=self._running() - {name}))
            if held is None or not held.in_hbm:
                link, size = self.declared.link, load_bytes(spec)
                takes_ms = link.cold_ms(size) if held is None else link.h2d_ms(size)
                self.activating[name] = now_ms + takes_ms * self.correction.factor
        self._observe(now_ms)

    def in_flight(
        self,
        counts: Mapping[EngineAdapter, int],
        now_ms: float,
        *,
        told: AbstractSet[EngineAdapter] = frozenset(),
    ) -> None:
        """The gateways' counts for this engine, summed. `told` are the adapters that a gateway just
        named, if only to say that its requests are over: they were used, if they are held (else the
        gateway asks for them first). So were those whose count changed."""
        before, self.counts = self.counts, dict(counts)
        changed = {n for n in counts.keys() | before.keys() if counts.get(n, 0) != before.get(n, 0)}
        used = (changed | told) - {BASE}
        self.foreign.counted(self.counts, used, now_ms)
        for name in used - counts.keys():
            self.leases.requests_ended(name, now_ms)
        self._infer(self.lru.touched(used, now_ms))
        self._observe(now_ms)

    # what others see

    @property
    def reached(self) -> bool:
        """Whether the last poll was answered."""
        return self._health.reached is True

    @property
    def source(self) -> ResidencySource:
        """Who says what is held."""
        return self.held.source

    @property
    def lru(self) -> EngineLru:
        """What is held."""
        return self.held.lru

    @property
    def lives(self) -> Mapping[EngineAdapter, AdapterLife]:
        """Every adapter that is not absent."""
        return self._lives.by_name

    @property
    def registered(self) -> Mapping[EngineAdapter, str]:
        """The adapter names that the engine answers to, with the paths they were loaded from."""
        return self.names.paths

    @property
    def status(self) -> EngineStatus:
        """What the last poll says. Ready only once the engine's names are known."""
        known = self.sample is not None and self.names.base is not None
        return self._health.status(known=known)

    @property
    def served_name(self) -> str:
        """The engine's own name for its base model; "" until it told."""
        names = self.names.base or ()
        declared = self.declared.base_model
        return declared if declared in names else next(iter(names), "")

    @property
    def base_model(self) -> str:
        """The fleet's name for the base model: as declared, else the engine's own."""
        return self.declared.base_model or self.served_name

    def _infer(self, lru: EngineLru) -> None:
        self.held = self.held.inferred(lru)

    def _infer_from_running(self, in_use: AbstractSet[EngineAdapter], now_ms: float) -> None:
        if self.source is ResidencySource.EXTENSION or self.names.base is None:
            return
        running = in_use & self.registered.keys()
        if running != in_use:
            # A name that no list showed yet: somebody else loaded it just now.
            self.names.doubted()
        self.held = self.held.running(running, now_ms)
        self._arrived(running)

    def _heard_metrics(self, sample: EngineSample, now_ms: float) -> None:
        self.held = self.held.sampled(
            sample.loaded,
            registered=None if self.names.base is None else self.registered.keys(),
            asked_ms=self._asked_ms,
            now_ms=now_ms,
        )
        if self.source is ResidencySource.METRICS and sample.loaded is not None:
            self._arrived(sample.loaded.hbm)

    def _forgotten(self, name: EngineAdapter) -> None:
        self.held = replace(self.held, lru=self.lru.forgotten(name))

    def _arrived(self, names: Iterable[EngineAdapter]) -> None:
        for name in self.activating.keys() & set(names):
            del self.activating[name]

    def _running(self) -> AbstractSet[EngineAdapter]:
        in_use = self.sample.in_use if self.sample else frozenset()
        return in_use | self.counts.keys()

    def _forget_process(self) -> None:
        self.restarts += 1
        self.held = Held(lru=self.lru.emptied())
        self._processes = frozenset()
        self.rates.clear()
        self.leases = Leases()
        self.foreign = ForeignUse()
        self.activating.clear()
        self.names.forget()
        # A load that waits or runs has its own end; all else was the old process's.
        self._lives.keep(self.loads.keys())

    def _observe(self, now_ms: float) -> None:
        """Bring the lives in line with the copies, and tell when something changed."""
        self.activating = {n: until for n, until in self.activating.items() if until > now_ms}
        self._lives.seen(self.lru.copies, now_ms, but=self.unloading)
        exact = self.source is ResidencySource.EXTENSION
        told = (
            self.status,
            self.source,
            tuple(self.registered),
            {name: life.state for name, life in self.lives.items()},
            tuple(self.foreign.adapters),
            # A replayed order is a guess between two sights: it waits for the beat.
            tuple(copy.adapter for copy in self.lru.copies) if exact else (),
        )
        if told != self._told:
            self._told = told
            self._on_change()
