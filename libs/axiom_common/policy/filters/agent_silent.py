"""agent-silent: the adapter would have to be loaded, and no agent is there to do it.

Without its agent an engine serves what is resident, and what it answers to by name: it loads that
by itself when a request comes.
"""

from __future__ import annotations

from axiom_common.policy.evidence import Facts
from axiom_common.policy.scorers.adapter_affinity import Held
from axiom_common.policy.view import Bools, Prospect


def loads_allowed(facts: Facts) -> bool:
    """False while the agent is suspect or dead, or did not answer since its last report."""
    evidence = facts.evidence
    age_ms = evidence.heard_age_ms
    is_suspect = age_ms is not None and age_ms >= facts.limits.suspect_ms
    return not (is_suspect or evidence.agent_dead or evidence.ensure_failed)


def agent_silent(prospect: Prospect) -> Bools | None:
    """True where a load is needed and not allowed."""
    closed = prospect.ask.closed
    return None if closed is None else closed & (prospect.held < Held.RESIDENT)
