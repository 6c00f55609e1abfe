"""The gateway's metrics. Label values from closed enums, except `profile` and `status` (capped)."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable
from math import nan

from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.prefix import Untold
from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided
from axiom_common.ports.tracing import SpanCounts
from axiom_common.runtime.metric_names import Gateway
from axiom_common.runtime.metrics import CappedLabel, MetricSet, Reading
from axiom_common.wire.schemas import FactKind
from axiom_gateway.decision_log import LogCounts
from axiom_gateway.proxy import Verdict


class GatewayMetrics:
    """One registry a gateway. Times are given in ms and exposed in seconds."""

    def __init__(self) -> None:
        self._set = metrics = MetricSet()
        self.registry = metrics.registry
        self.before_scrape: Callable[[], None] = lambda: None
        """Called first at each scrape."""
        metrics.before_scrape(lambda: self.before_scrape())
        self._status = CappedLabel(Gateway.STATUS)
        self._profile = CappedLabel(Gateway.PROFILE)
        self._quarantines = metrics.counter(Gateway.QUARANTINES)
        self._refusals = metrics.counter(Gateway.REFUSALS)
        self._ensures = metrics.counter(Gateway.ENSURES)
        self._retries = metrics.counter(Gateway.RETRIES)
        self._invalid = metrics.counter(Gateway.INVALID)
        self._first_byte = metrics.own_histogram(Gateway.FIRST_BYTE)
        self._hold = metrics.own_histogram(Gateway.HOLD)
        self._decision = metrics.own_histogram(Gateway.DECISION)
        self._facts_lost = metrics.counter(Gateway.FACTS_LOST)
        self._snapshots_asked = metrics.counter(Gateway.SNAPSHOTS_ASKED)
        self._matched_tokens = metrics.counter(Gateway.MATCHED_TOKENS)
        self._cached_tokens = metrics.counter(Gateway.CACHED_TOKENS)
        self._overmatched_tokens = metrics.counter(Gateway.OVERMATCHED_TOKENS)
        self._prompt_text = metrics.own_histogram(Gateway.PROMPT_TEXT)
        # What every request counts: the library's counters cost as much as a part of a decision.
        self._requests = metrics.own_counter(Gateway.REQUESTS).counts
        self._decisions = metrics.own_counter(Gateway.DECISIONS).counts
        self._tries = metrics.own_counter(Gateway.TRIES).counts
        self._prompt_texts = metrics.own_counter(Gateway.PROMPT_TEXTS).counts
        self._facts = metrics.own_counter(Gateway.FACTS).counts

    def request(self, endpoint: str, status: int) -> None:
        """A request ended with `status` (499: its client had gone)."""
        self._requests[endpoint, self._status[status]] += 1

    def decision(self, profile: str, decision: Decided, duration_ms: float) -> None:
        """A decision was taken with a profile."""
        outcome = decision.load.value if decision.engine else "no-winner"
        self._decisions[self._profile[profile], outcome] += 1
        self._decision.observe(duration_ms / 1e3)

    def quarantined(self) -> None:
        """A decision passed over an engine that would have to evict an adapter in use."""
        self._quarantines.inc()

    def refusal(self, reason: Reason) -> None:
        """A request was refused."""
        self._refusals.labels(reason.value).inc()

    def ensure(self, outcome: EnsureOutcome | None) -> None:
        """An agent answered an ensure; None: it did not."""
        self._ensures.labels(outcome.value if outcome else "unanswered").inc()

    def tried(self, verdict: Verdict) -> None:
        """A try ended."""
        self._tries[verdict.value,] += 1

    def retry(self) -> None:
        """A try failed that the client saw nothing of."""
        self._retries.inc()

    def first_byte(self, duration_ms: float) -> None:
        """The first byte of an answer went out."""
        self._first_byte.observe(duration_ms / 1e3)

    def held(self, duration_ms: float) -> None:
        """A request left the hold queue."""
        self._hold.observe(duration_ms / 1e3)

    def invalid_message(self) -> None:
        """A message of the bus did not parse."""
        self._invalid.inc()

    def prompt_text(self, untold: Untold | None, duration_ms: float | None = None) -> None:
        """The text of a request's prompt was made, or is not known; None: nobody tried."""
        self._prompt_texts["told" if untold is None else untold.value,] += 1
        if duration_ms is not None:
            self._prompt_text.observe(duration_ms / 1e3)

    def matched(self, matched_tokens: int, cached_tokens: int) -> None:
        """What a decision took for held, and what the engine had cached."""
        self._matched_tokens.inc(matched_tokens)
        self._cached_tokens.inc(cached_tokens)
        self._overmatched_tokens.inc(max(0, matched_tokens - cached_tokens))

    def facts_heard(self, kind: FactKind) -> None:
        """An agent told facts."""
        self._facts[kind.value,] += 1

    def facts_lost(self) -> None:
        """Facts of an engine that lacked nothing turned out to be missing."""
        self._facts_lost.inc()

    def snapshots_asked(self, count: int) -> None:
        """Snapshots of so many engines were asked for."""
        self._snapshots_asked.inc(count)

    def expose_prefixes(
        self,
        *,
        entries: Callable[[], float],
        predicted: Callable[[], float],
        dropped: Callable[[], float],
        lacking: Callable[[], float],
        told_engines: Callable[[], float],
    ) -> None:
        """Expose what is known of prompts that engines hold, read at scrape time."""
        self._set.read_gauge(Gateway.PREFIX_ENTRIES, entries)
        self._set.read_gauge(Gateway.PREFIX_PREDICTED, predicted)
        self._set.read_counter(Gateway.PREFIX_DROPPED, dropped)
        self._set.read_gauge(Gateway.FACTS_LACKING, lacking)
        self._set.read_gauge(Gateway.FACTS_ENGINES, told_engines)

    def expose(
        self,
        *,
        under_way: Callable[[], float],
        held: Callable[[], float],
        engines: Callable[[], float],
        left_out: Callable[[], Iterable[Reason]],
        peers: Callable[[], float],
        view_age_ms: Callable[[], float | None],
        oldest_report_ms: Callable[[], float | None],
        degraded: Callable[[], Collection[str]],
        dropped: Callable[[], float],
        nats_refusals: Callable[[], float],
        spans: Callable[[], SpanCounts],
        told: Callable[[], LogCounts],
    ) -> None:
        """Expose what is read at scrape time."""

        def left_out_because() -> Reading:
            counts = Tally(left_out())
            return [
                ((reason,), counts[Reason(reason)]) for reason in Gateway.LEFT_OUT_BECAUSE.values
            ]

        self._set.read_gauge(Gateway.UNDER_WAY, under_way)
        self._set.read_gauge(Gateway.HELD, held)
        self._set.read_gauge(Gateway.ENGINES, engines)
        self._set.read_gauges(Gateway.LEFT_OUT, left_out_because)
        self._set.read_gauge(Gateway.PEERS, peers)
        self._set.read_gauge(Gateway.VIEW_AGE, lambda: _seconds(view_age_ms()))
        self._set.read_gauge(Gateway.OLDEST_REPORT, lambda: _seconds(oldest_report_ms()))
        self._set.read_flags(Gateway.DEGRADED, degraded)
        self._set.read_counter(Gateway.DROPPED, dropped)
        self._set.read_counter(Gateway.NATS_REFUSALS, nats_refusals)
        self._set.read_counter(Gateway.DECISIONS_TOLD, lambda: told().sent)
        self._set.read_counter(Gateway.DECISIONS_SAMPLED_OUT, lambda: told().sampled_out)
        self._set.read_counter(Gateway.DECISIONS_DROPPED, lambda: told().dropped)
        self._set.read_counter(Gateway.SPANS, lambda: spans().ended)
        self._set.read_counter(Gateway.SPANS_SENT, lambda: spans().sent)
        self._set.read_counter(Gateway.SPANS_NOT_SENT, lambda: spans().not_sent)


def _seconds(ms: float | None) -> float:
    return nan if ms is None else ms / 1e3
