"""The scheduler's metrics. Label values come from closed lists."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from axiom_common.model.reason import Reason

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class SchedulerMetrics:
    """One registry a scheduler."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.fence = self._gauge("fence", "Fence of the term that this process leads, 0: none.")
        self.nodes = self._gauge("nodes", "Nodes known.")
        self.adapters = self._gauge("adapters", "Adapters declared.")
        self._unplaced = self._gauge("adapters_unplaced", "Adapters without a home.", "reason")
        self.unacknowledged = self._gauge(
            "plans_unacknowledged", "Nodes that do not carry out their plan yet."
        )
        self._refused = self._gauge("plans_refused", "Nodes that refuse their plan.", "reason")
        self.plans_written = self._counter("plans_written", "Plans written or deleted.")
        self._outcomes = self._counter("reconciles", "Placements, by how they ended.", "outcome")
        self.dropped = self._counter("messages_dropped", "Messages that do not parse.", "source")
        self.reconcile = Histogram(
            "axiom_scheduler_reconcile_seconds",
            "Time of one placement with its writes.",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def reconciled(self, outcome: str, duration_ms: float) -> None:
        """A placement ended with `outcome` (of `Applied`, or `unavailable`)."""
        self._outcomes.labels(outcome).inc()
        self.reconcile.observe(duration_ms / 1e3)

    def unplaced(self, reasons: Iterable[Reason]) -> None:
        """Why adapters have no home, one reason an adapter."""
        _tell(self._unplaced, reasons)

    def refused(self, reasons: Iterable[Reason]) -> None:
        """Why agents refuse their plan, one reason a node."""
        _tell(self._refused, reasons)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"axiom_scheduler_{name}", about, labels, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"axiom_scheduler_{name}_total", about, labels, registry=self.registry)


def _tell(gauge: Gauge, reasons: Iterable[Reason]) -> None:
    gauge.clear()
    for reason, count in Tally(reasons).items():
        gauge.labels(reason).set(count)
