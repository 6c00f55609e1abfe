"""The inference against an engine's own memory, kept apart in the simulated engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from axiom_common.model.ids import EngineAdapter
from axiom_common.state.engine_lru import EngineLru
from axiom_sim.engine.slots import Adapter, AdapterSlots

ADAPTERS = "abcdefgh"

events = st.lists(
    st.tuples(st.sampled_from(["load", "unload", "use", "end"]), st.sampled_from(ADAPTERS)),
    max_size=60,
)
slots = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda s: (s[0], s[0] + s[1]))


@dataclass
class Engine:
    """Names and running requests in front of an engine's slots, and the inference beside it."""

    hbm_slots: int
    host_slots: int
    numbers: int = 0
    names: dict[str, Adapter] = field(default_factory=dict)
    running: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slots = AdapterSlots(hbm_slots=self.hbm_slots, host_slots=self.host_slots)
        self.lru = EngineLru(hbm_slots=self.hbm_slots, host_slots=self.host_slots)

    def load(self, name: str) -> None:
        """As an agent does it: not while every slot runs."""
        if name in self.names or len(self.running) >= self.hbm_slots:
            return
        self.numbers += 1
        self.names[name] = Adapter(number=self.numbers, name=name, path=name, size_bytes=1)
        self._step()
        self.slots.use(self.names[name])
        self.lru = self.lru.loaded(EngineAdapter(name), 0.0, running=self._running())

    def unload(self, name: str) -> None:
        if name in self.names and name not in self.running:
            del self.names[name]
            self.lru = self.lru.forgotten(EngineAdapter(name))

    def use(self, name: str, *, heard: bool = True) -> None:
        """A request starts, unless the scheduler has no slot for one more adapter."""
        if name not in self.names:
            return
        before = self._running()
        if name in self.running or len(self.running) < self.hbm_slots:
            self._step()
            self.slots.use(self.names[name])
            self.running[name] = None
        if heard:
            self.lru = self.lru.used(EngineAdapter(name), 0.0, running=before - {name})

    def end(self, name: str) -> None:
        self.running.pop(name, None)

    def _running(self) -> frozenset[EngineAdapter]:
        return frozenset(EngineAdapter(name) for name in self.running)

    def _step(self) -> None:
        """A step touches all that runs, here in the order of the LRU."""
        for adapter in self.slots.hbm:
            if self.names.get(adapter.name) is adapter and adapter.name in self.running:
                self.slots.use(adapter)


def _held(engine: Engine) -> list[tuple[str, bool, bool]]:
    """What the engine holds, oldest first: name, in HBM, still registered."""
    in_hbm = set(engine.slots.hbm)
    return [(a.name, a in in_hbm, engine.names.get(a.name) is a) for a in engine.slots.host]


def _inferred(engine: Engine) -> list[tuple[str, bool, bool]]:
    return [(copy.adapter, copy.in_hbm, copy.named) for copy in engine.lru.copies]


@settings(max_examples=400)
@given(slots, events)
def test_hearing_everything_the_inference_is_exact(
    capacity: tuple[int, int], happened: list[tuple[str, str]]
) -> None:
    engine = Engine(*capacity)
    for event, name in happened:
        getattr(engine, event)(name)
        if event != "end":
            assert _inferred(engine) == _held(engine), (event, name)


@given(slots, events, st.data())
def test_missed_uses_are_repaired_by_the_sight_of_what_runs(
    capacity: tuple[int, int], happened: list[tuple[str, str]], data: st.DataObject
) -> None:
    engine = Engine(*capacity)
    for event, name in happened:
        if event == "use":
            engine.use(name, heard=data.draw(st.booleans()))
        else:
            getattr(engine, event)(name)
    engine.lru = engine.lru.seen_running(engine._running(), 0.0)
    held = {copy.adapter for copy in engine.lru.hbm if copy.named}
    assert held >= engine._running()


@given(slots, events)
def test_the_inference_never_holds_more_than_fits_nor_a_name_twice(
    capacity: tuple[int, int], happened: list[tuple[str, str]]
) -> None:
    """Whatever is told, in whatever order: uses of unknown names, unloads of absent ones."""
    hbm_slots, host_slots = capacity
    lru = EngineLru(hbm_slots=hbm_slots, host_slots=host_slots)
    for event, text in happened:
        name = EngineAdapter(text)
        if event == "load":
            lru = lru.loaded(name, 0.0)
        elif event == "unload":
            lru = lru.forgotten(name)
        elif event == "use":
            lru = lru.used(name, 0.0)
        else:
            lru = lru.seen_running({name}, 0.0)
        assert len(lru.hbm) <= hbm_slots
        assert len(lru.copies) <= host_slots
        named = [copy.adapter for copy in lru.copies if copy.named]
        assert len(named) == len(set(named))
