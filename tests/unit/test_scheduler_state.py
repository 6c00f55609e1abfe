"""Nodes that leave: a scheduler waits for the next life of an agent, and then plans without it."""

from __future__ import annotations

from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.state.hearing import TICK_MS
from axiom_common.state.liveness import DEAD_MS
from axiom_common.state.region_view import NodeLeft
from axiom_scheduler.state import SchedulerState

REGION = RegionId("r")
NODES = tuple(NodeId(f"n{i}") for i in range(4))


def whole(node: NodeId, incarnation: int = 1, seq: int = 1) -> NodeState:
    engine = EngineState(
        engine=EngineId(f"{node}.e"),
        url="http://127.0.0.1:1",
        base_model="base",
        served_name="base",
        status=EngineStatus.READY,
    )
    return NodeState(region=REGION, node=node, incarnation=incarnation, seq=seq, engines=(engine,))


def leaves(node: NodeId, seq: int = 2) -> NodeLeft:
    return NodeLeft(region=REGION, node=node, incarnation=1, seq=seq)


def state_with(*nodes: NodeId) -> SchedulerState:
    state = SchedulerState(REGION, started_ms=0.0, settle_ms=0.0, forget_ms=30_000.0)
    for node in nodes:
        assert state.report(whole(node), 0.0)
    return state


def swept(state: SchedulerState, from_ms: float, to_ms: float) -> list[bool]:
    """Whether each sweep on the way made a placement due."""
    ticks = int((to_ms - from_ms) / TICK_MS)
    return [state.sweep(from_ms + TICK_MS * (n + 1), connected=True) for n in range(ticks)]


def test_an_agent_that_leaves_and_comes_back_moves_nothing() -> None:
    state = state_with(*NODES)
    assert not state.report(leaves(NODES[0]), 100.0)
    for node in NODES[1:]:
        state.report(whole(node, seq=5), 2_000.0)
    assert not any(swept(state, 0.0, 3_000.0))
    assert not state.report(whole(NODES[0], incarnation=2), 3_000.0)
    for node in NODES:
        state.report(whole(node, incarnation=3), 4_000.0)
    assert not any(swept(state, 3_000.0, 6_000.0))


def test_all_agents_that_leave_are_gone_after_a_dead_ones_time() -> None:
    """As many at once would freeze the judgement if they only fell silent."""
    state = state_with(*NODES)
    for node in NODES:
        state.report(leaves(node), 0.0)
    sweeps = swept(state, 0.0, DEAD_MS + 2 * TICK_MS)
    assert any(sweeps)
    assert not any(sweeps[: int(DEAD_MS / TICK_MS) - 2])
    assert not state.frozen
