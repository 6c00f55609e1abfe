"""Why a request went where it went, and where one would go now: for the admin API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash
from fastapi import APIRouter, Depends, Request

from axiom_common.errors import InvalidInputError, NotFoundError
from axiom_common.model.access import Role
from axiom_common.model.decision import Query, Term
from axiom_common.model.ids import BASE
from axiom_common.policy.fleet import Prompt
from axiom_common.ports.clock import Clock
from axiom_common.wire.decisions import (
    AttemptView,
    DecisionView,
    ExplainPost,
    Explanation,
    JudgedEngine,
    OutcomeView,
    WhyView,
)
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_bodies import parsed_body, takes
from axiom_gateway.catalog import Target
from axiom_gateway.decisions import IDS_MAX, DecisionRecord, RequestRecord
from axiom_gateway.openai_requests import Endpoint, ParsedRequest, parse
from axiom_gateway.profile_book import ProfileBook
from axiom_gateway.state import GatewayState

SHOWN_CHARS_MAX = 100
_NO_PROBE = 1
"""The hash of a request that tries no engine which was never heard from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDesk:
    """Answers questions about decisions: `why` of those in the log, `explain` of the state now."""

    clock: Clock
    record_of: Callable[[str], RequestRecord | None]
    state: GatewayState
    profiles: ProfileBook
    default_profile: str
    staleness_ms: Callable[[], float]
    prompt_of: Callable[[ParsedRequest, Target], Prompt | None]

    def why(self, decision_id: str) -> WhyView:
        """All that is kept of one id; NotFoundError when nothing is."""
        record = self.record_of(decision_id)
        if record is None:
            raise NotFoundError(
                f"no decision {decision_id[:SHOWN_CHARS_MAX]!r} is known here: this gateway keeps "
                f"those of its last {IDS_MAX} requests, while it runs; another may have taken it"
            )
        asked = record.asked
        return WhyView(
            id=decision_id,
            base_model=asked.base_model,
            adapter=asked.adapter or None,
            prompt_tokens=asked.prompt_tokens,
            attempts=tuple(self._attempt(one) for one in record.decisions),
            outcome=OutcomeView.of(record.outcome) if record.outcome is not None else None,
        )

    def explain(self, asked: ExplainPost) -> Explanation:
        """Ask anew, of every engine; InvalidInputError for a model or profile that is not known."""
        target = self.state.catalog.resolve(asked.model, None)
        if target is None:
            raise InvalidInputError(f"no model {asked.model!r} is known", path="model")
        in_force = self.profiles.in_force
        profile = in_force.get(asked.profile or self.default_profile)
        if profile is None:
            known = ", ".join(sorted(in_force))
            raise InvalidInputError(f"the profiles are {known}", path="profile")
        query, prompt = self._query(asked, target)
        seen = self.state.explain(
            query, profile.name, prompt, after=asked.after, limit=asked.limit + 1
        )
        shown, weights = seen[: asked.limit], profile.weights
        decision = self.state.choose(query, profile.name, prompt)
        return Explanation(
            model=asked.model,
            base_model=target.base_model,
            adapter=target.adapter or None,
            prompt_tokens=query.prompt_tokens,
            matched_tokens=decision.matched_tokens if prompt is not None else None,
            decision=DecisionView.of(decision.whole(), weights),
            engines=tuple(JudgedEngine.of(one, weights) for one in shown),
            next=shown[-1].engine if len(seen) > asked.limit else None,
            staleness_ms=self.staleness_ms(),
        )

    def _query(self, asked: ExplainPost, target: Target) -> tuple[Query, Prompt | None]:
        """As of a request like that, and what is known of its text."""
        if asked.prompt is None:
            return _query(target, asked.prompt_tokens), None
        body = {"model": asked.model, "prompt": asked.prompt}
        request = parse(Endpoint.COMPLETIONS, msgspec.json.encode(body))
        query = _query(target, asked.prompt_tokens or request.prompt_tokens)
        affinity_hash = request.affinity_hash(target.adapter)
        return query._replace(affinity_hash=affinity_hash), self.prompt_of(request, target)

    def _attempt(self, record: DecisionRecord) -> AttemptView:
        return AttemptView(
            attempt=record.attempt,
            age_ms=self.clock.now_ms() - record.at_ms,
            excluded=record.excluded,
            decision=DecisionView.of(
                record.decision.whole(), dict(zip(Term, record.weights, strict=True))
            ),
        )


def add_decisions(router: APIRouter, desk: DecisionDesk) -> None:
    """Add `decisions/{id}` and `explain`."""
    needs: list[Any] = [Depends(Needs(Role.VIEWER))]

    @router.get("/decisions/{decision_id}", dependencies=needs, tags=["decisions"])
    async def get_decision(decision_id: str) -> WhyView:
        return desk.why(decision_id)

    @router.post(
        "/explain", dependencies=needs, tags=["decisions"], openapi_extra=takes(ExplainPost)
    )
    async def explain(request: Request) -> Explanation:
        return desk.explain(await parsed_body(request, ExplainPost))


def _query(target: Target, prompt_tokens: int) -> Query:
    """As of a request with such a prompt, whose words nobody knows: ties may fall otherwise."""
    return Query(
        base_model=target.base_model,
        adapter=target.adapter,
        rank=target.rank,
        size_bytes=target.size_bytes,
        prompt_tokens=prompt_tokens,
        affinity_hash=0
        if target.adapter == BASE
        else xxhash.xxh3_64_intdigest(target.adapter.encode()),
        request_hash=_NO_PROBE,
        excluded=target.excluded,
    )
