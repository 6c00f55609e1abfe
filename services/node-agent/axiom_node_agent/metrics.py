"""Every metric of the node agent. Engines are declared in settings, so they are few and known; one
that left takes its labels along."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from axiom_common.model.engine import GpuState
from axiom_common.model.ids import EngineId
from axiom_common.model.prefix import FactsState
from axiom_common.runtime.metric_names import NodeAgent
from axiom_common.runtime.metrics import MetricSet, Reading
from axiom_node_agent.engine_figures import FIGURES, Figure
from axiom_node_agent.state import EngineBook


class AgentMetrics:
    """One set a process, in its own registry."""

    def __init__(self) -> None:
        self._set = metrics = MetricSet()
        self.registry = metrics.registry
        self.poll_duration = metrics.histogram(NodeAgent.POLL_DURATION)
        self.poll_failures = metrics.counter(NodeAgent.POLL_FAILURES)
        self.restarts = metrics.counter(NodeAgent.RESTARTS)
        self.engine_ready = metrics.gauge(NodeAgent.ENGINE_READY)
        self.source_switches = metrics.counter(NodeAgent.SOURCE_SWITCHES)
        self.load_duration = metrics.histogram(NodeAgent.LOAD_DURATION)
        self.load_failures = metrics.counter(NodeAgent.LOAD_FAILURES)
        self.loads_waiting = metrics.gauge(NodeAgent.LOADS_WAITING)
        self.unloads = metrics.counter(NodeAgent.UNLOADS)
        self.unload_failures = metrics.counter(NodeAgent.UNLOAD_FAILURES)
        self._of_engines = (
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
        self.kv_uncredited = metrics.counter(NodeAgent.KV_UNCREDITED)
        self.kv_losses = metrics.counter(NodeAgent.KV_LOSSES)
        self.kv_malformed = metrics.counter(NodeAgent.KV_MALFORMED)
        self.fact_messages = metrics.counter(NodeAgent.FACT_MESSAGES)
        self.ensures = metrics.counter(NodeAgent.ENSURES)
        self.reports = metrics.counter(NodeAgent.REPORTS)
        self.reports_reduced = metrics.counter(NodeAgent.REPORTS_REDUCED)
        self.report_failures = metrics.counter(NodeAgent.REPORT_FAILURES)
        self.invalid_messages = metrics.counter(NodeAgent.INVALID)
        self.plan_refusals = metrics.counter(NodeAgent.PLAN_REFUSALS)
        self.reloads = metrics.counter(NodeAgent.RELOADS)

    def forget_engine(self, engine: str) -> None:
        """The engine is gone."""
        for metric in self._of_engines:
            metric.remove_by_labels({"engine": engine})

    def expose_facts(self, told: Callable[[], Mapping[EngineId, tuple[FactsState, int]]]) -> None:
        """Expose how it stands with the facts of engines, and how many blocks are mirrored."""
        self._set.read_gauges(
            NodeAgent.KV_BLOCKS,
            lambda: [((engine,), blocks) for engine, (_, blocks) in told().items()],
        )
        self._set.read_gauges(
            NodeAgent.FACTS,
            lambda: [
                ((state,), float(sum(now is state for now, _ in told().values())))
                for state in FactsState
            ],
        )

    def expose(
        self,
        *,
        dropped: Callable[[], float],
        nats_refusals: Callable[[], float],
        degraded: Callable[[], Collection[str]],
        books: Callable[[], Collection[EngineBook]],
        gpus: Callable[[], tuple[GpuState, ...]],
    ) -> None:
        """Expose what is read at scrape time. Of a fault's name counts what stands before `:`."""

        def of_all(figure: Figure) -> Callable[[], Reading]:
            return lambda: [told for book in books() for told in figure(book, gpus())]

        for name, figure in FIGURES.items():
            self._set.read_gauges(name, of_all(figure))
        self._set.read_gauge(NodeAgent.LOST_GPUS, lambda: sum(gpu.lost for gpu in gpus()))
        self._set.read_flags(
            NodeAgent.DEGRADED, lambda: {what.partition(":")[0] for what in degraded()}
        )
        self._set.read_counter(NodeAgent.DROPPED, dropped)
        self._set.read_counter(NodeAgent.NATS_REFUSALS, nats_refusals)
