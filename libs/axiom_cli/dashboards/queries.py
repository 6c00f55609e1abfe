"""PromQL from declared metrics: a figure that is renamed is renamed here, or mypy says so.

Every range is `$__rate_interval`: at least four scrapes, so that a rate has a value wherever the
range begins. Every selector keeps to `$region`.
"""

from __future__ import annotations

from axiom_common.runtime.metric_names import (
    AnyMetric,
    Gateway,
    NodeAgent,
    Scheduler,
    Telemetry,
)
from axiom_common.runtime.metrics import CounterName, GaugeName, HistogramName

WINDOW = "$__rate_interval"
REGION = 'region=~"$region"'
ENGINE = 'engine=~"$engine"'
JOBS = "gateway|telemetry|scheduler|node-agent"
"""Axiom's own services, as Prometheus's configuration calls them."""
SERVED = 'endpoint=~"/v1/(chat/completions|completions|embeddings)"'
"""Requests that an engine answers."""


def now(metric: GaugeName, *matchers: str) -> str:
    """The gauge as it is."""
    return _select(metric.name, *matchers)


def rate(metric: CounterName, *matchers: str) -> str:
    """How often it counts, per second."""
    return f"rate({_select(metric.name, *matchers)}[{WINDOW}])"


def grown(metric: CounterName, window: str, *matchers: str) -> str:
    """How much it counted within a fixed time."""
    return f"increase({_select(metric.name, *matchers)}[{window}])"


def observed(metric: HistogramName, *matchers: str) -> str:
    """How often it is observed, per second."""
    return f"rate({_select(f'{metric.name}_count', *matchers)}[{WINDOW}])"


def total(expr: str, *by: str) -> str:
    """The sum over processes for each region and each value of `by`."""
    return f"sum by ({', '.join(('region', *by))}) ({expr})"


def highest(expr: str, *by: str) -> str:
    """The highest value of any process for each region and each value of `by`."""
    return f"max by ({', '.join(('region', *by))}) ({expr})"


def quantile(share: float, metric: HistogramName, *by: str, matchers: tuple[str, ...] = ()) -> str:
    """The value that `share` of what was observed stays below, for each region and `by`."""
    buckets = f"rate({_select(f'{metric.name}_bucket', *matchers)}[{WINDOW}])"
    return f"histogram_quantile({share}, {total(buckets, *by, 'le')})"


def counted(metric: CounterName, label: str, *matchers: str) -> str:
    """The rate by a label whose values appear as they happen, and `none` before any did: a panel
    that is empty would not say whether nothing happens or nobody tells."""
    nothing = f'label_replace(0 * {total(up())}, "{label}", "none", "", "")'
    any_ = f"group by (region) ({_select(metric.name, *matchers)})"
    return f"{total(rate(metric, *matchers), label)} or ({nothing} unless on (region) {any_})"


def slots_taken(*by: str) -> str:
    """The share of adapter slots in HBM that hold an adapter."""
    taken = total(now(NodeAgent.HELD, ENGINE, 'place="hbm"'), *by)
    return f"{taken} / {total(now(NodeAgent.SLOTS, ENGINE), *by)}"


def per_engine(expr: str, label: str = "") -> str:
    """What an engine has no series of before it happened, as 0 until then; with `none` for its
    further label, if it has one."""
    nothing = f"0 * {total(now(NodeAgent.ENGINE_READY, ENGINE), 'engine')}"
    if label:
        nothing = f'label_replace({nothing}, "{label}", "none", "", "")'
    return f"{expr} or on (region, engine) {nothing}"


def up(*jobs: str) -> str:
    """1 for each process that answers Prometheus, 0 for each that does not."""
    return f'up{{job=~"{"|".join(jobs) or JOBS}", {REGION}}}'


def of_processes(name: str) -> str:
    """What the system knows of each process of Axiom."""
    return f'{name}{{job=~"{JOBS}", {REGION}}}'


def of_each_service(what: str, names: tuple[AnyMetric, ...]) -> str:
    """A selector of the same `what` of several services."""
    services = "|".join(metric.service.value for metric in names)
    assert all(metric.what == what for metric in names)
    return f'{{__name__=~"axiom_({services})_{what}", {REGION}}}'


def degraded() -> str:
    """How many processes of each kind name what in /readyz; `none` of a kind that names nothing."""
    services = (Gateway.DEGRADED, NodeAgent.DEGRADED, Scheduler.DEGRADED, Telemetry.DEGRADED)
    named = total(of_each_service("degraded_ratio", services), "job", "what")
    nothing = f'label_replace(0 * {total(up(), "job")}, "what", "none", "", "")'
    return f"{named} > 0 or on (region, job) {nothing}"


def firing() -> str:
    """How many alerts of each name fire; `none` where none does."""
    nothing = f'label_replace(0 * {total(up())}, "alertname", "none", "", "")'
    alerts = f'ALERTS{{alertstate="firing", alertname=~"Axiom.+", {REGION}}}'
    return f"count by (region, alertname) ({alerts}) or on (region) {nothing}"


def _select(name: str, *matchers: str) -> str:
    return f"{name}{{{', '.join((REGION, *matchers))}}}"
