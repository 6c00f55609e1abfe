"""Every reason Axiom gives for leaving an engine out, refusing a request, a load or a plan.

Closed on purpose: reasons become label values, response fields and alerts.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One word a refusal; the groups say who refuses.

    `REGION_DENIED` is reserved: it is on the wire for tenants that are kept to some regions, and no
    filter gives it yet.
    """

    # filters: why an engine can't serve this request
    NOT_READY = "not-ready"
    BASE_MISMATCH = "base-mismatch"
    ROLE_MISMATCH = "role-mismatch"
    LORA_DISABLED = "lora-disabled"
    RANK_TOO_LARGE = "rank-too-large"
    DRAINING = "draining"
    BREAKER_OPEN = "breaker-open"
    THERMAL_CRITICAL = "thermal-critical"
    SATURATED = "saturated"
    REGION_DENIED = "region-denied"
    LOAD_FAILED = "load-failed"
    AGENT_SILENT = "agent-silent"
    QUARANTINED = "quarantined"
    STALE_TELEMETRY = "stale-telemetry"
    FLAPPING = "flapping"
    # requests: why the gateway does not serve one
    UNKNOWN_MODEL = "unknown-model"
    NO_ENGINE = "no-engine"
    ALL_SATURATED = "all-saturated"
    ALL_QUARANTINED = "all-quarantined"
    ENGINE_FAILED = "engine-failed"
    SHUTTING_DOWN = "shutting-down"
    # loads: why an agent does not make an adapter resident
    UNKNOWN_ENGINE = "unknown-engine"
    NO_IDLE_SLOT = "no-idle-slot"
    ADAPTER_NOT_FOUND = "adapter-not-found"
    ENGINE_REFUSED = "engine-refused"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    TOO_MANY_LOADS = "too-many-loads"
    IN_USE = "in-use"
    # plans: why an agent does not carry one out
    LOWER_FENCE = "lower-fence"
    LOWER_REVISION = "lower-revision"
