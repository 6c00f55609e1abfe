"""Laws of what telemetry writes: nothing is forgotten, nobody is written twice at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.region_view import NodeBeat, NodeDelta, NodeLeft
from axiom_telemetry.state import REFRESH_MS, RETRY_MS, TelemetryState, Write

REGION = RegionId("r")
NODES = [NodeId(name) for name in "ab"]
WRITE_EVERY_MS = 200.0
DOES = (
    *("full", "delta", "beat", "left", "lost", "given away"),
    *("take", "stored", "failed", "wait") * 2,
)

STEPS = st.lists(
    st.tuples(st.sampled_from(DOES), st.sampled_from(NODES), st.integers(1, 900)),
    min_size=10,
    max_size=40,
)


@dataclass
class Writing:
    """A telemetry state, what its nodes told last, and a cache that takes what is newer."""

    state: TelemetryState = field(
        default_factory=lambda: TelemetryState(
            REGION, started_ms=0.0, write_every_ms=WRITE_EVERY_MS
        )
    )
    now_ms: float = 0.0
    seq: int = 0
    base: dict[NodeId, int] = field(default_factory=dict)
    owed: dict[NodeId, int] = field(default_factory=dict)
    begun: dict[NodeId, Write] = field(default_factory=dict)
    stored: dict[NodeId, int] = field(default_factory=dict)

    def carry_out(self, does: str, node: NodeId, wait_ms: int) -> None:
        if does == "wait":
            self.now_ms += wait_ms
        elif does == "take":
            self.take()
        elif does in ("stored", "failed"):
            self.end(node, stored=does == "stored")
        elif does == "given away":
            self.state.keep_only(lambda one: one != node, self.now_ms)
            self.owed.pop(node, None)
            self.base.pop(node, None)
        else:
            self.tell(does, node)

    def tell(self, does: str, node: NodeId) -> None:
        self.seq += 1
        order: dict[str, Any] = {
            "region": REGION,
            "node": node,
            "incarnation": 1,
            "seq": self.seq,
        }
        base = self.base.get(node)
        if does == "full":
            self.state.hear(NodeState(**order, base=self.seq), self.now_ms)
            self.base[node] = self.seq
        elif base is None or does == "lost":
            return
        elif does == "delta":
            self.state.hear(NodeDelta(**order, base=base), self.now_ms)
            self.base[node] = self.seq
        elif does == "beat":
            self.state.hear(NodeBeat(**order, base=base, engines=()), self.now_ms)
        else:
            self.state.hear(NodeLeft(**order), self.now_ms)
            del self.base[node]
        self.owed[node] = self.seq

    def take(self) -> None:
        for node in self.state.take_due(self.now_ms):
            assert node not in self.begun, "one write of a node at a time"
            write = self.state.begin_write(node, self.now_ms)
            if write is not None:
                self.begun[node] = write

    def end(self, node: NodeId, *, stored: bool) -> None:
        write = self.begun.pop(node, None)
        if write is None:
            return
        if stored:
            self.stored[node] = max(self.stored.get(node, 0), write.state.seq)
            self.state.wrote(write, self.now_ms)
        else:
            self.state.not_written(node, self.now_ms)

    def settle(self) -> None:
        """Nothing is told any more, and the cache takes all."""
        for _ in range(4):
            self.take()
            for node in list(self.begun):
                self.end(node, stored=True)
            self.now_ms += max(WRITE_EVERY_MS, RETRY_MS, REFRESH_MS)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_in_the_end_the_last_word_of_every_node_is_stored(
    steps: list[tuple[str, NodeId, int]],
) -> None:
    writing = Writing()
    for does, node, wait_ms in steps:
        if does == "given away" and node in writing.begun:
            writing.end(node, stored=True)
        writing.carry_out(does, node, wait_ms)
    writing.settle()
    for node, seq in writing.owed.items():
        assert writing.stored[node] == seq
    assert set(writing.state.names()) == set(writing.base)
    assert writing.state.dirty_count == 0
