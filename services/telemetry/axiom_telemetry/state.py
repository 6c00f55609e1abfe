"""This service's fold: its share of the region's nodes, which to write, and whom to ask again.

A node's record is due for writing at once when a slow fact of it changed, but at most every
`write_every_ms`, and every `REFRESH_MS` anyway: its figures change with each beat, and a cache that
lost something gets it back without anybody knowing of the loss. One write of a node at a time; what
comes meanwhile is folded, so the newest state is what waits. A node that died or left is written
once more, so that its order in the cache is above all that it ever said. Nothing in here grows
beyond the nodes that are heard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.hearing import Hearing
from axiom_common.state.liveness import Liveness
from axiom_common.state.region_view import NODES_MAX, NodeBeat, Outcome, RegionView, Report
from axiom_common.state.resyncs import Resyncs

RECORD_TTL_MS = 30_000.0
"""How long a record outlives the last report of its node."""
REFRESH_MS = 2_000.0
"""How often each node is written when nothing but its figures changes."""
RETRY_MS = 200.0
"""How soon a write that failed is tried again."""
HEARD_MAX = 2 * NODES_MAX
"""Names that are heard, with a state or without: whoever makes names up can't fill the memory."""
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Write:
    """One record to store, and how long it may live: its age counts against it."""

    state: NodeState
    ttl_ms: float


@dataclass(slots=True)
class _Writing:
    """When a node is due; `_NEVER` while it is with the writer. `urgent`: more than its figures
    changed since it was written."""

    due_ms: float
    written_ms: float = float("-inf")
    urgent: bool = True


class TelemetryState:
    """Folds reports; tells what to do in `take_due`, `resyncs.take` and `sweep`."""

    def __init__(self, region: RegionId, *, started_ms: float, write_every_ms: float) -> None:
        self.frozen = False
        self.resyncs = Resyncs()
        self._view = RegionView(region)
        self._hearing = Hearing(started_ms)
        self._liveness = Liveness()
        self._heard_ms: dict[NodeId, float] = {}
        self._write_every_ms = write_every_ms
        self._writes: dict[NodeId, _Writing] = {}
        # Nodes that are gone, as they were last, with the time of their last report.
        self._parting: dict[NodeId, tuple[NodeState, float]] = {}

    @property
    def node_count(self) -> int:
        """Nodes that are heard."""
        return len(self._view)

    @property
    def engine_count(self) -> int:
        """Engines on them."""
        return sum(1 for _ in self._view.engines())

    @property
    def dirty_count(self) -> int:
        """Nodes of which more than figures is not written yet."""
        return sum(writing.urgent for writing in self._writes.values())

    def names(self) -> list[NodeId]:
        """All nodes that this instance has a record of."""
        return list(self._writes)

    def hear(self, report: Report, now_ms: float) -> Outcome:
        """Fold a report."""
        node = report.node
        if node not in self._heard_ms and len(self._heard_ms) >= HEARD_MAX:
            return Outcome.NO_ROOM
        outcome = self._view.apply(report, now_ms).outcome
        if outcome is Outcome.APPLIED:
            self._heard(node, now_ms)
            self._changed(node, now_ms, urgent=not isinstance(report, NodeBeat))
            if isinstance(report, NodeState):
                self.resyncs.came(node)
        elif outcome in (Outcome.GAP, Outcome.NEEDS_FULL):
            self._heard(node, now_ms)
            self.resyncs.want(node, now_ms)
        elif outcome is Outcome.LEFT:
            self._heard(node, now_ms)
            self._part(node, now_ms)
        return outcome

    def want_all(self, now_ms: float) -> None:
        """Messages may have been missed: ask everybody."""
        for state in self._view.nodes():
            self.resyncs.want(state.node, now_ms)

    def take_due(self, now_ms: float) -> list[NodeId]:
        """Who is to be written; each has to end in `wrote`, `not_written` or a `begin_write` that
        has nothing."""
        due = [node for node, writing in self._writes.items() if writing.due_ms <= now_ms]
        for node in due:
            self._writes[node].due_ms = _NEVER
        return due

    def begin_write(self, node: NodeId, now_ms: float) -> Write | None:
        """The newest state of a node that was due; None when it is gone or too old."""
        writing = self._writes.get(node)
        if writing is None:
            return None
        state, heard_ms = self._view.node(node), self._heard_ms.get(node, now_ms)
        if state is None:
            state, heard_ms = self._parting[node]
        # Not on the clock of hearing: what is known of a node grows old all the same.
        age_ms = now_ms - heard_ms
        writing.urgent = False
        if age_ms >= RECORD_TTL_MS:
            self._ended(node, writing, now_ms)
            return None
        return Write(state, RECORD_TTL_MS - age_ms)

    def wrote(self, write: Write, now_ms: float) -> None:
        """A write reached the cache, which took it or has something newer."""
        writing = self._writes.get(write.state.node)
        if writing is not None:
            self._ended(write.state.node, writing, now_ms)

    def not_written(self, node: NodeId, now_ms: float) -> None:
        """It did not, or was not tried: the node's newest state waits again."""
        writing = self._writes.get(node)
        if writing is not None:
            writing.urgent = True
            writing.due_ms = now_ms + RETRY_MS

    def keep_only(self, owned: Callable[[NodeId], bool], now_ms: float) -> int:
        """Let go of the nodes that others own now, which says nothing of their life; how many."""
        others = [node for node in self._heard_ms if not owned(node)]
        for node in others:
            self._view.forget(node, now_ms)
            self._forget(node)
            self._writes.pop(node, None)
            self._parting.pop(node, None)
        return len(others)

    def sweep(self, now_ms: float, *, connected: bool) -> tuple[NodeId, ...]:
        """Forget the nodes that died, and say which; their records expire by themselves.

        To be called each `hearing.TICK_MS`; `connected` tells whether the bus is there. Time in
        which nobody could be heard is nobody's silence.
        """
        self._hearing.tick(now_ms, connected=connected)
        sweep = self._liveness.sweep(self._hearing.listened_ms(now_ms))
        self.frozen = sweep.frozen or self._hearing.deaf
        for node in sweep.dead:
            self._part(node, now_ms)
        return sweep.dead

    def _heard(self, node: NodeId, now_ms: float) -> None:
        self._liveness.heard(node, self._hearing.listened_ms(now_ms))
        self._heard_ms[node] = now_ms

    def _changed(self, node: NodeId, now_ms: float, *, urgent: bool) -> None:
        writing = self._writes.get(node)
        if writing is None:
            self._writes[node] = _Writing(now_ms)
            return
        self._parting.pop(node, None)
        if urgent and not writing.urgent:
            writing.urgent = True
            if writing.due_ms is not _NEVER:
                writing.due_ms = min(writing.due_ms, writing.written_ms + self._write_every_ms)

    def _ended(self, node: NodeId, writing: _Writing, now_ms: float) -> None:
        """A write ended: when is the next?"""
        writing.written_ms = now_ms
        if self._view.node(node) is not None:
            rest_ms = self._write_every_ms if writing.urgent else REFRESH_MS
            writing.due_ms = now_ms + rest_ms
        elif not writing.urgent:
            del self._writes[node]
            self._parting.pop(node, None)
        else:
            writing.due_ms = now_ms

    def _part(self, node: NodeId, now_ms: float) -> None:
        """A node died or left: it is written as it was last, and forgotten."""
        state, writing = self._view.node(node), self._writes.get(node)
        if state is not None and writing is not None:
            self._parting[node] = (state, self._heard_ms[node])
            writing.urgent = True
            if writing.due_ms is not _NEVER:
                writing.due_ms = now_ms
        self._view.forget(node, now_ms)
        self._forget(node)

    def _forget(self, node: NodeId) -> None:
        self._liveness.forget(node)
        self._heard_ms.pop(node, None)
        self.resyncs.forget(node)
