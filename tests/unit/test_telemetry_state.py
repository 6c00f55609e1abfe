"""What telemetry writes, whom it asks again, and what it forgets."""

from __future__ import annotations

from tests.engine_parts import engine_state

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.hearing import RECOVERY_MS, TICK_MS
from axiom_common.state.liveness import DEAD_MS
from axiom_common.state.region_view import NodeDelta, Outcome
from axiom_telemetry.state import (
    RECORD_TTL_MS,
    RESYNC_EVERY_MS,
    RESYNC_JITTER_MS,
    TelemetryState,
    Write,
)

REGION = RegionId("r")
WRITE_EVERY_MS = 200.0
A, B = NodeId("a"), NodeId("b")


def full(node: NodeId, seq: int, *, incarnation: int = 1) -> NodeState:
    return NodeState(region=REGION, node=node, incarnation=incarnation, seq=seq)


def delta(node: NodeId, seq: int) -> NodeDelta:
    engine = engine_state(f"{node}.e")
    return NodeDelta(region=REGION, node=node, incarnation=1, seq=seq, engines=(engine,))


def heard(*reports: NodeState | NodeDelta, now_ms: float = 0.0) -> TelemetryState:
    state = TelemetryState(REGION, started_ms=0.0, write_every_ms=WRITE_EVERY_MS)
    for report in reports:
        state.hear(report, now_ms, jitter=0.0)
    return state


def taken(state: TelemetryState, now_ms: float, writes_max: int = 99) -> list[tuple[NodeId, int]]:
    """Take writes, end them at once, and show (node, seq)."""
    writes = state.take_writes(now_ms, writes_max)
    for write in writes:
        state.wrote(write, now_ms)
    return [(w.state.node, w.state.seq) for w in writes]


def ticked(
    state: TelemetryState, from_ms: float, until_ms: float, *, connected: bool = True
) -> float:
    """Sweep each `TICK_MS`; the time then."""
    now_ms = from_ms
    while now_ms < until_ms:
        now_ms += TICK_MS
        state.sweep(now_ms, connected=connected)
    return now_ms


def test_a_change_is_due_at_once_and_the_next_after_a_while() -> None:
    state = heard(full(A, 1))
    assert taken(state, 0) == [(A, 1)]
    state.hear(full(A, 2), 10, jitter=0)
    state.hear(delta(A, 3), 20, jitter=0)
    assert taken(state, WRITE_EVERY_MS - 1) == []
    assert taken(state, WRITE_EVERY_MS) == [(A, 3)]
    assert taken(state, 10 * WRITE_EVERY_MS) == []


def test_one_write_of_a_node_at_a_time_and_the_newest_waits() -> None:
    state = heard(full(A, 1))
    [first] = state.take_writes(0, 99)
    state.hear(full(A, 2), 1, jitter=0)
    state.hear(full(A, 3), 2, jitter=0)
    assert taken(state, 10_000) == []
    assert state.dirty_count == 1
    state.wrote(first, 0)
    assert taken(state, 10_000) == [(A, 3)]


def test_a_failed_write_waits_as_the_newest_state() -> None:
    state = heard(full(A, 1))
    [write] = state.take_writes(0, 99)
    state.hear(full(A, 2), 1, jitter=0)
    state.not_written(write)
    assert state.dirty_count == 1
    assert taken(state, 2) == [(A, 2)]


def test_nobody_waits_for_ever_behind_the_others() -> None:
    state = heard(full(A, 1), full(B, 1))
    assert taken(state, 0, writes_max=1) == [(A, 1)]
    state.hear(full(A, 2), WRITE_EVERY_MS, jitter=0)
    assert taken(state, WRITE_EVERY_MS, writes_max=1) == [(B, 1)]


def test_the_age_of_a_state_counts_against_its_time_to_live() -> None:
    state = heard(full(A, 1))
    assert state.take_writes(1_000, 99) == [Write(full(A, 1), RECORD_TTL_MS - 1_000)]


def test_after_a_loss_all_is_written_again_but_what_is_too_old() -> None:
    state = heard(full(A, 1), full(B, 1))
    taken(state, 0)
    state.hear(full(B, 2), 5_000, jitter=0)
    taken(state, 5_000)
    state.write_all()
    assert sorted(taken(state, 5_001)) == [(A, 1), (B, 2)]
    state.write_all()
    assert taken(state, RECORD_TTL_MS) == [(B, 2)]


def test_a_gap_is_asked_about_once_in_a_while() -> None:
    state = heard(full(A, 1))
    assert state.hear(delta(A, 3), 0, jitter=0.5) is Outcome.GAP
    assert state.take_resyncs(0.5 * RESYNC_JITTER_MS - 1) == []
    state.hear(delta(A, 4), 1, jitter=0)
    assert state.take_resyncs(0.5 * RESYNC_JITTER_MS) == [A]
    asked_ms = 0.5 * RESYNC_JITTER_MS
    state.hear(delta(A, 5), asked_ms + 1, jitter=0)
    assert state.take_resyncs(asked_ms + RESYNC_EVERY_MS - 1) == []
    assert state.take_resyncs(asked_ms + RESYNC_EVERY_MS) == [A]
    assert state.take_resyncs(10 * RESYNC_EVERY_MS) == []


def test_a_full_state_that_comes_by_itself_spares_the_request() -> None:
    state = heard(full(A, 1), delta(A, 3))
    state.hear(full(A, 4), 1, jitter=0)
    assert state.take_resyncs(10_000) == []


def test_a_node_known_by_a_change_alone_is_asked() -> None:
    state = TelemetryState(REGION, started_ms=0.0, write_every_ms=WRITE_EVERY_MS)
    assert state.hear(delta(A, 7), 0, jitter=0) is Outcome.NEEDS_FULL
    assert state.take_resyncs(0) == [A]
    assert (state.node_count, state.dirty_count) == (0, 0)


def test_a_reconnect_asks_everybody() -> None:
    state = heard(full(A, 1), full(B, 1))
    state.want_all(100, jitter=lambda: 0.0)
    assert sorted(state.take_resyncs(100)) == [A, B]


def test_a_silent_node_is_forgotten_with_all_that_was_kept_of_it() -> None:
    state = heard(full(A, 1), full(B, 1), delta(A, 9))
    ticked(state, 0, DEAD_MS - TICK_MS)
    assert state.node_count == 2
    state.hear(full(B, 2), DEAD_MS, jitter=0)
    assert state.sweep(DEAD_MS, connected=True) == (A,)
    assert (state.node_count, state.engine_count) == (1, 0)
    assert state.take_resyncs(1e9) == []
    assert taken(state, DEAD_MS) == [(B, 2)]
    assert state.hear(full(A, 1), DEAD_MS + 1, jitter=0) is Outcome.STALE
    assert state.hear(full(A, 10), DEAD_MS + 1, jitter=0) is Outcome.APPLIED


def test_a_write_that_ends_after_its_node_was_forgotten_leaves_nothing() -> None:
    for end in ("wrote", "not_written"):
        state = heard(full(A, 1))
        [write] = state.take_writes(0, 99)
        ticked(state, 0, DEAD_MS)
        assert state.node_count == 0
        if end == "wrote":
            state.wrote(write, DEAD_MS)
        else:
            state.not_written(write)
        assert state.dirty_count == 0
        state.hear(full(A, 2), DEAD_MS, jitter=0)
        assert taken(state, DEAD_MS) == [(A, 2)]


def test_the_deaf_declare_nobody_dead() -> None:
    state = heard(full(A, 1), full(B, 1))
    now_ms = ticked(state, 0, 40_000, connected=False)
    assert (state.node_count, state.frozen) == (2, True)
    now_ms = ticked(state, now_ms, now_ms + RECOVERY_MS)
    assert not state.frozen
    state.hear(full(B, 2), now_ms, jitter=0)
    now_ms = ticked(state, now_ms, now_ms + DEAD_MS - 2 * TICK_MS)
    assert state.node_count == 2
    assert state.sweep(now_ms + TICK_MS, connected=True) == (A,)


def test_what_the_deaf_know_grows_old_all_the_same() -> None:
    state = heard(full(A, 1))
    taken(state, 0)
    now_ms = ticked(state, 0, RECORD_TTL_MS, connected=False)
    state.write_all()
    assert taken(state, now_ms) == []
