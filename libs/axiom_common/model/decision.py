"""What a decision takes and what it yields: the query, the decision and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from axiom_common.model.engine import Role
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.reason import Reason


class Term(StrEnum):
    """The cost terms, in registry order: the kernel adds them in this order and no other."""

    WAIT = "wait"
    PREFILL = "prefill"
    ADAPTER_LOAD = "adapter-load"
    KV = "kv"
    THERMAL = "thermal"
    LATENCY = "latency"


SCORES = {
    Term.WAIT: "queue-pressure",
    Term.PREFILL: "prefix-match",
    Term.ADAPTER_LOAD: "adapter-affinity",
    Term.KV: "kv-headroom",
    Term.THERMAL: "thermal-safety",
    Term.LATENCY: "latency-health",
}
"""The score that people see of what each term is about, by name."""


class LoadKind(StrEnum):
    """What the winner has to do before it can run the adapter."""

    NONE = "none"
    JOIN = "join"
    FROM_HOST = "from-host"
    COLD = "cold"


class Query(NamedTuple):
    """One request, reduced to what a decision needs.

    `adapter` is the engine-side name, `BASE` for the base model. `prompt_tokens` is an estimate.
    `affinity_hash` (64 bit) hashes adapter or scope and the first chunk of the prompt: it breaks
    ties by rendezvous. `request_hash` (64 bit) is the only source of chance. A tuple, for one is
    made for each request.
    """

    base_model: str
    adapter: EngineAdapter = BASE
    rank: int = 0
    size_bytes: int = 0
    role: Role = Role.BOTH
    prompt_tokens: int = 0
    affinity_hash: int = 0
    request_hash: int = 0
    excluded: tuple[EngineId, ...] = ()


class Candidate(NamedTuple):
    """One engine that survived the filters.

    `cost_ms` is the weighted sum of `terms_ms`; `composite` is 1 - cost / worst cost, in [0, 1].
    `terms_ms` and `values`, the scores, are indexed like `Term`. Plain numbers: thousands are kept.
    """

    engine: EngineId
    tier: int
    cost_ms: float
    composite: float
    terms_ms: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The scores by name, on the scale of the scoring rules."""
        return dict(zip(SCORES.values(), self.values, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One engine that a filter removed."""

    engine: EngineId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome: a winner with the two runners-up, or `winner` None with the refusals counted.

    `booking` names the load that was booked with it; 0 when nothing was booked.
    """

    profile: str
    winner: Candidate | None
    runners_up: tuple[Candidate, ...] = ()
    load: LoadKind = LoadKind.NONE
    refusals: dict[Reason, int] = field(default_factory=dict)
    booking: int = 0
    stale: bool = False
