"""not-ready: the engine does not serve, as far as anybody can tell.

The agent's word counts while the agent lives. When the agent is dead its last word is old, so this
gateway's own probe decides; without a probe the last word stands (fail towards serving).
"""

from __future__ import annotations

from axiom_common.model.engine import EngineStatus
from axiom_common.policy.evidence import Facts


def not_ready(facts: Facts) -> bool:
    """True when the engine is to be left out; an engine that drains is the draining filter's."""
    if facts.evidence.agent_dead and facts.evidence.probe_ok is not None:
        return not facts.evidence.probe_ok
    return facts.state.status in (EngineStatus.STARTING, EngineStatus.UNREACHABLE)
