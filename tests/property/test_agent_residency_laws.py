"""Laws of what an agent takes an engine to hold and to run, whoever tells it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.agent_parts import models, name, names, ready_book, sample, spec, word

from axiom_common.model.adapter import AdapterState, ResidencySource
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import LoadedAdapters
from axiom_common.state.engine_lru import EngineLru
from axiom_node_agent.foreign_use import ForeignUse
from axiom_node_agent.report import engine_state

ADAPTERS = "abcdef"
HELD = {AdapterState.RESIDENT, AdapterState.HOST, AdapterState.LOADING}

events = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("load", "use", "unload")), st.sampled_from(ADAPTERS)),
        st.tuples(
            st.sampled_from(("extension", "silence", "metrics", "plain", "names")), st.just("")
        ),
    ),
    max_size=40,
)


class Engine:
    """A true engine, which tells by whatever means it has at the moment."""

    def __init__(self) -> None:
        self.lru = EngineLru(hbm_slots=2, host_slots=4)
        self.registered: list[str] = []
        self.tells = False
        self.names_loaded = False
        self.book = ready_book()

    def happens(self, event: str, text: str, now_ms: float) -> None:
        book = self.book
        match event:
            case "load" if text not in self.registered:
                book.load_accepted(spec(text), now_ms)
                book.load_started(name(text), now_ms)
                self.lru = self.lru.loaded(name(text), now_ms)
                # The worker tells of the copy before the API server has its name.
                self._push(now_ms)
                self.registered.append(text)
                book.load_ended(name(text), None, now_ms)
            case "use" if text in self.registered:
                book.granted(spec(text), now_ms)
                self.lru = self.lru.used(name(text), now_ms)
            case "unload" if text in self.registered:
                book.unload_started(name(text), now_ms)
                self.registered.remove(text)
                self.lru = self.lru.forgotten(name(text))
                book.unload_ended(name(text), now_ms, done=True)
            case "extension":
                self.tells = True
            case "silence":
                self.tells = False
                book.saw_word(None, now_ms)
            case "metrics" | "plain":
                self.names_loaded = event == "metrics"
            case "names":
                book.saw_models(models(*self.registered), now_ms)
        self._push(now_ms)
        self._poll(now_ms)

    def _push(self, now_ms: float) -> None:
        if self.tells:
            shown = {
                copy: copy.adapter.partition("~")[0] if copy.named else f"({number})"
                for number, copy in enumerate(self.lru.copies)
            }
            self.book.saw_word(
                word(
                    hbm=tuple(shown[copy] for copy in self.lru.hbm),
                    host=tuple(shown[copy] for copy in self.lru.copies),
                    registered=tuple(self.registered),
                ),
                now_ms,
            )

    def _poll(self, now_ms: float) -> None:
        copies = [copy for copy in self.lru.copies if copy.named]
        loaded = LoadedAdapters(
            hbm=frozenset(copy.adapter for copy in copies if copy.in_hbm),
            host=frozenset(copy.adapter for copy in copies),
            hbm_slots=2,
            host_slots=4,
        )
        told = replace(sample(), loaded=loaded if self.names_loaded else None)
        self.book.saw_sample(told, now_ms)

    @property
    def source(self) -> ResidencySource:
        if self.tells:
            return ResidencySource.EXTENSION
        return ResidencySource.METRICS if self.names_loaded else ResidencySource.INFERRED


def copies(lru: EngineLru) -> list[tuple[EngineAdapter, bool]]:
    return [(copy.adapter, copy.in_hbm) for copy in lru.copies if copy.named]


@given(events)
def test_whichever_source_speaks_and_however_they_switch_the_book_holds_what_the_engine_holds(
    happened: list[tuple[str, str]],
) -> None:
    engine = Engine()
    for number, (event, text) in enumerate(happened):
        engine.happens(event, text, 1000.0 * number)
        book = engine.book
        assert book.source is engine.source
        assert copies(book.lru) == copies(engine.lru)
        told = {r.adapter: r.state for r in engine_state(book, 1000.0 * number).residents}
        for adapter, in_hbm in copies(engine.lru):
            assert told[adapter] in HELD
            assert in_hbm >= (told[adapter] is AdapterState.RESIDENT)


@given(events, st.lists(st.booleans(), max_size=40))
def test_no_switch_of_the_source_makes_an_adapter_look_absent(
    happened: list[tuple[str, str]], muted: list[bool]
) -> None:
    """The extension may have been mute for a while before that is noticed."""
    engine = Engine()
    for number, ((event, text), mute) in enumerate(zip(happened, muted, strict=False)):
        tells = engine.tells
        engine.tells = tells and not mute
        engine.happens(event, text, 1000.0 * number)
        engine.tells = (tells and event != "silence") or event == "extension"
        now_ms = 1000.0 * number + 1.0
        before = {r.adapter for r in engine_state(engine.book, now_ms).residents}
        engine.book.saw_word(None, now_ms)
        after = {r.adapter for r in engine_state(engine.book, now_ms).residents}
        assert before <= after
        engine._push(now_ms)
        if engine.tells:
            assert copies(engine.book.lru) == copies(engine.lru)


@dataclass(frozen=True)
class Request:
    """A request through a gateway: booked at `start_ms`, at the engine a little later, gone there
    before the gateway releases it."""

    adapter: str
    start_ms: float
    way_ms: float
    runs_ms: float
    back_ms: float

    def at_engine(self, now_ms: float) -> bool:
        begun = self.start_ms + self.way_ms
        return begun <= now_ms < begun + self.runs_ms

    def at_gateway(self, now_ms: float) -> bool:
        until = self.start_ms + self.way_ms + self.runs_ms + self.back_ms
        return self.start_ms <= now_ms < until


requests = st.lists(
    st.builds(
        Request,
        adapter=st.sampled_from("ab"),
        start_ms=st.floats(0.0, 600.0),
        way_ms=st.floats(0.0, 5.0),
        runs_ms=st.floats(0.5, 400.0),
        back_ms=st.floats(0.0, 5.0),
    ),
    max_size=12,
)
PAUSE_MS = 50.0


def counted(of: list[Request], *, engine: bool, now_ms: float) -> dict[EngineAdapter, int]:
    counts: dict[EngineAdapter, int] = {}
    for request in of:
        if request.at_engine(now_ms) if engine else request.at_gateway(now_ms):
            counts[name(request.adapter)] = counts.get(name(request.adapter), 0) + 1
    return counts


def moments(of: list[Request]) -> list[float]:
    """When the engine's counts change."""
    begun = [(r.start_ms + r.way_ms, r.runs_ms) for r in of]
    return sorted({at for at, _ in begun} | {at + runs for at, runs in begun})


@given(requests, st.floats(0.0, PAUSE_MS), st.floats(0.0, 20.0))
def test_requests_of_one_gateway_never_look_foreign(
    of: list[Request], phase_ms: float, network_ms: float
) -> None:
    foreign = ForeignUse()
    events: list[tuple[float, bool]] = [(at, True) for at in moments(of)]
    events += [(phase_ms + PAUSE_MS * tick + network_ms, False) for tick in range(-1, 24)]
    told: dict[EngineAdapter, int] = {}
    for now_ms, by_engine in sorted(events):
        if by_engine:
            foreign.told(counted(of, engine=True, now_ms=now_ms), now_ms)
        else:
            sent_ms = now_ms - network_ms
            now = counted(of, engine=False, now_ms=sent_ms)
            used = {name(r.adapter) for r in of if sent_ms - PAUSE_MS < r.start_ms <= sent_ms} | {
                n for n in now.keys() | told.keys() if now.get(n, 0) != told.get(n, 0)
            }
            told = now
            foreign.counted(now, used, now_ms)
            foreign.sampled(frozenset(), now_ms)
        assert foreign.counts == {}


@given(
    st.integers(1, 3),
    st.floats(300.0, 5_000.0),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 3)),
)
def test_what_nobody_counts_for_long_is_foreign_and_ends_at_once(
    count: int, runs_ms: float, gateways: dict[str, int]
) -> None:
    foreign = ForeignUse()
    counts = {name(text): n for text, n in gateways.items()}
    engine = {**counts, name("c"): count}
    foreign.counted(counts, names(*gateways), 0.0)
    foreign.told(engine, 0.0)
    assert foreign.counts == {}
    at_ms = 0.0
    while (at_ms := at_ms + 100.0) < runs_ms:
        foreign.sampled(frozenset(), at_ms)
    assert foreign.counts == {name("c"): count}
    foreign.told(counts, runs_ms)
    assert foreign.counts == {}
