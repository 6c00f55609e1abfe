"""Laws of the fold: whatever the bus does to an agent's reports, the next full state heals."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tests.engine_parts import engine_state

from axiom_common.model.engine import EngineState, GpuState, NodeState, PlanStatus
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.state.region_view import NodeDelta, Outcome, RegionView
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import NodeReport, ReportKind, encode
from axiom_common.wire.subjects import node_report

REGION = RegionId("r")
NODES = [NodeId("a"), NodeId("b")]

Report = NodeState | NodeDelta


@dataclass
class Life:
    """What one agent said, in order, and the truth after each word."""

    said: list[Report]
    truths: list[NodeState]


def _engine(node: NodeId, name: str, running: int) -> EngineState:
    return engine_state(f"{node}.{name}", running=running)


@st.composite
def lives(draw: st.DrawFn, node: NodeId) -> Life:
    """An agent over some incarnations: engines change, come and go; told by deltas and fulls."""
    said: list[Report] = []
    truths: list[NodeState] = []
    incarnation = 0
    for _ in range(draw(st.integers(1, 3))):
        incarnation += draw(st.integers(1, 5))
        engines: dict[str, EngineState] = {}
        for seq in range(1, draw(st.integers(1, 8)) + 1):
            changes = draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3), max_size=2))
            changed = {name: _engine(node, name, running) for name, running in changes.items()}
            engines |= changed
            whole = seq == 1 or draw(st.booleans())
            if whole and engines and draw(st.booleans()):
                del engines[draw(st.sampled_from(sorted(engines)))]
            truth = NodeState(
                region=REGION,
                node=node,
                incarnation=incarnation,
                seq=seq,
                engines=tuple(engines.values()),
            )
            truths.append(truth)
            said.append(
                truth
                if whole
                else NodeDelta(
                    region=REGION,
                    node=node,
                    incarnation=incarnation,
                    seq=seq,
                    engines=tuple(changed.values()),
                )
            )
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


def _order(state: NodeState | NodeDelta) -> tuple[int, int]:
    return (state.incarnation, state.seq)


def _same(a: NodeState | None, b: NodeState) -> bool:
    """Equal but for the order of engines, which means nothing."""
    return (
        a is not None
        and _order(a) == _order(b)
        and sorted(a.engines, key=repr) == sorted(b.engines, key=repr)
    )


@given(deliveries())
def test_one_full_state_heals_everything(given_: tuple[list[Life], list[Report]]) -> None:
    all_lives, heard = given_
    view = RegionView(REGION)
    for now_ms, report in enumerate(heard):
        view.apply(report, now_ms)
    for life in all_lives:
        last = life.truths[-1]
        view.apply(last, 1e6)
        assert _same(view.node(last.node), last)


@given(deliveries())
def test_the_view_is_always_a_truth_and_never_goes_back(
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
        if change.outcome is Outcome.APPLIED:
            assert after is not None
            assert before is None or _order(before) < _order(after) == _order(report)
            assert _same(after, truths[(after.node, *_order(after))])
        else:
            assert after == before


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


@given(
    lives(NODES[0]),
    st.builds(GpuState, index=st.integers(0, 7), temperature_c=st.none() | st.floats(0, 120)),
    st.none()
    | st.builds(
        PlanStatus, revision=st.integers(0, 9), fence=st.integers(0, 9), accepted=st.booleans()
    ),
)
def test_reports_survive_the_wire(life: Life, gpu: GpuState, plan: PlanStatus | None) -> None:
    for report in life.said:
        kind = ReportKind.FULL if isinstance(report, NodeState) else ReportKind.DELTA
        sent = NodeReport(
            kind=kind,
            region=report.region,
            node=report.node,
            incarnation=report.incarnation,
            seq=report.seq,
            engines=report.engines,
            gpus=(gpu,),
            plan=plan,
        )
        told = decode_node_report(node_report(report.region, report.node), encode(sent))
        assert type(told) is type(report)
        assert (told.engines, _order(told)) == (report.engines, _order(report))
        assert (told.gpus, told.plan) == ((gpu,), plan)
