"""Every metric of the telemetry service. No label holds a node: a region may have thousands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from axiom_common.ports.shadow_cache import PutOutcome
from axiom_common.runtime.metric_names import Telemetry
from axiom_common.runtime.metrics import MetricSet
from axiom_common.state.region_view import Outcome


class TelemetryMetrics:
    """One set a process, in its own registry."""

    def __init__(self) -> None:
        self._set = metrics = MetricSet()
        self.registry = metrics.registry
        self.reports = metrics.counter(Telemetry.REPORTS)
        self._reports = {outcome: self.reports.labels(outcome.value) for outcome in Outcome}
        self.others = metrics.counter(Telemetry.OTHERS)
        self.writes = metrics.counter(Telemetry.WRITES)
        self.write_duration = metrics.histogram(Telemetry.WRITE_DURATION)
        self.resyncs = metrics.counter(Telemetry.RESYNCS)
        self.forgotten = metrics.counter(Telemetry.FORGOTTEN)
        self.invalid_messages = metrics.counter(Telemetry.INVALID)

    def heard(self, outcome: Outcome) -> None:
        """One report of an own node was folded."""
        self._reports[outcome].inc()

    def wrote(self, outcomes: Sequence[PutOutcome], duration_ms: float) -> None:
        """One pipeline ended."""
        for outcome in outcomes:
            known = "stored" if outcome else "not-newer"
            self.writes.labels(known if isinstance(outcome, bool) else "away").inc()
        self.write_duration.observe(duration_ms / 1e3)

    def expose(
        self,
        *,
        members: Callable[[], float],
        nodes: Callable[[], float],
        engines: Callable[[], float],
        pending: Callable[[], float],
        dropped: Callable[[], float],
        nats_refusals: Callable[[], float],
        degraded: Callable[[], Collection[str]],
    ) -> None:
        """Expose what is read at scrape time."""
        self._set.read_gauge(Telemetry.MEMBERS, members)
        self._set.read_gauge(Telemetry.NODES, nodes)
        self._set.read_gauge(Telemetry.ENGINES, engines)
        self._set.read_gauge(Telemetry.PENDING, pending)
        self._set.read_counter(Telemetry.DROPPED, dropped)
        self._set.read_counter(Telemetry.NATS_REFUSALS, nats_refusals)
        self._set.read_flags(Telemetry.DEGRADED, degraded)
