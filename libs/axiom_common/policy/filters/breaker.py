"""breaker-open: this gateway's own requests to the engine failed too often just now."""

from __future__ import annotations

from axiom_common.policy.evidence import Facts


def breaker_open(facts: Facts) -> bool:
    """True while the breaker of (this gateway, engine) is open."""
    return facts.evidence.breaker_open
