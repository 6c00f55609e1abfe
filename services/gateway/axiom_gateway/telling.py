"""What is told of requests when they ended: the decision log, a sample for the region's stream, a
line for those that ended badly.

Requests are told of some at a time. Whatever tells is then in the CPU's cache for all of them but
the first; told one by one, each request paid for it several times as much. Nobody waits: whoever
looks (`record_of`, a scrape) first has told what ended, and a sweep does so for few requests
in a long time.
"""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.model.outcome import Ending, Outcome
from axiom_common.runtime.logging import Log
from axiom_gateway.decisions import Asked, DecisionLog, DecisionRecord, RequestRecord
from axiom_gateway.job import Job
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.outcomes import outcome_of
from axiom_gateway.prompts import Prompts
from axiom_gateway.proxy import Verdict

ENDED_MAX = 8
"""Requests that ended and are not told of yet. Many more would not fit in the CPU's cache
themselves: with 64 a request cost 5 % more."""
LARGE_BYTES = 64 << 10
"""A request with more is told of at once, so that little memory waits for it."""
LOGGED = frozenset({Ending.REFUSED, Ending.BROKEN, Ending.CUT})
"""Ends that somebody may want to look into; a defect has a line of its own."""

_SERVED = Verdict.SERVED


class Telling:
    """Tells of jobs. `offer` gets each one that was decided, once it is kept in `log`, with the
    hash of its id."""

    def __init__(
        self,
        decisions: DecisionLog,
        metrics: GatewayMetrics,
        log: Log,
        offer: Callable[[RequestRecord, int], None],
        prompts: Prompts,
    ) -> None:
        self._decisions = decisions
        self._metrics = metrics
        self._log = log
        self._offer = offer
        self._prompts = prompts
        self._under_way: dict[str, Job] = {}
        """Decided, by id."""
        self._ended: list[Job] = []

    def decided(self, job: Job, record: DecisionRecord) -> None:
        """A decision of a job was taken, and stands."""
        if not job.decided:
            self._under_way[job.id] = job
        job.decided.append(record)

    def ended(self, job: Job) -> None:
        """A job came to its end, good or bad."""
        self._ended.append(job)
        if (
            len(self._ended) >= ENDED_MAX
            or job.error is not None
            or job.exchange.buffered_bytes > LARGE_BYTES
        ):
            self.tell()

    def record_of(self, decision_id: str) -> RequestRecord | None:
        """What is known of one id; None when it is unknown or forgotten."""
        self.tell()
        job = self._under_way.get(decision_id)
        if job is None:
            return self._decisions.get(decision_id)
        return RequestRecord(job.id, _asked(job), job.decided, None)

    def tell(self) -> None:
        """Tell of all that ended."""
        ended, self._ended = self._ended, []
        if not ended:
            return
        records = [self._told(job) for job in ended]
        self._decisions.keep(records)
        for job, record in zip(ended, records, strict=True):
            if record.decisions:
                self._offer(record, job.request_hash)

    def _told(self, job: Job) -> RequestRecord:
        outcome = outcome_of(job)
        self._prompts.ended(job, outcome)
        self._under_way.pop(job.id, None)
        if job.last is not None and job.last.verdict is _SERVED:
            self._metrics.tried(_SERVED)
        if outcome.ending in LOGGED:
            self._say(job, outcome)
        return RequestRecord(job.id, _asked(job), job.decided, outcome)

    def _say(self, job: Job, outcome: Outcome) -> None:
        """One line, with what finds the request everywhere else, and no word of it."""
        ending, reason = outcome.ending.value, outcome.reason and outcome.reason.value
        self._log.warning(
            f"request {ending}",
            once_a_minute=f"{ending} {reason} {outcome.engine}",
            request=job.request_id,
            decision=job.id,
            trace=job.span.trace_id,
            model=job.request.model,
            reason=reason,
            engine=outcome.engine,
            status=outcome.status,
            retries=outcome.retries,
        )


def _asked(job: Job) -> Asked:
    target = job.target
    return Asked(
        target.base_model,
        target.adapter,
        target.rank,
        target.size_bytes,
        job.request.prompt_tokens,
    )
