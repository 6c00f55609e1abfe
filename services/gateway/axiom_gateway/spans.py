"""What the spans of a request say. Attributes by OpenTelemetry's conventions where it has one.

    POST /v1/chat/completions      from the head of the request to the end of its answer
      decide                       one a try; with the wait for room
      load adapter                 the question to the agent, where the winner needs it
      engine                       one a try; the engine's own spans are its children

No attribute holds anything of a prompt or an answer, and no words of an engine.
"""

from __future__ import annotations

from axiom_common.model.decision import Decision, Term
from axiom_common.model.ensure import EnsureResult
from axiom_common.model.outcome import Ending, Outcome
from axiom_common.ports.tracing import Span, Value
from axiom_gateway.proxy import Try, Verdict

DECIDE = "decide"
LOAD = "load adapter"
ENGINE = "engine"

_TERMS = tuple(term.value for term in Term)
_CLIENTS = frozenset({Ending.SERVED, Ending.REJECTED, Ending.GONE})
"""Ends that are no fault of the fleet."""


def tell_request(span: Span, *, decision_id: str, request_id: str, path: str) -> None:
    """What is known from the head of a request."""
    span.tell(
        {
            "http.request.method": "POST",
            "url.path": path,
            "axiom.request.id": request_id,
            "axiom.decision.id": decision_id,
        }
    )


def tell_refusal(span: Span, status: int) -> None:
    """The client gets an error of this gateway."""
    span.tell({"http.response.status_code": status})
    if status >= 500:
        span.fail("refused")


def tell_outcome(span: Span, outcome: Outcome, *, model: str, profile: str) -> None:
    """What became of it."""
    told: dict[str, Value | None] = {
        "gen_ai.request.model": model,
        "axiom.profile": profile,
        "axiom.ending": outcome.ending.value,
        "axiom.reason": outcome.reason and outcome.reason.value,
        "axiom.engine": outcome.engine,
        "axiom.retries": outcome.retries,
        "axiom.held_ms": outcome.held_ms,
        "axiom.load_ms": outcome.load_ms,
        "http.response.status_code": outcome.status,
        "gen_ai.usage.input_tokens": outcome.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": outcome.usage.completion_tokens,
        "axiom.cached_tokens": outcome.usage.cached_tokens,
    }
    span.tell({name: value for name, value in told.items() if value is not None})
    if outcome.ending not in _CLIENTS:
        span.fail(outcome.ending.value)


def tell_decision(span: Span, decision: Decision) -> None:
    """The winner and the runners-up with their costs and, in one attribute each, as all of them
    cost time, the terms that are not 0; why the others were left out."""
    told: dict[str, Value] = {
        "axiom.profile": decision.profile,
        "axiom.outcome": decision.load.value if decision.winner else "no-winner",
        "axiom.stale": decision.stale,
    }
    top = (decision.winner, *decision.runners_up) if decision.winner else ()
    for place, candidate in enumerate(top, start=1):
        if candidate is not None:
            at = f"axiom.candidate.{place}."
            told[at + "engine"] = candidate.engine
            told[at + "tier"] = candidate.tier
            told[at + "cost_ms"] = candidate.cost_ms
            terms = zip(_TERMS, candidate.terms_ms, strict=True)
            told[at + "terms_ms"] = ", ".join(f"{term} {ms:.6g}" for term, ms in terms if ms)
    told |= {f"axiom.refused.{reason.value}": n for reason, n in decision.refusals.items()}
    span.tell(told)


def tell_load(span: Span, engine: str, adapter: str, result: EnsureResult | None) -> None:
    """What the agent answered; None: nothing."""
    told: dict[str, Value] = {"axiom.engine": engine, "axiom.adapter": adapter}
    told["axiom.outcome"] = result.outcome.value if result else "unanswered"
    if result is not None and result.reason is not None:
        told["axiom.reason"] = result.reason.value
    span.tell(told)


def tell_try(span: Span, engine: str, outcome: Try) -> None:
    """How a try at an engine ended."""
    told: dict[str, Value | None] = {
        "axiom.engine": engine,
        "axiom.verdict": outcome.verdict.value,
        "http.response.status_code": outcome.status,
        "axiom.ttft_ms": outcome.ttft_ms,
        "axiom.tpot_ms": outcome.tpot_ms,
    }
    span.tell({name: value for name, value in told.items() if value is not None})
    if outcome.verdict not in (Verdict.SERVED, Verdict.REJECTED, Verdict.WITHHELD):
        span.fail(outcome.verdict.value)
