"""The scheduler's metrics. Label values come from closed lists."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable

from prometheus_client import Gauge

from axiom_common.model.reason import Reason
from axiom_common.runtime.metric_names import Scheduler
from axiom_common.runtime.metrics import MetricSet


class SchedulerMetrics:
    """One registry a scheduler."""

    def __init__(self) -> None:
        self._set = metrics = MetricSet()
        self.registry = metrics.registry
        self.leaders = metrics.gauge(Scheduler.LEADERS)
        self.nodes = metrics.gauge(Scheduler.NODES)
        self.adapters = metrics.gauge(Scheduler.ADAPTERS)
        self._unplaced = metrics.gauge(Scheduler.UNPLACED)
        self.unacknowledged = metrics.gauge(Scheduler.UNACKNOWLEDGED)
        self._refused = metrics.gauge(Scheduler.REFUSED)
        self.plans_written = metrics.counter(Scheduler.PLANS_WRITTEN)
        self.invalid_messages = metrics.counter(Scheduler.INVALID)
        self._reconciles = metrics.counter(Scheduler.RECONCILES)
        self._duration = metrics.histogram(Scheduler.RECONCILE_DURATION)

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

    def expose(
        self,
        *,
        dropped: Callable[[], float],
        nats_refusals: Callable[[], float],
        degraded: Callable[[], Collection[str]],
    ) -> None:
        """Expose what is read at scrape time."""
        self._set.read_counter(Scheduler.DROPPED, dropped)
        self._set.read_counter(Scheduler.NATS_REFUSALS, nats_refusals)
        self._set.read_flags(Scheduler.DEGRADED, degraded)


def _tell(gauge: Gauge, reasons: Iterable[Reason]) -> None:
    gauge.clear()
    for reason, count in Tally(reasons).items():
        gauge.labels(reason).set(count)
