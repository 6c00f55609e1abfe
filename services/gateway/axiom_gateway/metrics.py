"""The gateway's metrics. Label values from closed enums, except `profile` and `status` (capped)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge

from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.reason import Reason
from axiom_common.runtime.metrics import CappedLabel, OwnHistogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DECISION_SECONDS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2)


class GatewayMetrics:
    """One registry a gateway. Times are given in ms and exposed in seconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._status = CappedLabel(32)
        self._profile = CappedLabel(16)
        self._requests = self._counter("requests", "Requests answered.", "endpoint", "status")
        self._decisions = self._counter("decisions", "Decisions.", "profile", "outcome")
        self._refusals = self._counter("refusals", "Requests refused.", "reason")
        self._ensures = self._counter("ensures", "Loads asked of agents.", "outcome")
        self._tries = self._counter("tries", "Tries at engines, by how they ended.", "verdict")
        self._retries = self._counter("retries", "Failed tries that the client saw nothing of.")
        self._dropped = self._counter("dropped_messages", "Bus messages lost to full queues.")
        self._invalid = self._counter("invalid_messages", "Bus messages that do not parse.")
        self._first_byte = self._histogram("first_byte_seconds", "Arrival to first answer byte.")
        self._hold = self._histogram("hold_seconds", "Time that held requests waited.")
        self._decision = self._histogram(
            "decision_seconds", "Time of one decision.", _DECISION_SECONDS
        )
        # Children by label values: the library's own look-up locks and costs more than a decision.
        self._request_child = cache(self._requests.labels)
        self._decision_child = cache(self._decisions.labels)
        self._try_child = cache(self._tries.labels)

    def request(self, endpoint: str, status: int) -> None:
        """A request ended with `status` (499: its client had gone)."""
        self._request_child(endpoint, self._status(str(status))).inc()

    def decision(self, profile: str, outcome: str, duration_ms: float) -> None:
        """A decision was taken: `outcome` is a load kind or `no-winner`."""
        self._decision_child(self._profile(profile), outcome).inc()
        self._decision.observe(duration_ms / 1e3)

    def refusal(self, reason: Reason) -> None:
        """A request was refused."""
        self._refusals.labels(reason.value).inc()

    def ensure(self, outcome: EnsureOutcome | None) -> None:
        """An agent answered an ensure; None: it did not."""
        self._ensures.labels(outcome.value if outcome else "unanswered").inc()

    def tried(self, verdict: str) -> None:
        """A try ended."""
        self._try_child(verdict).inc()

    def retry(self) -> None:
        """A try failed that the client saw nothing of."""
        self._retries.inc()

    def dropped(self, count: int) -> None:
        """So many more bus messages were lost to full subscriptions."""
        self._dropped.inc(count)

    def first_byte(self, duration_ms: float) -> None:
        """The first byte of an answer went out."""
        self._first_byte.observe(duration_ms / 1e3)

    def held(self, duration_ms: float) -> None:
        """A request left the hold queue."""
        self._hold.observe(duration_ms / 1e3)

    def invalid_message(self) -> None:
        """A message of the bus did not parse."""
        self._invalid.inc()

    def expose(
        self,
        *,
        under_way: Callable[[], float],
        held: Callable[[], float],
        engines: Callable[[], float],
        peers: Callable[[], float],
        view_age_ms: Callable[[], float | None],
    ) -> None:
        """Expose what is read at scrape time."""
        self._gauge("requests_under_way_count", "Requests from head to end of answer.", under_way)
        self._gauge("held_count", "Requests waiting for room.", held)
        self._gauge("engines_count", "Engines in the view.", engines)
        self._gauge("peers_count", "Other gateways heard.", peers)
        self._gauge(
            "view_age_seconds",
            "Time since the last report of any node; NaN before the first.",
            lambda: nan if (age_ms := view_age_ms()) is None else age_ms / 1e3,
        )

    def _gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        Gauge(f"axiom_gateway_{name}", about, registry=self.registry).set_function(read)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"axiom_gateway_{name}_total", about, labels, registry=self.registry)

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...] = _SECONDS
    ) -> OwnHistogram:
        return OwnHistogram(f"axiom_gateway_{name}", about, buckets, self.registry)
