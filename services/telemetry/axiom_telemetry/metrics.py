"""Every metric of the telemetry service. No label holds a node: a region may have thousands."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from axiom_common.ports.shadow_cache import PutOutcome
from axiom_common.state.region_view import Outcome

_WRITE_BUCKETS_S = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class TelemetryMetrics:
    """One set a process, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reports = Counter(
            "axiom_telemetry_reports_total",
            "Reports heard of own nodes: applied, stale, gap, needs-full, no-room or left",
            ["outcome"],
            registry=self.registry,
        )
        self._reports = {outcome: self.reports.labels(outcome.value) for outcome in Outcome}
        self.others = Counter(
            "axiom_telemetry_others_reports_total",
            "Reports of nodes that other instances own",
            registry=self.registry,
        )
        self.members = Gauge(
            "axiom_telemetry_members_count",
            "Telemetry instances that share the region's nodes, this one included",
            registry=self.registry,
        )
        self.writes = Counter(
            "axiom_telemetry_writes_total",
            "Records sent to the shadow cache: stored, not-newer or away",
            ["outcome"],
            registry=self.registry,
        )
        self.write_duration = Histogram(
            "axiom_telemetry_write_duration_seconds",
            "Time of one pipeline of writes to the shadow cache",
            buckets=_WRITE_BUCKETS_S,
            registry=self.registry,
        )
        self.resyncs = Counter(
            "axiom_telemetry_resyncs_total",
            "Requests for a node's full state",
            registry=self.registry,
        )
        self.forgotten = Counter(
            "axiom_telemetry_nodes_forgotten_total",
            "Nodes that fell silent and were forgotten",
            registry=self.registry,
        )
        self.nodes = Gauge(
            "axiom_telemetry_nodes_count", "Nodes that are heard", registry=self.registry
        )
        self.engines = Gauge(
            "axiom_telemetry_engines_count", "Engines on them", registry=self.registry
        )
        self.pending = Gauge(
            "axiom_telemetry_pending_writes_count",
            "Nodes of which more than figures is not written yet",
            registry=self.registry,
        )
        self.invalid_messages = Counter(
            "axiom_telemetry_invalid_messages_total",
            "Messages that do not parse",
            registry=self.registry,
        )
        self.dropped_messages = Counter(
            "axiom_telemetry_dropped_messages_total",
            "Messages lost because this process was too slow",
            registry=self.registry,
        )

    def heard(self, outcome: Outcome) -> None:
        """One report of an own node was folded."""
        self._reports[outcome].inc()

    def wrote(self, outcomes: Sequence[PutOutcome], duration_ms: float) -> None:
        """One pipeline ended."""
        for outcome in outcomes:
            known = "stored" if outcome else "not-newer"
            self.writes.labels(known if isinstance(outcome, bool) else "away").inc()
        self.write_duration.observe(duration_ms / 1e3)
