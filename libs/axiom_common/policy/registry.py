"""The complete lists: every filter, scorer and picker, under the names that people see.

Where several filters refuse an engine, the first one, from the top of this file, names the reason.
Two filters are soft and stand in no list: filters/staleness.py writes the columns `stale` and
`unheard`, state/flapping.py decides the column `flapping`, and the kernel sets such engines aside
only while others remain.
"""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.model.decision import Term
from axiom_common.model.reason import Reason
from axiom_common.policy.evidence import Facts
from axiom_common.policy.filters.agent_silent import agent_silent
from axiom_common.policy.filters.base_model import base_mismatch
from axiom_common.policy.filters.breaker import breaker_open
from axiom_common.policy.filters.draining import draining
from axiom_common.policy.filters.engine_failed import engine_failed
from axiom_common.policy.filters.load_failed import load_failed
from axiom_common.policy.filters.lora_capability import lora_disabled, rank_too_large
from axiom_common.policy.filters.quarantine import quarantined
from axiom_common.policy.filters.readiness import not_ready
from axiom_common.policy.filters.role import role_mismatch
from axiom_common.policy.filters.saturation import saturated
from axiom_common.policy.filters.thermal_critical import thermal_critical
from axiom_common.policy.pickers.cost import least_cost
from axiom_common.policy.pickers.least_loaded import least_loaded
from axiom_common.policy.pickers.round_robin import round_robin
from axiom_common.policy.scorers.adapter_affinity import adapter_affinity_of
from axiom_common.policy.scorers.prefix_match import prefix_match
from axiom_common.policy.scorers.queue_pressure import queue_pressure
from axiom_common.policy.view import Bools, Prospect, Rows, Seen, StandingView, Wanted

EngineFilter = Callable[[Facts], bool]
StandingFilter = Callable[[StandingView, Wanted], Bools]
ProspectFilter = Callable[[Prospect], Bools | None]
Scorer = Callable[[Seen, float], float]
"""Of what was seen, and the wait that the profile tolerates in ms."""
Picker = Callable[[Prospect, Rows], Rows]

REQUEST_FILTERS: dict[Reason, StandingFilter] = {
    Reason.BASE_MISMATCH: base_mismatch,
    Reason.ROLE_MISMATCH: role_mismatch,
}
"""On what every request asks for. First, because an engine of another base model is no candidate
that happens to be down."""

ENGINE_FILTERS: dict[Reason, EngineFilter] = {
    Reason.NOT_READY: not_ready,
    Reason.DRAINING: draining,
    Reason.BREAKER_OPEN: breaker_open,
    Reason.THERMAL_CRITICAL: thermal_critical,
}
"""On the engine alone; they run when its state changes, and leave the reason in its row."""

CAPABILITY_FILTERS: dict[Reason, StandingFilter] = {
    Reason.LORA_DISABLED: lora_disabled,
    Reason.RANK_TOO_LARGE: rank_too_large,
}
"""On what the engine was started with. With those above they stand for many requests alike, so
their outcome is kept (`kernel.standing`) until a row changes."""

LATE_FILTERS: dict[Reason, ProspectFilter] = {
    Reason.LOAD_FAILED: load_failed,
    Reason.AGENT_SILENT: agent_silent,
    Reason.QUARANTINED: quarantined,
    Reason.ENGINE_FAILED: engine_failed,
    Reason.SATURATED: saturated,
}
"""On the one request and the moment; the last two because every other reason says more of the
engine. A filter may answer None: it refuses no row."""

SCORERS: dict[Term, Scorer] = {
    Term.WAIT: lambda seen, wait_cap_ms: queue_pressure(seen.wait_ms, wait_cap_ms),
    Term.PREFILL: lambda seen, _: prefix_match(seen.credited_tokens, seen.uncached_tokens),
    Term.ADAPTER_LOAD: lambda seen, _: adapter_affinity_of(seen),
    Term.KV: lambda seen, _: seen.kv_headroom,
    Term.THERMAL: lambda seen, _: seen.thermal_safety,
    Term.LATENCY: lambda seen, _: seen.latency_health,
}
"""What each cost term is about, as a score that people see (model.decision.SCORES); one weight
serves both. The last three are columns: their rules ran when the engine's state changed
(policy.rules)."""

PICKERS: dict[str, Picker] = {
    "cost": least_cost,
    "least-loaded": least_loaded,
    "round-robin": round_robin,
}
"""Their order of the candidates, best first."""
