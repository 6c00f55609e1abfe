"""stale-telemetry: no news for too long. Soft: such engines are left out only while others remain.

Old news lowers no score: the last value stands, and the decision says that it is stale.
"""

from __future__ import annotations

from axiom_common.policy.evidence import Facts


def stale(facts: Facts) -> bool:
    """True when the engine's figures are older than the limit: the report's age and the figures'
    own in it, because an agent beats on while its engine hangs. An engine that answers this
    gateway's own probe is no reason to look elsewhere."""
    age_ms = facts.evidence.heard_age_ms
    if age_ms is None or facts.evidence.probe_ok:
        return False
    return age_ms + facts.state.sample_age_ms > facts.limits.stale_ms


def unheard(facts: Facts) -> bool:
    """True when no report ever came: neither idle nor saturated, only probed now and then."""
    return facts.evidence.heard_age_ms is None
