"""What telemetry writes, whom it asks again, and what it forgets."""

from __future__ import annotations

from tests.engine_parts import engine_state

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.hearing import RECOVERY_MS, TICK_MS
from axiom_common.state.liveness import DEAD_MS, FREEZE_MAX_MS
from axiom_common.state.region_view import NodeBeat, NodeDelta, NodeLeft, Outcome, Report
from axiom_common.state.resyncs import EVERY_MS, FIRST_MS
from axiom_telemetry.state import RECORD_TTL_MS, REFRESH_MS, RETRY_MS, TelemetryState, Write

REGION = RegionId("r")
WRITE_EVERY_MS = 200.0
A, B = NodeId("a"), NodeId("b")


def full(node: NodeId, seq: int, *, incarnation: int = 1) -> NodeState:
    return NodeState(region=REGION, node=node, incarnation=incarnation, seq=seq)


def delta(node: NodeId, seq: int, *, base: int = -1) -> NodeDelta:
    engine = engine_state(f"{node}.e")
    return NodeDelta(region=REGION, node=node, incarnation=1, seq=seq, base=base, engines=(engine,))


def beat(node: NodeId, seq: int, *, base: int = 1) -> NodeBeat:
    return NodeBeat(region=REGION, node=node, incarnation=1, seq=seq, base=base, engines=())


def left(node: NodeId, seq: int) -> NodeLeft:
    return NodeLeft(region=REGION, node=node, incarnation=1, seq=seq)


def heard(*reports: Report, now_ms: float = 0.0) -> TelemetryState:
    state = TelemetryState(REGION, started_ms=0.0, write_every_ms=WRITE_EVERY_MS)
    for report in reports:
        state.hear(report, now_ms)
    return state


def begun(state: TelemetryState, now_ms: float) -> list[Write]:
    """Begin all writes that are due."""
    writes = [state.begin_write(node, now_ms) for node in state.take_due(now_ms)]
    return [write for write in writes if write is not None]


def taken(state: TelemetryState, now_ms: float) -> list[tuple[NodeId, int]]:
    """Take writes, end them at once, and show (node, seq)."""
    writes = begun(state, now_ms)
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
    state.hear(full(A, 2), 10)
    state.hear(delta(A, 3), 20)
    assert taken(state, WRITE_EVERY_MS - 1) == []
    assert taken(state, WRITE_EVERY_MS) == [(A, 3)]


def test_a_mere_beat_waits_for_the_next_refresh() -> None:
    state = heard(full(A, 1))
    assert taken(state, 0) == [(A, 1)]
    for seq in range(2, 9):
        assert state.hear(beat(A, seq), 250.0 * seq) is Outcome.APPLIED
    assert state.dirty_count == 0
    assert taken(state, REFRESH_MS - 1) == []
    assert taken(state, REFRESH_MS) == [(A, 8)]
    state.hear(beat(A, 9), REFRESH_MS + 250)
    state.hear(delta(A, 10, base=1), REFRESH_MS + 251)
    assert taken(state, REFRESH_MS + 251) == [(A, 10)]


def test_a_node_is_offered_again_and_again_so_that_a_loss_heals() -> None:
    state = heard(full(A, 1), full(B, 1))
    for n in range(5):
        assert taken(state, n * REFRESH_MS) == [(A, 1), (B, 1)]
        assert taken(state, n * REFRESH_MS + 1) == []


def test_one_write_of_a_node_at_a_time_and_the_newest_waits() -> None:
    state = heard(full(A, 1))
    [first] = begun(state, 0)
    state.hear(full(A, 2), 1)
    state.hear(full(A, 3), 2)
    assert taken(state, 10_000) == []
    assert state.dirty_count == 1
    state.wrote(first, 10_000)
    assert taken(state, 10_000 + WRITE_EVERY_MS) == [(A, 3)]


def test_a_failed_write_waits_as_the_newest_state() -> None:
    state = heard(full(A, 1))
    begun(state, 0)
    state.hear(full(A, 2), 1)
    state.not_written(A, 2)
    assert state.dirty_count == 1
    assert taken(state, RETRY_MS + 1) == []
    assert taken(state, RETRY_MS + 2) == [(A, 2)]


def test_what_is_written_is_what_is_known_when_the_writer_comes_to_it() -> None:
    state = heard(full(A, 1))
    assert state.take_due(0) == [A]
    state.hear(full(A, 2), 1)
    assert state.begin_write(A, 2) == Write(full(A, 2), RECORD_TTL_MS - 1)


def test_the_age_of_a_state_counts_against_its_time_to_live() -> None:
    state = heard(full(A, 1))
    assert begun(state, 1_000) == [Write(full(A, 1), RECORD_TTL_MS - 1_000)]


def test_what_is_too_old_is_not_written() -> None:
    state = heard(full(A, 1), full(B, 1))
    state.hear(full(B, 2), 5_000)
    assert taken(state, RECORD_TTL_MS) == [(B, 2)]


def test_a_writer_that_was_paused_writes_nothing_old() -> None:
    state = heard(full(A, 1))
    assert state.take_due(0) == [A]
    assert state.begin_write(A, RECORD_TTL_MS) is None
    state.hear(full(A, 2), RECORD_TTL_MS + 1)
    assert taken(state, RECORD_TTL_MS + WRITE_EVERY_MS) == [(A, 2)]


def test_a_gap_is_asked_about_once_in_a_while() -> None:
    state = heard(full(A, 1))
    assert state.hear(delta(A, 3), 0) is Outcome.GAP
    assert state.resyncs.take(FIRST_MS - 1) == []
    state.hear(delta(A, 4), 1)
    assert state.resyncs.take(FIRST_MS) == [A]
    state.hear(delta(A, 5), FIRST_MS + 1)
    assert state.resyncs.take(FIRST_MS + EVERY_MS - 1) == []
    assert state.resyncs.take(FIRST_MS + EVERY_MS) == [A]


def test_a_full_state_that_comes_by_itself_spares_the_request() -> None:
    state = heard(full(A, 1), delta(A, 3))
    state.hear(full(A, 4), 1)
    assert state.resyncs.take(10_000) == []


def test_a_node_known_by_a_change_or_a_beat_alone_is_asked() -> None:
    for report in (delta(A, 7), beat(A, 7)):
        state = heard(report)
        assert state.resyncs.take(FIRST_MS) == [A]
        assert (state.node_count, state.dirty_count) == (0, 0)


def test_a_reconnect_asks_everybody() -> None:
    state = heard(full(A, 1), full(B, 1))
    state.want_all(100)
    assert sorted(state.resyncs.take(100 + FIRST_MS)) == [A, B]


def test_a_silent_node_is_written_as_it_was_last_and_then_forgotten_whole() -> None:
    state = heard(full(A, 1), full(B, 1))
    assert taken(state, 0) == [(A, 1), (B, 1)]
    state.hear(beat(A, 2), 100)
    state.hear(delta(A, 9), 100)
    ticked(state, 0, DEAD_MS - TICK_MS)
    assert state.node_count == 2
    state.hear(full(B, 2), DEAD_MS)
    state.sweep(DEAD_MS, connected=True)
    assert state.sweep(DEAD_MS + TICK_MS, connected=True) == (A,)
    assert (state.node_count, state.engine_count) == (1, 0)
    assert state.resyncs.take(1e9) == []
    assert taken(state, DEAD_MS + TICK_MS) == [(A, 2), (B, 2)]
    assert state.names() == [B]
    assert state.hear(full(A, 2), DEAD_MS + 600) is Outcome.STALE
    assert state.hear(full(A, 10), DEAD_MS + 600) is Outcome.APPLIED


def test_last_words_raise_the_order_of_the_record_and_free_the_rest_at_once() -> None:
    state = heard(full(A, 1))
    assert taken(state, 0) == [(A, 1)]
    assert state.hear(left(A, 5), 10) is Outcome.LEFT
    assert state.node_count == 0
    assert taken(state, 10) == [(A, 5)]
    assert state.names() == []
    assert state.hear(full(A, 4), 20) is Outcome.STALE
    assert state.hear(beat(A, 5), 20) is Outcome.STALE
    assert state.hear(full(A, 1, incarnation=2), 30) is Outcome.APPLIED


def test_a_thousand_that_leave_are_gone_at_once() -> None:
    nodes = [NodeId(f"n{n}") for n in range(1_000)]
    state = heard(*(full(node, 1) for node in nodes))
    for node in nodes:
        state.hear(left(node, 2), 1)
    assert len(taken(state, 1)) == len(nodes)
    assert (state.node_count, state.names(), state.dirty_count) == (0, [], 0)


def test_a_thousand_that_fall_silent_together_are_gone_in_the_end() -> None:
    nodes = [NodeId(f"n{n}") for n in range(1_000)]
    state = heard(*(full(node, 1) for node in nodes))
    now_ms = ticked(state, 0, DEAD_MS + TICK_MS)
    assert (state.node_count, state.frozen) == (len(nodes), True)
    ticked(state, now_ms, FREEZE_MAX_MS)
    assert state.node_count == 0


def test_a_node_that_comes_back_before_its_last_write_is_written_as_it_is() -> None:
    state = heard(full(A, 1), left(A, 2))
    state.hear(full(A, 1, incarnation=2), 1)
    assert taken(state, 1) == [(A, 1)]
    assert state.names() == [A]


def test_a_write_that_ends_after_its_node_was_forgotten_leaves_nothing() -> None:
    for ended in (True, False):
        state = heard(full(A, 1))
        [write] = begun(state, 0)
        ticked(state, 0, DEAD_MS)
        assert state.node_count == 0
        if ended:
            state.wrote(write, DEAD_MS)
        else:
            state.not_written(A, DEAD_MS - RETRY_MS)
        assert taken(state, DEAD_MS) == [(A, 1)]
        assert (state.names(), state.dirty_count) == ([], 0)
        state.hear(full(A, 2), DEAD_MS)
        assert taken(state, DEAD_MS) == [(A, 2)]


def test_who_gives_nodes_away_forgets_them_and_nobody_died() -> None:
    state = heard(full(A, 1), full(B, 1), delta(A, 9))
    [first, _] = begun(state, 0)
    assert state.keep_only(lambda node: node == B, 1) == 1
    state.wrote(first, 2)
    assert (state.names(), state.node_count) == ([B], 1)
    assert state.resyncs.take(1e9) == []
    for now_ms in range(500, 60_000, 500):
        state.hear(full(B, now_ms), now_ms)
        assert state.sweep(now_ms, connected=True) == ()
    assert state.hear(full(A, 2), 60_000) is Outcome.APPLIED


def test_the_deaf_declare_nobody_dead() -> None:
    state = heard(full(A, 1), full(B, 1))
    now_ms = ticked(state, 0, 40_000, connected=False)
    assert (state.node_count, state.frozen) == (2, True)
    now_ms = ticked(state, now_ms, now_ms + RECOVERY_MS)
    assert not state.frozen
    state.hear(full(B, 2), now_ms)
    now_ms = ticked(state, now_ms, now_ms + DEAD_MS - 2 * TICK_MS)
    assert state.node_count == 2
    assert state.sweep(now_ms + TICK_MS, connected=True) == (A,)


def test_what_the_deaf_know_grows_old_all_the_same() -> None:
    state = heard(full(A, 1))
    taken(state, 0)
    now_ms = ticked(state, 0, RECORD_TTL_MS, connected=False)
    assert taken(state, now_ms) == []
