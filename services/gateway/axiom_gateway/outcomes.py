"""How a request ended, and why: from its last try and the error that its client gets."""

from __future__ import annotations

from axiom_common.model.outcome import Ending, Outcome
from axiom_common.model.reason import Reason
from axiom_gateway.asgi import Exchange
from axiom_gateway.errors import ApiError
from axiom_gateway.job import Job
from axiom_gateway.proxy import Try, Verdict
from axiom_gateway.usage import UNTOLD, usage_in

_ENDINGS = {
    Verdict.SERVED: Ending.SERVED,
    Verdict.REJECTED: Ending.REJECTED,
    Verdict.BROKEN: Ending.BROKEN,
}
_BROKEN = Verdict.BROKEN
_SERVED, _IS_SERVED = Verdict.SERVED, Ending.SERVED
"""Most requests; looking up members of enums, and hashing them, costs more than all the rest."""
_REASONS: dict[str | int | None, Reason] = {reason.value: reason for reason in Reason}


def outcome_of(job: Job) -> Outcome:
    """What became of a request that ended, with the usage that its answer tells."""
    exchange, last, error = job.exchange, job.last, job.error
    status = exchange.status
    if status is None and isinstance(error, ApiError):
        status = error.status
    if last is None:
        ttft_ms = tpot_ms = None
        usage = UNTOLD
    else:
        ttft_ms, tpot_ms = last.ttft_ms, last.tpot_ms
        usage = usage_in(last.answer) if last.answer else last.usage
    return Outcome(
        _ending_of(exchange, last, error),
        status,
        _reason_of(last, error),
        job.engine,
        job.tries - 1 if job.tries else 0,
        job.held_ms,
        job.load_ms,
        job.total_ms,
        ttft_ms,
        tpot_ms,
        usage,
        _matched_tokens(job),
    )


def _matched_tokens(job: Job) -> int | None:
    """What the decision took for held on the engine that the request was sent to last."""
    if job.prompt is None or not job.decided:
        return None
    decision = job.decided[-1].decision
    return decision.matched_tokens if decision.engine == job.engine else None


def _ending_of(exchange: Exchange, last: Try | None, error: Exception | None) -> Ending:
    """How it ended. `last` None: the last try did not come to its end, or there was none."""
    if error is None:
        if last is not None and last.verdict is _SERVED:
            return _IS_SERVED
        return _ENDINGS.get(last.verdict, Ending.CUT) if last is not None else Ending.CUT
    if exchange.gone:
        return Ending.GONE
    if exchange.cut is not None and exchange.cut.expired():
        return Ending.CUT
    return Ending.REFUSED if isinstance(error, ApiError) else Ending.DEFECT


def _reason_of(last: Try | None, error: Exception | None) -> Reason | None:
    """The reason of an error; None where none has to be given."""
    if error is not None:
        return _REASONS.get(error.error_code) if isinstance(error, ApiError) else None
    if last is not None and last.verdict is _BROKEN:
        return Reason.ENGINE_FAILED
    return None
