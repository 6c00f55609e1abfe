"""What watches of a gateway see where there is no gateway: nodes that a test sets."""

from __future__ import annotations

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId
from axiom_common.ports.clock import Clock
from axiom_gateway.seen import SeenNode, SeenNodes
from axiom_gateway.watch import Watches


class WatchedNodes:
    """Nodes by name; `views` counts how often one was looked at."""

    def __init__(self, *nodes: NodeState, clock: Clock | None = None) -> None:
        self.nodes = {node.node: node for node in nodes}
        self.views = 0
        self.watches = Watches(clock or SystemClock(), self)

    def put(self, node: NodeState, *, figures_only: bool = False) -> None:
        self.nodes[node.node] = node
        self.watches.changed(node.node, figures_only)

    def forget(self, node: NodeId) -> None:
        del self.nodes[node]
        self.watches.changed(node, False)

    def node_names(self) -> tuple[NodeId, ...]:
        return tuple(self.nodes)

    def seen_node(self, node: NodeId) -> SeenNode | None:
        state = self.nodes.get(node)
        if state is None:
            return None
        self.views += 1
        return SeenNode(state=state, liveness="alive", heard_age_ms=120.0)


def watches_of(*nodes: NodeState) -> Watches:
    """The watches of nodes that do not change."""
    return WatchedNodes(*nodes).watches


def all_seen(nodes: SeenNodes) -> tuple[SeenNode, ...]:
    """All that are known."""
    found = (nodes.seen_node(name) for name in nodes.node_names())
    return tuple(seen for seen in found if seen is not None)
