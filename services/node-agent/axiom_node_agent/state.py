"""The agent's fold: all that is known of one engine, changed through the methods here only.

The poller tells what the engine said, the loader what it did, the handlers what gateways said. Each
change that others should hear of at once calls `on_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from axiom_common.model.adapter import AdapterSpec, AdapterState, ResidencySource
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.ports.engine import EngineModels, EngineResidency, EngineSample
from axiom_common.state.adapter_lifecycle import AdapterLife, Event, step
from axiom_common.state.engine_lru import EngineLru
from axiom_node_agent.foreign_use import ForeignUse
from axiom_node_agent.leases import Leases
from axiom_node_agent.link_correction import LinkCorrection, load_bytes
from axiom_node_agent.rates import RecentSamples, is_new_process

FAILED_MAX = 256
"""Adapters whose failure is remembered an engine; the oldest memory gives way."""
UNHEALTHY_POLLS_MAX = 2
"""A busy engine may take long to say that it is healthy: one miss beside fresh metrics is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadUnderWay:
    """A load that waits (`started_ms` None) or runs. `declared_ms`: what the link model predicts
    for it before any correction."""

    spec: AdapterSpec
    declared_ms: float
    started_ms: float | None = None


class EngineBook:
    """One engine. `declared` holds what settings say of it, in the shape of a report.

    `registered` are the adapter names that it answers to with the paths they were loaded from, in
    the order of its list. `activating` are those that a request on its way brings into HBM, with
    the time by which it is predicted to have done so.
    """

    def __init__(self, declared: EngineState, on_change: Callable[[], None]) -> None:
        self.declared = declared
        self.models: EngineModels | None = None
        self.names_version = 0
        self.restarts = 0
        self.sample: EngineSample | None = None
        self.samples = 0
        self.sampled_ms = 0.0
        self.rates = RecentSamples()
        self.correction = LinkCorrection()
        self.source = ResidencySource.INFERRED
        self.lru = EngineLru().resized(
            hbm_slots=declared.limits.hbm_slots, host_slots=declared.limits.host_slots
        )
        self.lives: dict[EngineAdapter, AdapterLife] = {}
        self.loads: dict[EngineAdapter, LoadUnderWay] = {}
        self.activating: dict[EngineAdapter, float] = {}
        self.leases = Leases()
        self.counts: Mapping[EngineAdapter, int] = {}
        self.foreign = ForeignUse()
        self.unloading: set[EngineAdapter] = set()
        self.registered: dict[EngineAdapter, str] = {}
        self._on_change = on_change
        self._told: object = None
        self._reached: bool | None = None
        self._unhealthy_polls = 0
        self._models_told_ms: float | None = None

    # what the engine said

    def saw_sample(self, sample: EngineSample, now_ms: float) -> None:
        """The engine answered a poll with its metrics."""
        gap = self._reached is False
        if self.sample is not None and is_new_process(self.sample, sample, gap=gap):
            self._forget_process()
        self.sample = sample
        self.samples += 1
        self.sampled_ms = now_ms
        self.rates.add(sample)
        self.foreign.sampled(sample.in_use, self.counts, now_ms)
        self._reached = True
        if sample.max_loras is not None and sample.max_loras != self.lru.hbm_slots:
            host_slots = self.declared.limits.host_slots
            self.lru = self.lru.resized(hbm_slots=sample.max_loras, host_slots=host_slots)
        if self.source is ResidencySource.INFERRED and self.models is not None:
            running = sample.in_use & self.registered.keys()
            if running != sample.in_use:
                # A name that no list showed yet: somebody else loaded it just now.
                self._models_told_ms = None
            self.lru = self.lru.seen_running(running, now_ms)
            for name in running & self.activating.keys():
                del self.activating[name]
        self._observe(now_ms)

    def saw_health(self, healthy: bool, now_ms: float) -> None:
        """The engine said whether it is healthy, or took too long to say."""
        self._unhealthy_polls = 0 if healthy else self._unhealthy_polls + 1
        self._observe(now_ms)

    def saw_models(self, models: EngineModels, now_ms: float) -> None:
        """The engine listed its names. Names that are new to the agent were loaded by others."""
        if self.source is ResidencySource.INFERRED:
            self._infer_from_names(models.adapters, now_ms)
        self.models = models
        self._models_told_ms = now_ms
        self.registered = dict(models.adapters)
        self._observe(now_ms)

    def saw_residency(self, residency: EngineResidency | None, now_ms: float) -> None:
        """The engine told itself what it holds; None: it has no word on that (any more), so what is
        known now is what inference goes on from."""
        if residency is None:
            self.source = ResidencySource.INFERRED
            return
        self.source = ResidencySource.EXTENSION
        self.lru = EngineLru.told(
            hbm=residency.hbm,
            host=residency.host,
            registered=self.registered.keys(),
            hbm_slots=residency.hbm_slots,
            host_slots=residency.host_slots,
            now_ms=now_ms,
        )
        self._observe(now_ms)

    def unreachable(self, now_ms: float) -> None:
        """Nothing answered a poll. What the engine held is kept until it is known to be gone."""
        self._reached = False
        self._observe(now_ms)

    def not_serving(self, now_ms: float) -> None:
        """The engine answered a poll with an error."""
        self._reached = True
        self._unhealthy_polls = UNHEALTHY_POLLS_MAX
        self._observe(now_ms)

    def models_due(self, now_ms: float, *, every_ms: float) -> bool:
        """Whether the list of names should be asked for again."""
        return self._models_told_ms is None or now_ms - self._models_told_ms >= every_ms

    # what the agent does

    def load_accepted(self, spec: AdapterSpec, now_ms: float) -> None:
        """The agent took a load on. Where the name stands for other weights, it does so no more."""
        if self.registered.pop(spec.engine_name, None) is not None:
            self.lru = self.lru.forgotten(spec.engine_name)
            self._happened(spec.engine_name, Event.UNLOAD_STARTED, now_ms)
        declared_ms = self.declared.link.cold_ms(load_bytes(spec))
        self.loads[spec.engine_name] = LoadUnderWay(spec=spec, declared_ms=declared_ms)
        self._happened(spec.engine_name, Event.ACCEPTED, now_ms)
        self._observe(now_ms)

    def load_started(self, name: EngineAdapter, now_ms: float) -> None:
        """The engine got the load."""
        self.loads[name] = replace(self.loads[name], started_ms=now_ms)
        self._happened(name, Event.STARTED, now_ms)
        self._observe(now_ms)

    def load_withdrawn(self, name: EngineAdapter, now_ms: float) -> None:
        """The load is not done after all; nothing is held against the adapter."""
        del self.loads[name]
        self._happened(name, Event.WITHDRAWN, now_ms)
        self._observe(now_ms)

    def load_ended(self, name: EngineAdapter, reason: Reason | None, now_ms: float) -> None:
        """The engine answered: `reason` None says that the adapter is there."""
        load = self.loads.pop(name)
        self._names_changed()
        if reason is not None:
            self._happened(name, Event.LOAD_FAILED, now_ms, reason)
            self._bound_failures()
        else:
            if load.started_ms is not None:
                self.correction = self.correction.learnt(
                    predicted_ms=load.declared_ms, took_ms=now_ms - load.started_ms
                )
            self.registered[name] = load.spec.path
            self.lru = self.lru.loaded(name, now_ms, running=self._running())
            self._happened(name, Event.LOADED, now_ms)
        self._observe(now_ms)

    def draining(self, names: Iterable[EngineAdapter], now_ms: float) -> None:
        """Exactly these are to be unloaded as soon as nobody uses them."""
        wanted = set(names)
        for name, life in list(self.lives.items()):
            if life.state is AdapterState.DRAINING and name not in wanted:
                self._happened(name, Event.KEPT, now_ms)
        for name in sorted(wanted):
            self._happened(name, Event.UNLOAD_WANTED, now_ms)
        self._observe(now_ms)

    def unload_started(self, name: EngineAdapter, now_ms: float) -> None:
        """The engine is being told to forget `name`."""
        self.unloading.add(name)
        self._happened(name, Event.UNLOAD_STARTED, now_ms)
        self._observe(now_ms)

    def unload_ended(self, name: EngineAdapter, now_ms: float, *, done: bool) -> None:
        """The engine answered."""
        self.unloading.discard(name)
        self._names_changed()
        if done:
            self.registered.pop(name, None)
            self.lru = self.lru.forgotten(name)
        else:
            self._happened(name, Event.UNLOAD_FAILED, now_ms)
        self._observe(now_ms)

    # what gateways said

    def granted(self, spec: AdapterSpec, now_ms: float) -> None:
        """A gateway was told that it may send a request for the adapter: it is about to run, and
        brings the adapter into HBM if it is not there."""
        name = spec.engine_name
        self.leases.grant(name, now_ms)
        if self.source is ResidencySource.INFERRED and name in self.registered:
            held = self.lru.copy_of(name)
            self.lru = self.lru.used(name, now_ms, running=self._running() - {name})
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
        self.foreign.counted(used, now_ms)
        for name in used - counts.keys():
            self.leases.requests_ended(name, now_ms)
        if self.source is ResidencySource.INFERRED:
            self.lru = self.lru.touched(used, now_ms)
        self._observe(now_ms)

    # what others see

    @property
    def status(self) -> EngineStatus:
        """What the last poll says. Ready only once the engine's names are known."""
        if self._reached is False:
            return EngineStatus.UNREACHABLE
        known = self.sample is not None and self.models is not None
        if not known or self._unhealthy_polls >= UNHEALTHY_POLLS_MAX:
            return EngineStatus.STARTING
        return EngineStatus.READY

    @property
    def served_name(self) -> str:
        """The engine's own name for its base model; "" until it told."""
        names = self.models.base if self.models else ()
        declared = self.declared.base_model
        return declared if declared in names else next(iter(names), "")

    @property
    def base_model(self) -> str:
        """The fleet's name for the base model: as declared, else the engine's own."""
        return self.declared.base_model or self.served_name

    def _infer_from_names(self, names: Iterable[EngineAdapter], now_ms: float) -> None:
        listed = dict.fromkeys(names)
        if self.models is None:
            running = self.sample.in_use if self.sample else frozenset()
            self.lru = self.lru.seeded(listed, running & listed.keys(), now_ms)
            return
        for name in listed:
            if name not in self.registered:
                self.lru = self.lru.loaded(name, now_ms, running=self._running())
        for name in self.registered:
            if name not in listed:
                self.lru = self.lru.forgotten(name)

    def _running(self) -> AbstractSet[EngineAdapter]:
        in_use = self.sample.in_use if self.sample else frozenset()
        return in_use | self.counts.keys()

    def _names_changed(self) -> None:
        """A list of names that is on its way from the engine is out of date."""
        self.names_version += 1
        self._models_told_ms = None

    def _forget_process(self) -> None:
        self.restarts += 1
        self.models = None
        self.source = ResidencySource.INFERRED
        self.lru = self.lru.emptied()
        self.rates.clear()
        self.leases = Leases()
        self.foreign = ForeignUse()
        self.activating.clear()
        self.registered.clear()
        self._names_changed()
        # A load that waits or runs has its own end; all else was the old process's.
        self.lives = {name: life for name, life in self.lives.items() if name in self.loads}

    def _happened(
        self, name: EngineAdapter, event: Event, now_ms: float, reason: Reason | None = None
    ) -> None:
        life = step(self.lives.get(name, AdapterLife()), event, now_ms, reason=reason)
        if life.state is AdapterState.ABSENT:
            self.lives.pop(name, None)
        else:
            self.lives[name] = life

    def _observe(self, now_ms: float) -> None:
        """Bring the lives in line with the copies, and tell when something changed."""
        self.activating = {n: until for n, until in self.activating.items() if until > now_ms}
        seen: dict[EngineAdapter, Event] = {}
        for copy in self.lru.copies:
            if copy.named:
                seen[copy.adapter] = Event.SEEN_IN_HBM if copy.in_hbm else Event.SEEN_IN_HOST
            elif copy.in_hbm:
                # Somebody unloaded it: the copy has its slot until the engine needs that.
                seen.setdefault(copy.adapter, Event.UNLOAD_STARTED)
        for name in sorted((self.lives.keys() | seen.keys()) - self.unloading):
            self._happened(name, seen.get(name, Event.NOT_SEEN), now_ms)
        told = (
            self.status,
            tuple(self.registered),
            {name: life.state for name, life in self.lives.items()},
        )
        if told != self._told:
            self._told = told
            self._on_change()

    def _bound_failures(self) -> None:
        failed = [n for n, life in self.lives.items() if life.state is AdapterState.FAILED]
        if len(failed) > FAILED_MAX:
            del self.lives[min(failed, key=lambda name: self.lives[name].retry_at_ms)]
