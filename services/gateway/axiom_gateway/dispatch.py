"""The life of one request: decide, make the adapter usable, forward; again elsewhere if need be.

    decide --no winner--> hold ---time is up, or nothing to wait for---> 429 or 503
      | winner, booked     | room
      v                    v
    ensure --refused--> decide again without that engine
      | usable
      v
    forward --failed before the first byte--> decide again without that engine, once
      |     --the engine forgot the adapter--> ensure again
      |     --an operator took the engine out meanwhile--> decide again
      v
    served, or an error event after the first byte

Whatever happens, the booking of each decision is released.
"""

from __future__ import annotations

import asyncio
from functools import partial

from axiom_common.model.decision import LoadKind, Query
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided
from axiom_common.ports.clock import Clock
from axiom_common.ports.tracing import Span, SpanKind
from axiom_common.wire import headers
from axiom_gateway import spans
from axiom_gateway.catalog import name_at
from axiom_gateway.decisions import DecisionRecord
from axiom_gateway.ensure import PASSING, Ensurer
from axiom_gateway.errors import ApiError, refused
from axiom_gateway.hold import HoldQueue, may_pass
from axiom_gateway.job import Job
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.outcomes import outcome_of
from axiom_gateway.prompts import Prompts
from axiom_gateway.proxy import Proxy, Try, Upstream, Verdict
from axiom_gateway.state import GatewayState
from axiom_gateway.telling import Telling

FAILURES_MAX = 2
"""Tries that may fail at an engine: the first one, and once elsewhere."""
SETBACKS_MAX = 8
"""Engines that may fail a request, or refuse its load for good, before it is given up."""
ENGINE_FULL_STATUS = 503
"""vLLM's answer when its own queue is full."""
STARVED_MS = 300.0
"""A load takes about as long: from then on waiting for a slot costs more than changing one."""
PAUSE_MS_MAX = 400.0
"""Between two rounds of asking agents that had no idle slot; doubles up to here."""

_ENGINE = headers.ENGINE.encode()


class Dispatcher:
    """Carries jobs through. One for a gateway."""

    def __init__(
        self,
        *,
        clock: Clock,
        state: GatewayState,
        proxy: Proxy,
        ensurer: Ensurer,
        hold: HoldQueue,
        prompts: Prompts,
        telling: Telling,
        metrics: GatewayMetrics,
    ) -> None:
        self._clock = clock
        self._state = state
        self._proxy = proxy
        self._ensurer = ensurer
        self._hold = hold
        self._prompts = prompts
        self._telling = telling
        self._metrics = metrics

    async def run(self, job: Job) -> None:
        """Serve it, or raise the ApiError to answer with."""
        job.prompt = self._prompts.prompt_of(job.request, job.target)
        while job.failures < FAILURES_MAX and job.setbacks < SETBACKS_MAX:
            job.attempt += 1
            with job.span.child(spans.DECIDE) as job.deciding:
                decision = await self._decide(job)
            engine = decision.engine
            assert engine is not None
            try:
                if not await self._usable(job, engine, decision.load):
                    continue
                with job.span.child(spans.ENGINE, SpanKind.CLIENT) as span:
                    outcome = await self._forward(job, engine, decision.booking, span)
                    if span.recorded:
                        spans.tell_try(span, engine, outcome)
            finally:
                self._state.release(decision.booking)
            if outcome.verdict is Verdict.WITHHELD:
                continue
            if outcome.verdict is Verdict.BROKEN:
                await job.exchange.fail(refused(Reason.ENGINE_FAILED))
            if outcome.verdict not in (Verdict.FAILED, Verdict.FORGOTTEN):
                return
            self._set_aside(job, engine, outcome)
            self._metrics.retry()
        raise self._refuse(job.reason)

    def ended(self, job: Job, error: Exception | None) -> None:
        """The request is over, with `error` for its client."""
        job.error, job.total_ms = error, self._clock.now_ms() - job.arrived_ms
        if job.span.recorded:
            spans.tell_outcome(
                job.span, outcome_of(job), model=job.request.model, profile=job.profile
            )
        self._telling.ended(job)

    async def _decide(self, job: Job) -> Decided:
        """A decision with a winner, at once or after a hold; ApiError when there is none."""
        while True:
            must_wait = not self._hold.empty and self._hold.waits(job.lane)
            decision = None if must_wait else self._decide_now(job)
            if decision is not None and decision.engine is not None:
                return decision
            if not job.refused:
                break
            await self._pause(job)
        if decision is not None and not may_pass(decision):
            raise self._refuse(job.reason if job.failed else Reason.NO_ENGINE, decision)
        if self._hold.full:
            raise self._refuse_full(job, decision)
        held_ms = self._clock.now_ms()
        try:
            held = await self._hold.wait(
                job.lane, lambda: self._decide_held(job, held_ms), timeout_ms=job.hold_left_ms
            )
        finally:
            waited_ms = self._clock.now_ms() - held_ms
            job.held_ms += waited_ms
        job.hold_left_ms -= waited_ms
        self._metrics.held(waited_ms)
        if held is None or may_pass(held):
            raise self._refuse_full(job, held)
        if held.engine is None:
            raise self._refuse(job.reason, held)
        return held

    async def _pause(self, job: Job) -> None:
        """Agents had no idle slot: let a moment pass, then their engines count again."""
        job.refused = ()
        if self._hold.full or job.hold_left_ms <= 0.0:
            raise self._refuse(Reason.ALL_QUARANTINED)
        pause_ms = min(job.pause_ms, job.hold_left_ms)
        await self._hold.pause(self._clock.sleep_ms(pause_ms))
        job.held_ms += pause_ms
        job.hold_left_ms -= pause_ms
        job.pause_ms = min(2.0 * job.pause_ms, PAUSE_MS_MAX)
        self._metrics.held(pause_ms)

    def _decide_held(self, job: Job, since_ms: float) -> Decided:
        """Decide for the first of those that wait for the same; after a while it claims a slot."""
        decision = self._decide_now(job)
        lacks_slot = may_pass(decision) and decision.refused(Reason.QUARANTINED) > 0
        if lacks_slot and self._clock.now_ms() - since_ms >= STARVED_MS:
            self._state.claim(self._query(job))
        return decision

    def _decide_now(self, job: Job) -> Decided:
        query = self._query(job)
        began_ms = self._clock.now_ms()
        decision = self._state.decide(query, job.profile, job.prompt)
        took_ms = self._clock.now_ms() - began_ms
        if decision.refused(Reason.QUARANTINED):
            self._metrics.quarantined()
        self._metrics.decision(job.profile, decision, took_ms)
        if not may_pass(decision):
            self._decided(job, query, decision, began_ms, took_ms)
        return decision

    def _query(self, job: Job) -> Query:
        target = job.target
        return Query(
            base_model=target.base_model,
            adapter=target.adapter,
            rank=target.rank,
            size_bytes=target.size_bytes,
            prompt_tokens=job.request.prompt_tokens,
            affinity_hash=job.request.affinity_hash(target.adapter),
            request_hash=job.request_hash,
            excluded=(*target.excluded, *job.failed, *job.refused),
        )

    async def _usable(self, job: Job, engine: EngineId, load: LoadKind) -> bool:
        """Make the adapter usable on the engine; False when that engine can't have it now."""
        spec = job.target.spec
        if spec is None or (load is LoadKind.NONE and engine not in job.forgotten):
            return True
        asked_ms = self._clock.now_ms()
        with job.span.child(spans.LOAD, SpanKind.CLIENT) as span:
            result = await self._ensurer.ensure(engine, spec, span)
            if span.recorded:
                spans.tell_load(span, engine, spec.engine_name, result)
        job.load_ms = (job.load_ms or 0.0) + self._clock.now_ms() - asked_ms
        if not self._state.may_send(engine):
            # An order came meanwhile, which says nothing of this request.
            return False
        if result is None:
            # Nobody to ask: an engine that has the name loads it when the request comes.
            self._state.ensure_failed(engine)
            job.setbacks += 1
            return self._state.has_registered(engine, spec.engine_name)
        if result.outcome is not EnsureOutcome.REFUSED:
            return True
        job.reason = result.reason or Reason.ENGINE_REFUSED
        if job.reason in PASSING:
            registered = self._state.has_registered(engine, spec.engine_name)
            if registered and not self._state.quarantines(job.profile):
                # A baseline knows nothing of slots: the request waits for one in the engine.
                return True
            job.refused += (engine,)
            job.hold_left_ms -= self._clock.now_ms() - asked_ms
        else:
            job.failed += (engine,)
            job.setbacks += 1
        return False

    async def _forward(self, job: Job, engine: EngineId, booking: int, span: Span) -> Try:
        state = self._state.engine(engine)
        if state is None:
            return Try(verdict=Verdict.FAILED, detail="the engine left the region")
        adapter = job.target.adapter
        served_name = name_at(state, adapter)
        to = Upstream(
            url=state.url,
            path=job.request.endpoint.value,
            served_name=served_name,
            model=job.request.model,
            adapter=adapter,
            body=job.request.body_for(served_name),
            request_id=job.request_id,
            sent_ms=self._clock.now_ms(),
            may_send=partial(self._state.may_send, engine),
            traced=span.passed_on,
        )
        job.exchange.set_header(_ENGINE, engine.encode())

        def first_token() -> None:
            self._state.first_token(engine, booking)
            self._prompts.begins(job)
            self._metrics.first_byte(self._clock.now_ms() - job.arrived_ms)

        job.tries += 1
        job.engine, job.last = engine, None
        self._state.sent(engine)
        try:
            outcome = await self._proxy.forward(to, job.exchange, first_token)
        except asyncio.CancelledError:
            self._state.abandoned(engine)
            raise
        if outcome.verdict is not Verdict.SERVED:
            self._metrics.tried(outcome.verdict)
        if outcome.verdict is Verdict.WITHHELD:
            self._state.abandoned(engine)
            job.tries -= 1
            return outcome
        job.last = outcome
        self._state.observe(engine, outcome)
        return outcome

    def _set_aside(self, job: Job, engine: EngineId, outcome: Try) -> None:
        """After a try that the client saw nothing of: which engines the next one may use."""
        job.setbacks += 1
        if outcome.verdict is Verdict.FORGOTTEN:
            self._state.forgot(engine, job.target.adapter)
            if job.target.spec is not None and engine not in job.forgotten:
                job.forgotten += (engine,)
                return
        job.failures += 1
        job.failed += (engine,)
        is_full = outcome.status == ENGINE_FULL_STATUS
        job.reason = Reason.ALL_SATURATED if is_full else Reason.ENGINE_FAILED

    def _decided(
        self, job: Job, query: Query, decision: Decided, at_ms: float, took_ms: float
    ) -> None:
        """It stands: keep it."""
        if job.deciding.recorded:
            spans.tell_decision(job.deciding, decision.whole())
        weights = self._state.weights(job.profile)
        excluded = query.excluded
        record = DecisionRecord(at_ms, took_ms, job.attempt, excluded, weights, decision)
        self._telling.decided(job, record)

    def _refuse(self, reason: Reason, decision: Decided | None = None) -> ApiError:
        self._metrics.refusal(reason)
        refusals = decision.refusals if decision else {}
        counts = ", ".join(f"{count} {why.value}" for why, count in sorted(refusals.items()))
        return refused(reason, f"Engines: {counts}." if counts else "")

    def _refuse_full(self, job: Job, decision: Decided | None) -> ApiError:
        """No room, in time or at all; `decision` is the last one, if it was looked at."""
        query = self._query(job)
        at_ms = self._clock.now_ms()
        last = decision or self._state.choose(query, job.profile, job.prompt)
        self._decided(job, query, last, at_ms, self._clock.now_ms() - at_ms)
        saturated = last.refused(Reason.SATURATED) > 0
        return self._refuse(Reason.ALL_SATURATED if saturated else Reason.ALL_QUARANTINED, last)
