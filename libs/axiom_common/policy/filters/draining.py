"""draining: the engine finishes what it has and takes nothing new; so does a cordoned one."""

from __future__ import annotations

from axiom_common.model.engine import EngineStatus
from axiom_common.policy.evidence import Facts


def draining(facts: Facts) -> bool:
    """True when the engine drains by its own or by an operator's wish."""
    return facts.evidence.cordoned or facts.state.status is EngineStatus.DRAINING
