"""Telemetry health: is what gateways and schedulers decide on fresh, and does the bus carry it."""

from __future__ import annotations

from axiom_cli.dashboards.layout import COUNT, RATE, SECONDS, Board, graph, number
from axiom_cli.dashboards.queries import (
    WINDOW,
    counted,
    degraded,
    highest,
    now,
    observed,
    of_each_service,
    quantile,
    rate,
    total,
    up,
)
from axiom_common.runtime.metric_names import Gateway, NodeAgent, Scheduler, Telemetry

_SERVICES = (Gateway, NodeAgent, Scheduler, Telemetry)
_DROPPED = of_each_service("dropped_messages_total", tuple(s.DROPPED for s in _SERVICES))
_INVALID = of_each_service("invalid_messages_total", tuple(s.INVALID for s in _SERVICES))
_REFUSED = of_each_service("nats_refusals_total", tuple(s.NATS_REFUSALS for s in _SERVICES))


def _by_job(selector: str) -> str:
    """The rate of what several services count, by their kind; 0 for those that counted nothing."""
    return f"{total(f'rate({selector}[{WINDOW}])', 'job')} or 0 * {total(up(), 'job')}"


_NOW = (
    number(
        "Oldest report",
        "How long ago the node was heard that is silent for longest. Normal: below 1 s. From 1 s "
        "on its engines count as stale.",
        SECONDS,
        (highest(now(Gateway.OLDEST_REPORT)), "{{region}}"),
        bad_above=1,
    ),
    number(
        "Age of the view",
        "How long ago a gateway heard any node at all. Above a second the bus is silent.",
        SECONDS,
        (highest(now(Gateway.VIEW_AGE)), "{{region}}"),
        bad_above=1,
    ),
    number(
        "Nodes heard",
        "GPU hosts whose reports reach the telemetry service.",
        COUNT,
        (total(now(Telemetry.NODES)), "{{region}}"),
        bad_below=1,
    ),
    number(
        "Telemetry instances",
        "Instances that share the region's nodes, as the one knows that knows fewest.",
        COUNT,
        (f"min by (region) ({now(Telemetry.MEMBERS)})", "{{region}}"),
        bad_below=1,
    ),
    number(
        "Writes that wait",
        "Nodes whose news is not in the shadow cache yet. Lasting: Redis is slow or away.",
        COUNT,
        (total(now(Telemetry.PENDING)), "{{region}}"),
        bad_above=10,
    ),
    number(
        "Redis, 99 %",
        "Time of one pipeline of writes to the shadow cache. Normal: a few ms.",
        SECONDS,
        (quantile(0.99, Telemetry.WRITE_DURATION), "{{region}}"),
        bad_above=0.1,
    ),
)

_REPORTS = (
    graph(
        "Age of reports",
        "Of the node heard last, and of the one silent for longest. Only the second rising: one "
        "node. Both rising: NATS.",
        SECONDS,
        (highest(now(Gateway.OLDEST_REPORT)), "{{region}} oldest"),
        (highest(now(Gateway.VIEW_AGE)), "{{region}} newest"),
    ),
    graph(
        "Reports that agents sent",
        "beat: figures, several a second. delta: a change, at once. full: everything, now and "
        "then or asked for. Many full ones: somebody keeps asking.",
        RATE,
        (counted(NodeAgent.REPORTS, "kind"), "{{region}} {{kind}}"),
        (total(rate(NodeAgent.REPORT_FAILURES)), "{{region}} not taken by the bus"),
    ),
    graph(
        "Reports that telemetry heard",
        "applied is normal. gap: a report before it was lost. stale: an older one came late. "
        "needs-full: asked for everything.",
        RATE,
        (counted(Telemetry.REPORTS, "outcome"), "{{region}} {{outcome}}"),
    ),
    graph(
        "Asked again, forgotten",
        "Requests for a node's full state, and nodes forgotten for their silence, per second.",
        RATE,
        (total(rate(Telemetry.RESYNCS)), "{{region}} asked again"),
        (total(rate(Telemetry.FORGOTTEN)), "{{region}} forgotten"),
    ),
    graph(
        "Nodes and engines",
        "Heard by telemetry, known to the gateway that knows fewest, known to the scheduler that "
        "knows fewest. They should agree.",
        COUNT,
        (total(now(Telemetry.NODES)), "{{region}} nodes at telemetry"),
        (f"min by (region) ({now(Scheduler.NODES)})", "{{region}} nodes at a scheduler"),
        (total(now(Telemetry.ENGINES)), "{{region}} engines at telemetry"),
        (f"min by (region) ({now(Gateway.ENGINES)})", "{{region}} engines at a gateway"),
    ),
    graph(
        "Degraded, by what",
        "Processes that name this in /readyz; none is normal.",
        COUNT,
        (degraded(), "{{region}} {{job}} {{what}}"),
    ),
)

_CACHE = (
    graph(
        "Writes to the shadow cache",
        "Records by how the write ended. away: that part of Redis did not answer; the write is "
        "tried again.",
        RATE,
        (counted(Telemetry.WRITES, "outcome"), "{{region}} {{outcome}}"),
    ),
    graph(
        "Write time",
        "Time of one pipeline of writes to the shadow cache.",
        SECONDS,
        (quantile(0.5, Telemetry.WRITE_DURATION), "{{region}} half"),
        (quantile(0.99, Telemetry.WRITE_DURATION), "{{region}} 99 %"),
    ),
    graph(
        "Pipelines and writes that wait",
        "Pipelines of writes per second, and nodes whose news waits.",
        COUNT,
        (total(observed(Telemetry.WRITE_DURATION)), "{{region}} pipelines a second"),
        (total(now(Telemetry.PENDING)), "{{region}} waiting"),
    ),
)

_BUS = (
    graph(
        "Messages dropped",
        "Messages lost because a process was too slow to take them. Normal: 0. The view is "
        "repaired by itself, later.",
        RATE,
        (_by_job(_DROPPED), "{{region}} {{job}}"),
    ),
    graph(
        "Messages that do not parse",
        "Normal: 0. Others speak another version, or somebody else publishes there.",
        RATE,
        (_by_job(_INVALID), "{{region}} {{job}}"),
    ),
    graph(
        "Refused by NATS",
        "What a process published or subscribed to without NATS's permission. Normal: 0. Its "
        "user's rights do not fit its name or region.",
        RATE,
        (_by_job(_REFUSED), "{{region}} {{job}}"),
    ),
)

BOARD = Board(
    uid="axiom-telemetry",
    title="Axiom: telemetry health",
    about="Is what gateways and schedulers decide on fresh, and does the bus carry it.",
    rows=(("Now", _NOW), ("Reports", _REPORTS), ("Shadow cache", _CACHE), ("Bus", _BUS)),
)
