"""The fold of node reports, row by row of its table."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from tests.engine_parts import engine_state

from axiom_common.errors import WireError
from axiom_common.model.engine import (
    EngineFigures,
    EngineState,
    GpuState,
    NodeState,
    PlanStatus,
)
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.state.region_view import (
    NODES_MAX,
    TOMBSTONE_MS,
    TOMBSTONES_MAX,
    EngineBeat,
    NodeBeat,
    NodeDelta,
    NodeLeft,
    Outcome,
    RegionView,
    Report,
)
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import NodeReport, ReportKind, encode
from axiom_common.wire.subjects import node_report

REGION = RegionId("r")
NODE = NodeId("n")
PLAN = PlanStatus(revision=3, fence=1, accepted=True)
GPUS = (GpuState(index=0, temperature_c=50.0),)


def engine(name: str, running: int = 0, node: NodeId = NODE) -> EngineState:
    return engine_state(f"{node}.{name}", running=running)


def full(incarnation: int, seq: int, *engines: EngineState, node: NodeId = NODE) -> NodeState:
    return NodeState(
        region=REGION, node=node, incarnation=incarnation, seq=seq, engines=engines, gpus=GPUS
    )


def delta(incarnation: int, seq: int, *engines: EngineState) -> NodeDelta:
    return NodeDelta(region=REGION, node=NODE, incarnation=incarnation, seq=seq, engines=engines)


def figures(name: str, running: int = 0, order: tuple[int, ...] | None = None) -> EngineBeat:
    return EngineBeat(EngineId(f"{NODE}.{name}"), EngineFigures(running=running), order)


def beat(incarnation: int, seq: int, *engines: EngineBeat, base: int = 10) -> NodeBeat:
    return NodeBeat(REGION, NODE, incarnation, seq, base, engines)


def left(incarnation: int, seq: int) -> NodeLeft:
    return NodeLeft(region=REGION, node=NODE, incarnation=incarnation, seq=seq)


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (full(5, 10, engine("a", 1)), Outcome.STALE),
        (full(5, 9, engine("a", 1)), Outcome.STALE),
        (full(4, 99, engine("a", 1)), Outcome.STALE),
        (full(5, 11, engine("a", 1)), Outcome.APPLIED),
        (full(5, 99, engine("a", 1)), Outcome.APPLIED),
        (full(6, 0, engine("a", 1)), Outcome.APPLIED),
        (delta(5, 10, engine("a", 1)), Outcome.STALE),
        (delta(5, 9, engine("a", 1)), Outcome.STALE),
        (delta(4, 99, engine("a", 1)), Outcome.STALE),
        (delta(5, 11, engine("a", 1)), Outcome.APPLIED),
        (delta(5, 12, engine("a", 1)), Outcome.GAP),
        (delta(6, 11, engine("a", 1)), Outcome.NEEDS_FULL),
        (delta(6, 1, engine("a", 1)), Outcome.NEEDS_FULL),
        (replace(delta(5, 20, engine("a", 1)), base=10), Outcome.APPLIED),
        (replace(delta(5, 20, engine("a", 1)), base=9), Outcome.GAP),
        (beat(5, 10, figures("a", 1), figures("b")), Outcome.STALE),
        (beat(4, 99, figures("a", 1), figures("b")), Outcome.STALE),
        (beat(5, 11, figures("a", 1), figures("b")), Outcome.APPLIED),
        (beat(5, 99, figures("b"), figures("a", 1)), Outcome.APPLIED),
        (beat(5, 11, figures("a", 1), figures("b"), base=9), Outcome.GAP),
        (beat(5, 12, figures("a", 1), figures("b"), base=11), Outcome.GAP),
        (beat(5, 11, figures("a", 1)), Outcome.GAP),
        (beat(5, 11, figures("a", 1), figures("c")), Outcome.GAP),
        (beat(5, 11, figures("a", 1), figures("a")), Outcome.GAP),
        (beat(5, 11, figures("a", 1, order=(0,)), figures("b")), Outcome.GAP),
        (beat(6, 11, figures("a", 1), figures("b")), Outcome.NEEDS_FULL),
        (left(5, 10), Outcome.STALE),
        (left(4, 99), Outcome.STALE),
    ],
)
def test_what_a_report_does_to_a_node_at_5_10(report: Report, outcome: Outcome) -> None:
    view = RegionView(REGION)
    before = full(5, 10, engine("a"), engine("b"))
    view.apply(before, 0)
    change = view.apply(report, 1)
    assert change.outcome is outcome
    if outcome is Outcome.APPLIED:
        assert change.changed == (engine("a", 1),)
        assert engine("a", 1) in view.engines()
    else:
        assert change.changed == change.removed == ()
        assert view.node(NODE) == before


def test_a_first_delta_or_beat_needs_a_full() -> None:
    view = RegionView(REGION)
    assert view.apply(delta(1, 1, engine("a")), 0).outcome is Outcome.NEEDS_FULL
    assert view.apply(beat(1, 1, figures("a")), 0).outcome is Outcome.NEEDS_FULL
    assert view.apply(left(1, 1), 0).outcome is Outcome.STALE
    assert view.nodes() == ()


def test_a_report_of_another_region_changes_nothing() -> None:
    view = RegionView(RegionId("other"))
    assert view.apply(full(1, 1, engine("a")), 0).outcome is Outcome.STALE
    assert view.apply(delta(1, 2), 0).outcome is Outcome.STALE
    assert view.nodes() == ()


def test_a_full_tells_what_changed_and_what_is_gone() -> None:
    view = RegionView(REGION)
    view.apply(full(1, 1, engine("same"), engine("other"), engine("gone")), 0)
    change = view.apply(full(1, 2, engine("same"), engine("other", 1), engine("new")), 1)
    assert change.changed == (engine("other", 1), engine("new"))
    assert change.removed == (EngineId("n.gone"),)
    assert sorted(e.engine for e in view.engines()) == ["n.new", "n.other", "n.same"]


def test_a_delta_leaves_what_it_does_not_name() -> None:
    view = RegionView(REGION)
    view.apply(full(1, 1, engine("a"), engine("b")), 0)
    change = view.apply(delta(1, 2, engine("b", 7), engine("c")), 1)
    assert change.changed == (engine("b", 7), engine("c"))
    node = view.node(NODE)
    assert node is not None
    assert node.engines == (engine("a"), engine("b", 7), engine("c"))
    assert (node.seq, node.gpus, node.plan) == (2, GPUS, None)
    told = NodeDelta(region=REGION, node=NODE, incarnation=1, seq=3, plan=PLAN)
    assert view.apply(told, 2).changed == ()
    node = view.node(NODE)
    assert node is not None
    assert (node.engines, node.gpus, node.plan) == (
        (engine("a"), engine("b", 7), engine("c")),
        GPUS,
        PLAN,
    )


def test_a_beat_brings_figures_and_leaves_the_rest() -> None:
    view = RegionView(REGION)
    view.apply(full(5, 10, engine("a"), engine("b")), 0)
    change = view.apply(beat(5, 11, figures("a", 1), figures("b")), 1)
    assert change.changed == (engine("a", 1),)
    node = view.node(NODE)
    assert node is not None
    assert (node.seq, node.base, node.gpus) == (11, 10, GPUS)
    assert view.apply(beat(5, 12, figures("a", 1), figures("b")), 2).changed == ()
    hot = (GpuState(index=0, temperature_c=90.0),)
    told = beat(5, 13, figures("a", 1), figures("b"))._replace(gpus=hot)
    assert view.apply(told, 3).changed == ()
    node = view.node(NODE)
    assert node is not None
    assert (node.gpus, node.engines) == (hot, (engine("a", 1), engine("b")))


def test_a_delta_can_tell_that_the_last_gpu_is_gone() -> None:
    view = RegionView(REGION)
    view.apply(full(5, 10), 0)
    view.apply(replace(delta(5, 11), gpus=()), 0)
    assert [node.gpus for node in view.nodes()] == [()]


def test_who_left_stays_until_it_is_forgotten_and_says_nothing_old_any_more() -> None:
    view = RegionView(REGION)
    view.apply(full(5, 10, engine("a")), 0)
    assert view.apply(left(5, 12), 1).outcome is Outcome.LEFT
    assert view.apply(beat(5, 11, figures("a", 1)), 2).outcome is Outcome.STALE
    assert view.apply(left(5, 12), 2).outcome is Outcome.STALE
    assert [node.engines for node in view.nodes()] == [(engine("a"),)]
    view.forget(NODE, 3)
    assert view.apply(full(5, 12, engine("a")), 4).outcome is Outcome.STALE
    assert view.apply(full(6, 1, engine("a")), 4).outcome is Outcome.APPLIED


def test_after_a_gap_only_a_full_helps() -> None:
    view = RegionView(REGION)
    view.apply(full(1, 1, engine("a")), 0)
    assert view.apply(delta(1, 3, engine("a", 3)), 1).outcome is Outcome.GAP
    assert view.apply(beat(1, 4, figures("a", 3), base=3), 1).outcome is Outcome.GAP
    assert view.apply(delta(1, 4, engine("a", 4)), 2).outcome is Outcome.GAP
    assert view.apply(full(1, 5, engine("a", 5)), 3).outcome is Outcome.APPLIED
    assert view.apply(delta(1, 6, engine("a", 6)), 4).outcome is Outcome.APPLIED


def test_a_forgotten_node_stays_away_until_it_says_something_new() -> None:
    view = RegionView(REGION)
    last = full(5, 10, engine("a"), engine("b"))
    view.apply(last, 0)
    assert view.forget(NODE, 100) == (EngineId("n.a"), EngineId("n.b"))
    assert view.forget(NODE, 100) == ()
    assert (len(view), view.nodes(), tuple(view.engines())) == (0, (), ())
    assert view.node(NODE) is None
    for late in (last, full(5, 9, engine("a")), full(4, 99), delta(5, 10)):
        assert view.apply(late, 200).outcome is Outcome.STALE
    assert view.apply(delta(5, 11, engine("a")), 200).outcome is Outcome.NEEDS_FULL
    assert view.apply(full(5, 12, engine("a")), 200).outcome is Outcome.APPLIED


def test_a_tombstone_ends() -> None:
    view = RegionView(REGION)
    view.apply(full(5, 10), 0)
    view.forget(NODE, 0)
    assert view.apply(full(5, 10), TOMBSTONE_MS - 1).outcome is Outcome.STALE
    assert view.apply(full(5, 10), TOMBSTONE_MS).outcome is Outcome.APPLIED


def test_memory_comes_back() -> None:
    view = RegionView(REGION)
    nodes = [NodeId(f"n{n}") for n in range(100)]
    before = engines_in_memory()
    for node in nodes:
        view.apply(full(1, 1, *(engine(str(e), node=node) for e in range(8)), node=node), 0)
    assert engines_in_memory() == before + 800
    for node in nodes:
        view.forget(node, 0)
    assert engines_in_memory() == before


def engines_in_memory() -> int:
    """All engine states that anybody holds."""
    gc.collect()
    return sum(type(thing) is EngineState for thing in gc.get_objects())


def test_nodes_are_bounded_and_those_known_stay_current() -> None:
    view = RegionView(REGION)
    names = [NodeId(f"n{n}") for n in range(NODES_MAX)]
    for name in names:
        view.apply(full(1, 1, node=name), 0)
    one_more = NodeId("one-more")
    assert view.apply(full(1, 1, node=one_more), 0).outcome is Outcome.NO_ROOM
    assert view.apply(replace(delta(1, 2), node=one_more), 0).outcome is Outcome.NO_ROOM
    assert len(view) == NODES_MAX
    assert view.apply(full(1, 2, node=names[0]), 0).outcome is Outcome.APPLIED
    view.forget(names[0], 0)
    assert view.apply(full(1, 1, node=one_more), 0).outcome is Outcome.APPLIED


def test_tombstones_are_bounded_and_end() -> None:
    view = RegionView(REGION)
    names = [NodeId(f"n{n}") for n in range(TOMBSTONES_MAX + 1)]
    for name in names:
        view.apply(full(1, 1, node=name), 0)
        view.forget(name, 0)

    def comes_back(name: NodeId, now_ms: float) -> bool:
        return view.apply(full(1, 1, node=name), now_ms).outcome is Outcome.APPLIED

    assert comes_back(names[0], 1)
    assert not any(comes_back(name, 1) for name in names[1:])
    view.forget(names[0], 1)
    assert all(comes_back(name, TOMBSTONE_MS) for name in names[1:])


def test_the_subject_says_whose_report_it_may_be() -> None:
    report = NodeReport(
        kind=ReportKind.FULL, region=REGION, node=NODE, incarnation=1, seq=1, engines=(engine("a"),)
    )
    payload = encode(report)
    assert decode_node_report(node_report(REGION, NODE), payload) == NodeState(
        region=REGION, node=NODE, incarnation=1, seq=1, engines=(engine("a"),)
    )
    for region, node in ((REGION, NodeId("other")), (RegionId("other"), NODE)):
        with pytest.raises(WireError, match="n on"):
            decode_node_report(node_report(region, node), payload)


def test_an_agent_of_the_version_before_is_understood() -> None:
    """It names no base, each of its reports is one, and a delta without GPUs leaves them."""

    def told(kind: ReportKind, seq: int, *gpus: GpuState) -> None:
        report = NodeReport(
            kind=kind,
            region=REGION,
            node=NODE,
            incarnation=1,
            seq=seq,
            engines=(engine("a", seq),),
            gpus=gpus,
        )
        read = decode_node_report(node_report(REGION, NODE), encode(report))
        assert view.apply(read, 0).outcome is Outcome.APPLIED

    view = RegionView(REGION)
    told(ReportKind.FULL, 1, *GPUS)
    told(ReportKind.DELTA, 2)
    told(ReportKind.DELTA, 3)
    told(ReportKind.FULL, 4, *GPUS)
    told(ReportKind.DELTA, 5)
    assert [(node.engines, node.gpus) for node in view.nodes()] == [((engine("a", 5),), GPUS)]
