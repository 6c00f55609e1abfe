"""Nodes as this gateway sees them, for people and for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId
from axiom_common.wire.views import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node in the gateway's view. `heard_age_ms` None: known from the shadow cache only."""

    state: NodeState
    liveness: str
    heard_age_ms: float | None


class SeenNodes(Protocol):
    """Who knows the nodes."""

    def node_names(self) -> Iterable[NodeId]:
        """All that are known, in no particular order."""
        ...

    def seen_node(self, node: NodeId) -> SeenNode | None:
        """One of them; None when it is not known (any more)."""
        ...


def node_json(seen: SeenNode) -> bytes:
    """A NodeView."""
    shape = NodeView.of(seen.state, liveness=seen.liveness, heard_age_ms=seen.heard_age_ms)
    return shape.model_dump_json().encode()
