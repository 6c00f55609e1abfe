"""This service's fold: the region's nodes, which of them to write, and whom to ask again.

A node's record is due for writing from the first change on, at most every `write_every_ms`, and
one write at a time: what comes meanwhile is folded, so the newest state is what waits. Nothing in
here grows beyond the nodes that are heard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.hearing import Hearing
from axiom_common.state.liveness import Liveness
from axiom_common.state.region_view import Outcome, RegionView, Report

RECORD_TTL_MS = 30_000.0
"""How long a record outlives the last report of its node."""
RESYNC_EVERY_MS = 1_000.0
"""The least time between two requests for one node's full state."""
RESYNC_JITTER_MS = 100.0
"""A request waits up to this long: the next beat may bring what is missing, and not all of many
listeners should ask at once."""


@dataclass(frozen=True, slots=True)
class Write:
    """One record to store, and how long it may live: its age counts against it."""

    state: NodeState
    ttl_ms: float


@dataclass(slots=True)
class _Resync:
    asked_ms: float = float("-inf")
    due_ms: float | None = None


class TelemetryState:
    """Folds reports; tells what to do in `take_writes`, `take_resyncs` and `sweep`."""

    def __init__(self, region: RegionId, *, started_ms: float, write_every_ms: float) -> None:
        self.frozen = False
        self._view = RegionView(region)
        self._hearing = Hearing(started_ms)
        self._liveness = Liveness()
        self._heard_ms: dict[NodeId, float] = {}
        self._write_every_ms = write_every_ms
        # In the order of becoming dirty, so that nobody waits for ever.
        self._dirty: dict[NodeId, None] = {}
        self._writing: set[NodeId] = set()
        self._written_ms: dict[NodeId, float] = {}
        self._resyncs: dict[NodeId, _Resync] = {}

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
        """Nodes whose newest state is not written yet."""
        return len(self._dirty)

    def hear(self, report: Report, now_ms: float, *, jitter: float) -> Outcome:
        """Fold a report. `jitter` in [0, 1) spreads the request that a gap leads to."""
        outcome = self._view.apply(report, now_ms).outcome
        if outcome in (Outcome.STALE, Outcome.NO_ROOM):
            return outcome
        if outcome is Outcome.LEFT:
            self._liveness.forget(report.node)
            self._forget(report.node, now_ms)
            return outcome
        self._liveness.heard(report.node, self._hearing.listened_ms(now_ms))
        self._heard_ms[report.node] = now_ms
        if outcome is Outcome.APPLIED:
            self._dirty.setdefault(report.node)
            if isinstance(report, NodeState) and report.node in self._resyncs:
                self._resyncs[report.node].due_ms = None
        else:
            self._want_full(report.node, now_ms, jitter)
        return outcome

    def want_all(self, now_ms: float, *, jitter: Callable[[], float]) -> None:
        """Messages may have been missed: ask whoever does not tell its full state soon anyway."""
        for state in self._view.nodes():
            self._want_full(state.node, now_ms, jitter())

    def take_resyncs(self, now_ms: float) -> list[NodeId]:
        """Whom to ask for a full state now."""
        due = [
            node
            for node, resync in self._resyncs.items()
            if resync.due_ms is not None and resync.due_ms <= now_ms
        ]
        for node in due:
            self._resyncs[node] = _Resync(asked_ms=now_ms)
        return due

    def take_writes(self, now_ms: float, writes_max: int) -> list[Write]:
        """What to write now; each has to end in `wrote` or `not_written`."""
        writes: list[Write] = []
        for node in list(self._dirty):
            if len(writes) == writes_max:
                break
            last_ms = self._written_ms.get(node, float("-inf"))
            if node in self._writing or now_ms - last_ms < self._write_every_ms:
                continue
            del self._dirty[node]
            state = self._view.node(node)
            # Not on the clock of hearing: what is known of a node grows old all the same.
            age_ms = now_ms - self._heard_ms[node]
            if state is None or age_ms >= RECORD_TTL_MS:
                continue
            self._writing.add(node)
            writes.append(Write(state, RECORD_TTL_MS - age_ms))
        return writes

    def wrote(self, write: Write, now_ms: float) -> None:
        """A write reached the cache, which took it or has something newer."""
        self._writing.discard(write.state.node)
        if self._view.node(write.state.node) is not None:
            self._written_ms[write.state.node] = now_ms

    def not_written(self, write: Write) -> None:
        """A write failed: the node's newest state waits again."""
        self._writing.discard(write.state.node)
        if self._view.node(write.state.node) is not None:
            self._dirty.setdefault(write.state.node)

    def write_all(self) -> None:
        """The cache may have lost everything: every node waits to be written, at once."""
        self._written_ms.clear()
        for state in self._view.nodes():
            self._dirty.setdefault(state.node)

    def sweep(self, now_ms: float, *, connected: bool) -> tuple[NodeId, ...]:
        """Forget the nodes that died, and say which; their records expire by themselves.

        To be called each `hearing.TICK_MS`; `connected` tells whether the bus is there. Time in
        which nobody could be heard is nobody's silence.
        """
        self._hearing.tick(now_ms, connected=connected)
        sweep = self._liveness.sweep(self._hearing.listened_ms(now_ms))
        self.frozen = sweep.frozen or self._hearing.deaf
        for node in sweep.dead:
            self._forget(node, now_ms)
        return sweep.dead

    def _forget(self, node: NodeId, now_ms: float) -> None:
        self._view.forget(node, now_ms)
        self._heard_ms.pop(node, None)
        self._dirty.pop(node, None)
        self._written_ms.pop(node, None)
        self._resyncs.pop(node, None)

    def _want_full(self, node: NodeId, now_ms: float, jitter: float) -> None:
        resync = self._resyncs.setdefault(node, _Resync())
        if resync.due_ms is None:
            earliest_ms = max(now_ms, resync.asked_ms + RESYNC_EVERY_MS)
            resync.due_ms = earliest_ms + jitter * RESYNC_JITTER_MS
