"""The admin API's shapes of decisions: why a request went to its engine, and where one goes now.

Times in ms. Unknown is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field

from axiom_common.model.decision import SCORES, Candidate, Decision, Refused, Term
from axiom_common.model.outcome import Outcome
from axiom_common.wire.rest import PublicName, Shape, StalenessMs

EXPLAINED_MAX = 256
"""Engines of one answer to an `ExplainPost`."""
PROMPT_TOKENS_MAX = 10_000_000
PROMPT_CHARS_MAX = 1 << 20
"""Of a prompt in an `ExplainPost`."""

Weights = Mapping[Term, float]


class PartView(Shape):
    """One part of a predicted cost: `cost_ms` is `weight` x `ms`. `value` is what `score` gives the
    engine in the same respect, on the scale of the scoring rules."""

    term: str
    ms: float
    weight: float
    cost_ms: float
    score: str
    value: float


class CandidateView(Shape):
    """One engine that could serve. `cost_ms` is the sum of its parts, rounded to 1 us; `composite`
    is 1 - cost / worst cost."""

    engine: str
    tier: int
    cost_ms: float
    composite: float
    parts: tuple[PartView, ...]

    @classmethod
    def of(cls, candidate: Candidate, weights: Weights) -> CandidateView:
        """The shape of a candidate, decided with these weights."""
        values = zip(Term, candidate.terms_ms, candidate.values, strict=True)
        return cls(
            engine=candidate.engine,
            tier=candidate.tier,
            cost_ms=candidate.cost_ms,
            composite=candidate.composite,
            parts=tuple(
                PartView(
                    term=term,
                    ms=ms,
                    weight=weights[term],
                    cost_ms=weights[term] * ms,
                    score=SCORES[term],
                    value=value,
                )
                for term, ms, value in values
            ),
        )


class DecisionView(Shape):
    """One decision. `winner` null: no engine could serve. `refusals` counts the engines that each
    reason stood against; `load` is what the winner had to do for the adapter; `stale`: its news
    were old."""

    profile: str
    winner: CandidateView | None
    runners_up: tuple[CandidateView, ...]
    refusals: dict[str, int]
    load: str
    stale: bool

    @classmethod
    def of(cls, decision: Decision, weights: Weights) -> DecisionView:
        """The shape of a decision, taken with these weights."""
        winner = decision.winner
        return cls(
            profile=decision.profile,
            winner=CandidateView.of(winner, weights) if winner is not None else None,
            runners_up=tuple(CandidateView.of(one, weights) for one in decision.runners_up),
            refusals={reason.value: count for reason, count in decision.refusals.items()},
            load=decision.load.value,
            stale=decision.stale,
        )


class AttemptView(Shape):
    """One try of a request: its decision, how long ago it was taken, and the engines that the
    request itself left out."""

    attempt: int
    age_ms: float
    excluded: tuple[str, ...]
    decision: DecisionView


class OutcomeView(Shape):
    """What became of a request; the fields are those of `model.outcome`. `prompt_tokens`,
    `completion_tokens` and `cached_tokens` are the engine's own counts, `matched_tokens` those that
    the decision took for cached there."""

    ending: str
    status: int | None
    reason: str | None
    engine: str | None
    retries: int
    held_ms: float
    load_ms: float | None
    total_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    matched_tokens: int | None

    @classmethod
    def of(cls, outcome: Outcome) -> OutcomeView:
        """The shape of an outcome."""
        told = outcome._asdict()
        return cls(**told.pop("usage")._asdict(), **told)


class WhyView(Shape):
    """All that is kept of one request. `adapter` null: it was for the base model; `prompt_tokens`
    an estimate. `attempts` in order, none where no decision was taken; `outcome` null: it is under
    way."""

    id: str
    base_model: str
    adapter: str | None
    prompt_tokens: int
    attempts: tuple[AttemptView, ...]
    outcome: OutcomeView | None


class ExplainPost(Shape):
    """Body of POST /admin/v1/explain: where would a request for `model` go now? `profile` null: the
    gateway's own. `prompt`: of a completion, whose length counts where `prompt_tokens` is 0; null:
    one that no engine holds. Engines by id, at most `limit`, those behind `after`."""

    model_config = ConfigDict(extra="forbid")

    model: PublicName
    prompt_tokens: Annotated[int, Field(ge=0, le=PROMPT_TOKENS_MAX)] = 0
    prompt: Annotated[str, Field(max_length=PROMPT_CHARS_MAX)] | None = None
    profile: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=EXPLAINED_MAX)] = EXPLAINED_MAX
    after: Annotated[str, Field(max_length=256)] = ""


class JudgedEngine(Shape):
    """One engine: a candidate, or refused for a reason; one of both is null."""

    engine: str
    candidate: CandidateView | None
    reason: str | None

    @classmethod
    def of(cls, seen: Candidate | Refused, weights: Weights) -> JudgedEngine:
        """The shape of what a decision would see of an engine."""
        if isinstance(seen, Refused):
            return cls(engine=seen.engine, candidate=None, reason=seen.reason.value)
        candidate = CandidateView.of(seen, weights)
        return cls(engine=seen.engine, candidate=candidate, reason=None)


class Explanation(Shape):
    """The answer to an `ExplainPost`: a new question, asked of what is known now. Nothing is
    booked, and no request that came before was decided by it. `engines` by id; `next` goes into
    `after` for those that follow. `matched_tokens`: of the prompt, that the winner is taken to
    hold; null: the prompt's text is not known, or nobody wins. `staleness_ms`: since the region was
    heard last."""

    new_question: bool = True
    model: str
    base_model: str
    adapter: str | None
    prompt_tokens: int
    matched_tokens: int | None
    decision: DecisionView
    engines: tuple[JudgedEngine, ...]
    next: str | None
    staleness_ms: StalenessMs = 0.0
