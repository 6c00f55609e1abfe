"""Every registry bucket and key, and every Redis key.

Adapter and model names may hold `/`, `.` and `:`, which are no tokens; here and nowhere else they
are turned into tokens: `_` is the escape, followed by two hex digits of the byte.
"""

from __future__ import annotations

import re

from axiom_common.model.ids import NodeId, RegionId

DESIRED_BUCKET = "axiom_desired"
"""Desired state: all that `wire.desired` declares. JSON values."""
PLAN_BUCKET = "axiom_plan"
"""Plans, one key a node. MessagePack values."""


def lease_bucket(region: RegionId) -> str:
    """Leases of a region: records with a time to live."""
    return f"axiom_lease_{region}"


def incarnation_bucket(region: RegionId) -> str:
    """Incarnations of a region: the revision that a put returns is the incarnation."""
    return f"axiom_incarnation_{region}"


def request_bucket(region: RegionId) -> str:
    """Answers to writes that came with an idempotency key, for a while."""
    return f"axiom_requests_{region}"


def decision_stream(region: RegionId) -> str:
    """JetStream: the decisions of a region's gateways, for a while."""
    return f"axiom_decisions_{region}"


GATEWAY_INCARNATION = "gateway.any"
"""Key of all gateways in the incarnation bucket: only the revision of a put counts, and a gateway's
name may be used once and never again. A node's key holds no dot, so they differ."""
SCHEDULER_LEASE = "scheduler"
TELEMETRY_PREFIX = "telemetry."
ADAPTER_PREFIX = "adapter."
BASE_MODEL_PREFIX = "base-model."
TENANT_PREFIX = "tenant."
PROFILE_PREFIX = "profile."
API_KEY_PREFIX = "api-key."
ENGINE_ORDER_PREFIX = "engine-order."
ADAPTER_REVISION_FLOOR = "adapter-revision-floor"
"""Desired state: no adapter that is declared anew may get a revision at or below it."""


def desired_key(prefix: str, name: str) -> str:
    """Desired-state key of what has this name, among those with the prefix."""
    return prefix + escape(name)


def plan_key(region: RegionId, node: NodeId) -> str:
    """Plan of one node."""
    return f"{region}.{node}"


def planned_node(region: RegionId, key: str) -> NodeId | None:
    """The node whose plan lies under `key`; None for a key of another region."""
    its_region, _, node = key.partition(".")
    return NodeId(node) if its_region == region else None


def telemetry_lease(instance: str) -> str:
    """Lease of one telemetry instance: who holds one shares the region's nodes."""
    return TELEMETRY_PREFIX + escape(instance)


def leased_telemetry(key: str) -> str | None:
    """The instance whose lease lies under `key`, escaped; None for another's key."""
    return key.removeprefix(TELEMETRY_PREFIX) if key.startswith(TELEMETRY_PREFIX) else None


def shadow_record(region: RegionId, node: NodeId) -> str:
    """Redis: the last state of a node. The braces keep all keys of a node in one hash slot."""
    return f"axiom:v1:{{{region}/{node}}}:state"


def shadow_order(region: RegionId, node: NodeId) -> str:
    """Redis: the order of a node's last write, which outlives its state."""
    return f"axiom:v1:{{{region}/{node}}}:order"


def shadow_names(region: RegionId) -> str:
    """Redis: the nodes that may have a record, by the server's time of their last mention."""
    return f"axiom:v1:{{{region}}}:names"


_PLAIN = re.compile(r"[A-Za-z0-9-]+")


def escape(name: str) -> str:
    """A name as one token."""
    if _PLAIN.fullmatch(name):
        return name
    return "".join(
        c if c.isascii() and (c.isalnum() or c == "-") else "".join(f"_{b:02x}" for b in c.encode())
        for c in name
    )
