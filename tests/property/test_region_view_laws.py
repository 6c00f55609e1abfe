"""Laws of the fold: whatever the bus does to an agent's reports, the view is what the agent told.

Fulls and beats leave the truth behind. A delta leaves the truth in all slow facts; figures that it
does not tell may still be those of an earlier word, where beats between them were lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine_parts import engine_state

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import (
    EngineFigures,
    EngineState,
    GpuState,
    HostState,
    NodeState,
    PlanStatus,
)
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.state.region_view import (
    EngineBeat,
    NodeBeat,
    NodeDelta,
    NodeLeft,
    Outcome,
    RegionView,
    Report,
    order_of,
    reordered,
)
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import NodeReport, ReportKind, encode
from axiom_common.wire.subjects import node_report

REGION = RegionId("r")
NODES = [NodeId("a"), NodeId("b")]


@dataclass
class Life:
    """What one agent said, in order, and the truth after each word."""

    said: list[Report]
    truths: list[NodeState]


def _residents(names: list[str]) -> tuple[Residency, ...]:
    return tuple(
        Residency(
            adapter=EngineAdapter(name),
            state=AdapterState.RESIDENT,
            source=ResidencySource.EXTENSION,
        )
        for name in names
    )


def _names(residents: tuple[Residency, ...]) -> list[EngineAdapter]:
    return [resident.adapter for resident in residents]


class _Agent:
    """Tells as `Reporter` does: what of an order was told since its engine was told whole is told
    in each beat."""

    def __init__(self, draw: st.DrawFn, node: NodeId, incarnation: int) -> None:
        self.draw = draw
        self.node = node
        self.incarnation = incarnation
        self.seq = 0
        self.base = 0
        self.engines: dict[str, EngineState] = {}
        self.moved: set[str] = set()

    def say(self) -> tuple[Report, NodeState]:
        """The next word, and the truth after it."""
        self.seq += 1
        kind = self.draw(st.sampled_from(["full", "delta", "beat", "beat"]))
        word: Any
        if self.seq == 1 or kind == "full":
            word = self._full()
        elif kind == "delta":
            word = self._delta()
        else:
            word = self._beat()
        return word, self.truth

    @property
    def truth(self) -> NodeState:
        return NodeState(**self._head(), base=self.base, engines=tuple(self.engines.values()))

    def _full(self) -> NodeState:
        self._change_slowly()
        if self.engines and self.draw(st.booleans()):
            del self.engines[self.draw(st.sampled_from(sorted(self.engines)))]
        self.base = self.seq
        self.moved = set()
        return self.truth

    def _delta(self) -> NodeDelta:
        changed = self._change_slowly()
        base, self.base = self.base, self.seq
        self.moved -= set(changed)
        return NodeDelta(
            **self._head(), base=base, engines=tuple(self.engines[name] for name in changed)
        )

    def _beat(self) -> NodeBeat:
        for name, engine in self.engines.items():
            residents = engine.residents
            if self.draw(st.booleans()):
                residents = tuple(self.draw(st.permutations(residents)))
                self.moved.add(name)
            figures = EngineFigures(running=self.draw(st.integers(0, 2)), sample=self.seq)
            self.engines[name] = engine.with_figures(figures, residents=residents)
        return NodeBeat(
            **self._head(),
            base=self.base,
            engines=tuple(
                EngineBeat(
                    e.engine, e.figures, order_of(_names(e.residents)) if n in self.moved else None
                )
                for n, e in self.draw(st.permutations(sorted(self.engines.items())))
            ),
        )

    def _change_slowly(self) -> list[str]:
        changes = self.draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3), max_size=2))
        for name, running in changes.items():
            held = self.draw(st.lists(st.sampled_from("klmn"), unique=True, max_size=4))
            self.engines[name] = engine_state(
                f"{self.node}.{name}", running=running, residents=_residents(held)
            )
        return list(changes)

    def _head(self) -> dict[str, Any]:
        return {
            "region": REGION,
            "node": self.node,
            "incarnation": self.incarnation,
            "seq": self.seq,
        }


@st.composite
def lives(draw: st.DrawFn, node: NodeId) -> Life:
    """An agent over some incarnations: engines change, come and go."""
    said: list[Report] = []
    truths: list[NodeState] = []
    incarnation = 0
    for _ in range(draw(st.integers(1, 3))):
        incarnation += draw(st.integers(1, 5))
        agent = _Agent(draw, node, incarnation)
        for _ in range(draw(st.integers(1, 8))):
            word, truth = agent.say()
            said.append(word)
            truths.append(truth)
    return Life(said, truths)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Life], list[Report]]:
    """The lives of all nodes, and what a bus makes of them: loss, repetition, any order."""
    all_lives = [draw(lives(node)) for node in NODES]
    said = [report for life in all_lives for report in life.said]
    heard = draw(st.lists(st.sampled_from(said), max_size=2 * len(said)))
    if draw(st.booleans()):
        heard = [report for life in all_lives for report in life.said if draw(st.booleans())]
    return all_lives, heard


def _order(report: Report) -> tuple[int, int]:
    return (report.incarnation, report.seq)


def _facts(state: NodeState, *, figures: bool) -> object:
    """All of a state but the order of its engines, which means nothing."""
    engines = state.engines
    if not figures:
        engines = tuple(
            e.with_figures(EngineFigures(), residents=tuple(sorted(e.residents, key=repr)))
            for e in engines
        )
    return (_order(state), state.base, sorted(engines, key=repr))


def _same(a: NodeState | None, b: NodeState, *, figures: bool = True) -> bool:
    return a is not None and _facts(a, figures=figures) == _facts(b, figures=figures)


@given(deliveries())
def test_one_full_state_heals_everything(given_: tuple[list[Life], list[Report]]) -> None:
    all_lives, heard = given_
    view = RegionView(REGION)
    for now_ms, report in enumerate(heard):
        view.apply(report, now_ms)
    for life in all_lives:
        seq = life.truths[-1].seq + 1
        told = replace(life.truths[-1], seq=seq, base=seq)
        assert view.apply(told, 1e6).outcome is Outcome.APPLIED
        assert view.node(told.node) == told


@given(deliveries())
def test_the_view_is_always_what_was_told_and_never_goes_back(
    given_: tuple[list[Life], list[Report]],
) -> None:
    all_lives, heard = given_
    truths = {(t.node, *_order(t)): t for life in all_lives for t in life.truths}
    view = RegionView(REGION)
    for now_ms, report in enumerate(heard):
        before = view.node(report.node)
        others = [n for n in view.nodes() if n.node != report.node]
        change = view.apply(report, now_ms)
        after = view.node(report.node)
        assert [n for n in view.nodes() if n.node != report.node] == others
        if change.outcome is not Outcome.APPLIED:
            assert after == before
            continue
        assert after is not None
        assert before is None or _order(before) < _order(after) == _order(report)
        truth = truths[(after.node, *_order(after))]
        assert _same(after, truth, figures=not isinstance(report, NodeDelta))
        if isinstance(report, NodeDelta):
            now = {e.engine: e for e in after.engines}
            assert all(now[e.engine] == e for e in report.engines)


@given(lives(NODES[0]), st.data())
def test_lost_beats_leave_no_hole(life: Life, data: st.DataObject) -> None:
    """Of fulls and deltas all arrive, of beats some: nobody has to ask for the whole."""
    view = RegionView(REGION)
    for word, truth in zip(life.said, life.truths, strict=True):
        if isinstance(word, NodeBeat) and data.draw(st.booleans()):
            continue
        assert view.apply(word, 0).outcome is Outcome.APPLIED
        assert _same(view.node(word.node), truth, figures=not isinstance(word, NodeDelta))


@given(lives(NODES[0]), st.data())
def test_a_record_of_any_moment_takes_the_beats_after_it(life: Life, data: st.DataObject) -> None:
    """The shadow cache may lag behind by some beats: a reader that starts from it needs no more."""
    at = data.draw(st.integers(0, len(life.said) - 1))
    view = RegionView(REGION)
    view.apply(life.truths[at], 0)
    for word, truth in zip(life.said[at + 1 :], life.truths[at + 1 :], strict=True):
        if not isinstance(word, NodeBeat):
            break
        assert view.apply(word, 0).outcome is Outcome.APPLIED
        assert _same(view.node(word.node), truth)


@given(deliveries())
def test_changes_add_up_to_the_view(given_: tuple[list[Life], list[Report]]) -> None:
    _, heard = given_
    view = RegionView(REGION)
    added_up: dict[EngineId, EngineState] = {}
    for now_ms, report in enumerate(heard):
        change = view.apply(report, now_ms)
        assert all(added_up.get(e.engine) != e for e in change.changed)
        added_up |= {e.engine: e for e in change.changed}
        for engine in change.removed:
            del added_up[engine]
    assert added_up == {e.engine: e for e in view.engines()}


@given(deliveries())
def test_what_was_applied_and_is_repeated_changes_nothing(
    given_: tuple[list[Life], list[Report]],
) -> None:
    _, heard = given_
    view = RegionView(REGION)
    applied: list[Report] = []
    for now_ms, report in enumerate(heard):
        if view.apply(report, now_ms).outcome is Outcome.APPLIED:
            applied.append(report)
            before = view.nodes()
            assert all(view.apply(old, now_ms).outcome is Outcome.STALE for old in applied)
            assert view.nodes() == before


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.randoms(use_true_random=False))
def test_an_order_finds_the_residents_in_whatever_order_they_are(
    names: list[str], shuffle: Any
) -> None:
    truth = _residents(names)
    shuffled = list(truth)
    shuffle.shuffle(shuffled)
    assert reordered(tuple(shuffled), order_of(_names(truth))) == truth
    assert reordered(truth, order_of(_names(truth))) is truth


@given(
    st.lists(st.sampled_from("abcd"), unique=True),
    st.lists(st.integers(-3, 6), max_size=5).map(tuple),
)
def test_what_is_no_order_of_the_residents_is_refused(
    names: list[str], order: tuple[int, ...]
) -> None:
    right = sorted(order) == list(range(len(names)))
    assert (reordered(_residents(names), order) is not None) == right


@given(
    lives(NODES[0]),
    st.builds(GpuState, index=st.integers(0, 7), temperature_c=st.none() | st.floats(0, 120)),
    st.none()
    | st.builds(
        PlanStatus, revision=st.integers(0, 9), fence=st.integers(0, 9), accepted=st.booleans()
    ),
)
def test_reports_survive_the_wire(life: Life, gpu: GpuState, plan: PlanStatus | None) -> None:
    host = HostState(page_cache_bytes=5)
    for report in life.said:
        if isinstance(report, NodeBeat):
            report = report._replace(gpus=(gpu,))
            assert decode_node_report(node_report(REGION, report.node), encode(report)) == report
            continue
        assert isinstance(report, NodeState | NodeDelta)
        sent = NodeReport(
            kind=ReportKind.FULL if isinstance(report, NodeState) else ReportKind.DELTA,
            region=report.region,
            node=report.node,
            incarnation=report.incarnation,
            seq=report.seq,
            base=None if isinstance(report, NodeState) else report.base,
            engines=report.engines,
            gpus=(gpu,),
            host=host,
            plan=plan,
        )
        told = decode_node_report(node_report(report.region, report.node), encode(sent))
        assert told == replace(report, gpus=(gpu,), host=host, plan=plan)


def test_last_words_survive_the_wire() -> None:
    sent = NodeReport(
        kind=ReportKind.LEFT, region=REGION, node=NODES[0], incarnation=3, seq=9, engines=()
    )
    told = decode_node_report(node_report(REGION, NODES[0]), encode(sent))
    assert told == NodeLeft(region=REGION, node=NODES[0], incarnation=3, seq=9)
