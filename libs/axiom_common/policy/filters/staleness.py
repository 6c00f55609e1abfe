"""stale-telemetry: no news for too long. Soft: such engines are left out only while others remain.

Old news lowers no score: the last value stands, and the decision says that it is stale.
"""

from __future__ import annotations

from axiom_common.policy.evidence import Facts


def stale(facts: Facts) -> bool:
    """True when the last report is older than the limit."""
    age_ms = facts.evidence.heard_age_ms
    return age_ms is not None and age_ms > facts.limits.stale_ms


def unheard(facts: Facts) -> bool:
    """True when no report ever came: neither idle nor saturated, only probed now and then."""
    return facts.evidence.heard_age_ms is None
