"""Every NATS subject: `axiom.v1.<noun>.<event>.<region>.<id>`.

Region and id are tokens (model.ids), so a server's permissions can be cut by them: among these
subjects an agent publishes its own node's `report` and `facts` only.
"""

from __future__ import annotations

from axiom_common.model.ids import GatewayId, NodeId, RegionId

PREFIX = "axiom.v1"


def node_report(region: RegionId, node: NodeId) -> str:
    """A node's state, from its agent: `NodeReport` or `NodeBeat`."""
    return f"{PREFIX}.node.report.{region}.{node}"


def all_node_reports(region: RegionId) -> str:
    """All reports of a region."""
    return f"{PREFIX}.node.report.{region}.*"


def node_resync(region: RegionId, node: NodeId) -> str:
    """Asks an agent for its full state at once: `ResyncRequest`; answered as a full report."""
    return f"{PREFIX}.node.resync.{region}.{node}"


def node_ensure(region: RegionId, node: NodeId) -> str:
    """Request-reply with an agent: `EnsureRequest` -> `EnsureReply`."""
    return f"{PREFIX}.node.ensure.{region}.{node}"


def node_facts(region: RegionId, node: NodeId) -> str:
    """What prefixes a node's engines hold, from its agent: `FactReport`."""
    return f"{PREFIX}.node.facts.{region}.{node}"


def all_node_facts(region: RegionId) -> str:
    """The facts of all nodes of a region: what gateways hear."""
    return f"{PREFIX}.node.facts.{region}.*"


def node_facts_wanted(region: RegionId, node: NodeId) -> str:
    """Asks an agent to tell all facts of some engines: `FactRequest`."""
    return f"{PREFIX}.node.facts-wanted.{region}.{node}"


def gateway_inflight(region: RegionId, gateway: GatewayId) -> str:
    """A gateway's in-flight vector: `InFlightReport`."""
    return f"{PREFIX}.gateway.inflight.{region}.{gateway}"


def all_inflight(region: RegionId) -> str:
    """All in-flight vectors of a region: what gateways hear of one another."""
    return f"{PREFIX}.gateway.inflight.{region}.*"


def node_inflight(region: RegionId, node: NodeId, gateway: GatewayId) -> str:
    """The part of a gateway's in-flight vector that is about one node: `InFlightReport`."""
    return f"{PREFIX}.node.inflight.{region}.{node}.{gateway}"


def all_inflight_on(region: RegionId, node: NodeId) -> str:
    """What all gateways have in flight on one node: what its agent hears."""
    return f"{PREFIX}.node.inflight.{region}.{node}.*"


def gateway_decision(region: RegionId, gateway: GatewayId) -> str:
    """What a gateway decided, and what became of it: `DecisionReport`, for the region's stream."""
    return f"{PREFIX}.gateway.decision.{region}.{gateway}"


def all_decisions(region: RegionId) -> str:
    """The decisions of all gateways of a region."""
    return f"{PREFIX}.gateway.decision.{region}.*"
