"""Every metric of the node agent. Engines are declared in settings, so they are few and known; one
that left takes its labels along."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

_LOAD_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0)
_POLL_BUCKETS_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class AgentMetrics:
    """One set a process, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._make_of_engines()
        self.ensures = self._counter(
            "axiom_node_agent_ensures_total", "Answers to gateways", "outcome", "reason"
        )
        self.reports = self._counter(
            "axiom_node_agent_reports_total", "Reports handed to the bus", "kind"
        )
        self.reports_reduced = self._counter(
            "axiom_node_agent_reports_reduced_total",
            "Reports with something left out, to be small enough to send",
            "reduction",
        )
        self.report_failures = self._counter(
            "axiom_node_agent_report_failures_total", "Reports that the bus did not take"
        )
        self.invalid_messages = self._counter(
            "axiom_node_agent_invalid_messages_total", "Messages that did not parse", "kind"
        )
        self.plan_refusals = self._counter(
            "axiom_node_agent_plan_refusals_total", "Plans refused", "reason"
        )

        self.reloads = self._counter(
            "axiom_node_agent_settings_reloads_total", "Changes of the settings file", "outcome"
        )

    def forget_engine(self, engine: str) -> None:
        """The engine is gone."""
        for metric in self._of_engines():
            metric.remove_by_labels({"engine": engine})

    def _make_of_engines(self) -> None:
        self.poll_duration = Histogram(
            "axiom_node_agent_poll_duration_seconds",
            "Time of one poll of an engine",
            ["engine"],
            buckets=_POLL_BUCKETS_S,
            registry=self.registry,
        )
        self.poll_failures = self._counter(
            "axiom_node_agent_poll_failures_total", "Polls that an engine did not answer", "engine"
        )
        self.restarts = self._counter(
            "axiom_node_agent_engine_restarts_total", "New processes seen of an engine", "engine"
        )
        self.engine_ready = Gauge(
            "axiom_node_agent_engine_ready_ratio",
            "1 when the engine serves, else 0",
            ["engine"],
            registry=self.registry,
        )
        self.source_switches = self._counter(
            "axiom_node_agent_residency_source_switches_total",
            "Times that this source took over saying what an engine holds",
            "engine",
            "source",
        )
        self.load_duration = Histogram(
            "axiom_node_agent_load_duration_seconds",
            "Time that an engine took for a load that succeeded",
            ["engine"],
            buckets=_LOAD_BUCKETS_S,
            registry=self.registry,
        )
        self.load_failures = self._counter(
            "axiom_node_agent_load_failures_total", "Loads that failed", "engine", "reason"
        )
        self.loads_waiting = Gauge(
            "axiom_node_agent_loads_waiting_count",
            "Loads that wait for their turn at an engine",
            ["engine"],
            registry=self.registry,
        )
        self.unloads = self._counter(
            "axiom_node_agent_unloads_total", "Names that an engine forgot by plan", "engine"
        )
        self.unload_failures = self._counter(
            "axiom_node_agent_unload_failures_total", "Unloads that failed", "engine"
        )

    def _of_engines(self) -> tuple[MetricWrapperBase, ...]:
        return (
            self.poll_duration,
            self.poll_failures,
            self.restarts,
            self.engine_ready,
            self.source_switches,
            self.load_duration,
            self.load_failures,
            self.loads_waiting,
            self.unloads,
            self.unload_failures,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
