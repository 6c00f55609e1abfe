"""Metrics: declared in one file, named after one form, bounded, and told of in docs/metrics.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.decided_parts import decided

from axiom_common.drivers.kv_event_feed import Loss
from axiom_common.model.engine import EngineStatus
from axiom_common.ports.tracing import SpanCounts
from axiom_common.runtime.metric_names import (
    SERVICES,
    Gateway,
    NodeAgent,
    Scheduler,
    Telemetry,
    metrics_of,
)
from axiom_common.runtime.metric_reference import page
from axiom_common.runtime.metrics import OTHER, UNITS
from axiom_gateway.app import NO_ENGINE_READY
from axiom_gateway.decision_log import LogCounts
from axiom_gateway.handlers import MODELS
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.openai_requests import Endpoint
from axiom_gateway.proxy import Verdict
from axiom_node_agent.fact_teller import FAULTS
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.report import REDUCTIONS
from axiom_node_agent.settings_watch import SETTINGS_INVALID
from axiom_scheduler.applier import Applied
from axiom_scheduler.metrics import SchedulerMetrics
from axiom_telemetry.metrics import TelemetryMetrics

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(path for top in ("libs", "services") for path in (ROOT / top).rglob("*.py"))
HOME = ROOT / "libs" / "axiom_common" / "runtime"
ALL = [metric for service in SERVICES for metric in metrics_of(service)]
SERIES_MAX = 5000
SUFFIXES = {"counter": "_total"}
PROCESS = "process_"


def zero() -> float:
    return 0.0


def gateway_metrics() -> GatewayMetrics:
    """All that a running gateway exposes."""
    metrics = GatewayMetrics()
    metrics.expose(
        under_way=zero,
        held=zero,
        engines=zero,
        left_out=lambda: (),
        peers=zero,
        view_age_ms=lambda: None,
        oldest_report_ms=lambda: None,
        degraded=lambda: (),
        dropped=zero,
        nats_refusals=zero,
        spans=SpanCounts,
        told=lambda: LogCounts(0, 0, 0),
    )
    metrics.expose_prefixes(
        entries=zero, predicted=zero, dropped=zero, lacking=zero, told_engines=zero
    )
    return metrics


def agent_metrics() -> AgentMetrics:
    metrics = AgentMetrics()
    metrics.expose(
        dropped=zero,
        nats_refusals=zero,
        degraded=lambda: (),
        books=lambda: (),
        gpus=lambda: (),
    )
    metrics.expose_facts(dict)
    return metrics


def scheduler_metrics() -> SchedulerMetrics:
    metrics = SchedulerMetrics()
    metrics.expose(dropped=zero, nats_refusals=zero, degraded=lambda: ())
    return metrics


def telemetry_metrics() -> TelemetryMetrics:
    metrics = TelemetryMetrics()
    metrics.expose(
        members=zero,
        nodes=zero,
        engines=zero,
        pending=zero,
        dropped=zero,
        nats_refusals=zero,
        degraded=lambda: (),
    )
    return metrics


EXPOSED = [
    (Gateway, gateway_metrics().registry),
    (NodeAgent, agent_metrics().registry),
    (Scheduler, scheduler_metrics().registry),
    (Telemetry, telemetry_metrics().registry),
]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_name_says_service_and_unit(metric: Any) -> None:
    assert re.fullmatch(rf"[a-z]+(_[a-z]+)*_({'|'.join(UNITS)})", metric.what)
    assert (metric.unit == "total") == (metric.kind == "counter")
    assert metric.unit == "seconds" or metric.kind != "histogram"
    assert metric.about.endswith(".")


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_label_has_a_bound(metric: Any) -> None:
    for label in metric.labels:
        assert bool(label.values) != bool(label.values_max and label.bound)
        assert len(set(label.values)) == len(label.values)
        assert label.name not in {"node", "adapter", "model", "tenant", "request", "decision"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_process_has_few_series(service: type) -> None:
    assert sum(metric.series_max for metric in metrics_of(service)) < SERIES_MAX


@pytest.mark.parametrize(("service", "registry"), EXPOSED)
def test_a_service_exposes_what_is_declared(service: type, registry: CollectorRegistry) -> None:
    families = [family for family in registry.collect() if not family.name.startswith(PROCESS)]
    names = {family.name + SUFFIXES.get(family.type, "") for family in families}
    assert names == {metric.name for metric in metrics_of(service)}


@pytest.mark.parametrize(("service", "registry"), EXPOSED)
def test_a_service_tells_of_its_process(service: type, registry: CollectorRegistry) -> None:
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0.0) > 1e6
    assert registry.get_sample_value("process_cpu_seconds_total") is not None


@pytest.mark.parametrize("service", SERVICES)
def test_what_goes_wrong_on_the_bus_has_one_name(service: Any) -> None:
    whats = {metric.what for metric in metrics_of(service)}
    expected = {"invalid_messages_total", "dropped_messages_total", "nats_refusals_total"}
    assert expected <= whats


def test_closed_labels_list_what_the_code_can_say() -> None:
    assert set(Gateway.VERDICT.values) == {verdict.value for verdict in Verdict}
    endpoints = {endpoint.value for endpoint in Endpoint}
    assert set(Gateway.ENDPOINT.values) == endpoints | {MODELS, OTHER}
    outcomes = {applied.value for applied in Applied}
    assert set(Scheduler.RECONCILES.labels[0].values) == outcomes | {"unavailable"}
    assert len(NodeAgent.REPORTS_REDUCED.labels[0].values) == REDUCTIONS
    engines = {f"engine-{status}" for status in EngineStatus if status is not EngineStatus.READY}
    assert engines | {SETTINGS_INVALID} <= set(NodeAgent.DEGRADED.labels[0].values)
    assert {fault.value for fault in FAULTS} <= set(NodeAgent.DEGRADED.labels[0].values)
    assert set(NodeAgent.KV_LOSSES.labels[0].values) == {loss.value for loss in Loss}
    assert NO_ENGINE_READY in Gateway.DEGRADED.labels[0].values


def test_values_from_outside_end_in_other() -> None:
    metrics = gateway_metrics()
    for number in range(10_000):
        metrics.request("/v1/models", number)
        metrics.decision(f"p{number}", decided(), 1.0)
    families = {family.name: family for family in metrics.registry.collect()}
    requests = families["axiom_gateway_requests"].samples
    assert len(requests) == Gateway.STATUS.most
    assert len(families["axiom_gateway_decisions"].samples) == Gateway.PROFILE.most
    assert sum(sample.value for sample in requests) == 10_000
    last = {"endpoint": "/v1/models", "status": OTHER}
    counted = metrics.registry.get_sample_value("axiom_gateway_requests_total", last)
    assert counted == 10_000 - Gateway.STATUS.most + 1


def callers_of(*names: str) -> set[Path]:
    """Files of the product that call one of these with what a metric is made of."""
    mentioned = re.compile(rf"\b({'|'.join(names)})\(")
    return {
        path
        for path in PRODUCT
        if mentioned.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in names
        and (node.func.id.endswith("Name") or any(k.arg == "registry" for k in node.keywords))
    }


def test_no_metric_is_made_elsewhere() -> None:
    made = callers_of("Counter", "Gauge", "Histogram", "Info", "Summary", "Enum")
    simulated = {path for path in made if path.is_relative_to(ROOT / "libs" / "axiom_sim")}
    assert made - simulated == {HOME / "metrics.py"}
    declared = callers_of("CounterName", "GaugeName", "HistogramName")
    files = "metric_names.py", "gateway_metric_names.py", "metric_labels.py"
    assert declared == {HOME / name for name in files}


def test_the_page_is_what_its_command_makes() -> None:
    told = (ROOT / "docs" / "metrics.md").read_text()
    made = page().rstrip("\n") + "\n"
    assert told == made, "python -m axiom_common.runtime.metric_reference > docs/metrics.md"
