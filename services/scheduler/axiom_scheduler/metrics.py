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
        self.registry = registry = CollectorRegistry()
        self.leaders = Gauge(
            "axiom_scheduler_leaders_count",
            "1 while this process leads, else 0; a region's sum should be 1",
            registry=registry,
        )
        self.nodes = Gauge("axiom_scheduler_nodes_count", "Nodes known", registry=registry)
        self.adapters = Gauge(
            "axiom_scheduler_adapters_count", "Adapters declared", registry=registry
        )
        self._unplaced = Gauge(
            "axiom_scheduler_adapters_unplaced_count",
            "Adapters without a home",
            ("reason",),
            registry=registry,
        )
        self.unacknowledged = Gauge(
            "axiom_scheduler_plans_unacknowledged_count",
            "Nodes that do not carry out their plan yet",
            registry=registry,
        )
        self._refused = Gauge(
            "axiom_scheduler_plans_refused_count",
            "Nodes that refuse their plan",
            ("reason",),
            registry=registry,
        )
        self.plans_written = Counter(
            "axiom_scheduler_plans_written_total", "Plans written", registry=registry
        )
        self.invalid_messages = Counter(
            "axiom_scheduler_invalid_messages_total",
            "Messages and records that do not parse",
            ("kind",),
            registry=registry,
        )
        self.dropped_messages = Counter(
            "axiom_scheduler_dropped_messages_total",
            "Messages lost because this process was too slow",
            registry=registry,
        )
        self._reconciles = Counter(
            "axiom_scheduler_reconciles_total",
            "Placements, by how they ended",
            ("outcome",),
            registry=registry,
        )
        self._duration = Histogram(
            "axiom_scheduler_reconcile_duration_seconds",
            "Time of one placement with its writes",
            buckets=_SECONDS,
            registry=registry,
        )

    def reconciled(self, outcome: str, duration_ms: float) -> None:
        """A placement ended with `outcome` (of `Applied`, or `unavailable`)."""
        self._reconciles.labels(outcome).inc()
        self._duration.observe(duration_ms / 1e3)

    def unplaced(self, reasons: Iterable[Reason]) -> None:
        """Why adapters have no home, one reason an adapter."""
        _tell(self._unplaced, reasons)

    def refused(self, reasons: Iterable[Reason]) -> None:
        """Why agents refuse their plan, one reason a node."""
        _tell(self._refused, reasons)


def _tell(gauge: Gauge, reasons: Iterable[Reason]) -> None:
    gauge.clear()
    for reason, count in Tally(reasons).items():
        gauge.labels(reason).set(count)
