"""The first look: does the fleet serve, how well, and which part of it does not."""

from __future__ import annotations

from axiom_cli.dashboards.layout import (
    BYTES,
    COUNT,
    REQUESTS,
    SECONDS,
    SHARE,
    TIMES,
    Board,
    graph,
    number,
)
from axiom_cli.dashboards.queries import (
    JOBS,
    SERVED,
    WINDOW,
    degraded,
    firing,
    highest,
    now,
    of_processes,
    quantile,
    rate,
    total,
    up,
)
from axiom_common.runtime.metric_names import Gateway, NodeAgent, Scheduler, Telemetry

BURN = 'region:axiom_requests_bad:ratio_rate{}{{region=~"$region"}} / 0.001'
"""How many times too fast the budget of 0.1 % goes; deploy/prometheus/rules/recording.yml."""

_NOW = (
    number(
        "Processes away",
        "Processes of Axiom that do not answer Prometheus. Normal: 0. "
        "The graph below says which kind.",
        COUNT,
        (f"count by (region) ({up()}) - {total(up())}", "{{region}}"),
        bad_above=1,
    ),
    number(
        "Engines ready",
        "Engines that serve, by their agents' last poll. Compare with how many there should be.",
        COUNT,
        (total(now(NodeAgent.ENGINE_READY)), "{{region}}"),
        bad_below=1,
    ),
    number(
        "Nodes heard",
        "GPU hosts whose reports reach the telemetry service. Falls when agents or NATS go.",
        COUNT,
        (total(now(Telemetry.NODES)), "{{region}}"),
        bad_below=1,
    ),
    number(
        "Adapters declared",
        "Adapters in the desired state, as the schedulers know it.",
        COUNT,
        (highest(now(Scheduler.ADAPTERS)), "{{region}}"),
    ),
    number(
        "Leading schedulers",
        "Schedulers that lead. Normal: exactly 1 a region. With 0 the last plans stand.",
        COUNT,
        (total(now(Scheduler.LEADERS)), "{{region}}"),
        bad_below=1,
    ),
    number(
        "Budget burn, 1 h",
        "How many times faster than allowed requests fail (allowed: 0.1 %). Above 14.4 the month's "
        "budget is gone in two days; somebody is paged.",
        TIMES,
        (BURN.format("1h"), "{{region}}"),
        bad_above=14.4,
    ),
)

_SERVING = (
    graph(
        "Requests by status",
        "Requests that ended, per second. 429: no room, after a hold. 499: the client had gone. "
        "5xx count against the error budget.",
        REQUESTS,
        (total(rate(Gateway.REQUESTS, SERVED), "status"), "{{region}} {{status}}"),
    ),
    graph(
        "Time to the first byte",
        "From a request's arrival to the first byte of its answer: hold, load and prefill are in "
        "it. Rises with holds, adapter loads and saturated engines.",
        SECONDS,
        (quantile(0.5, Gateway.FIRST_BYTE), "{{region}} half"),
        (quantile(0.95, Gateway.FIRST_BYTE), "{{region}} 95 %"),
        (quantile(0.99, Gateway.FIRST_BYTE), "{{region}} 99 %"),
    ),
    graph(
        "Requests under way and held",
        "Requests in gateways, from head to end of answer; held ones wait there for room. "
        "Normal: few are held, and for short.",
        COUNT,
        (total(now(Gateway.UNDER_WAY)), "{{region}} under way"),
        (total(now(Gateway.HELD)), "{{region}} held"),
    ),
    graph(
        "Error budget burn",
        "The share of requests that failed (5xx or a broken stream), over 0.1 %, which is what a "
        "month may have. 1: the month's budget lasts exactly a month.",
        TIMES,
        (BURN.format("5m"), "{{region}} 5 min"),
        (BURN.format("1h"), "{{region}} 1 h"),
        (BURN.format("6h"), "{{region}} 6 h"),
    ),
    graph(
        "Engines left out, by reason",
        "Engines that get no requests whatever is asked for, as the gateway that leaves out most "
        "sees it. Normal: 0.",
        COUNT,
        (highest(now(Gateway.LEFT_OUT), "reason"), "{{region}} {{reason}}"),
    ),
    graph(
        "Degraded, by what",
        "Processes that name this in /readyz; none is normal. Gateways go on serving all the same; "
        "ARCHITECTURE.md says what goes on and what does not.",
        COUNT,
        (degraded(), "{{region}} {{job}} {{what}}"),
    ),
)

_PROCESSES = (
    graph(
        "Alerts that fire",
        "Alerts of deploy/prometheus/rules by name; none is normal. Each is in the runbook.",
        COUNT,
        (firing(), "{{region}} {{alertname}}"),
        width=6,
    ),
    graph(
        "Processes that answer",
        "Processes of each kind that answer Prometheus.",
        COUNT,
        (f"sum by (region, job) ({up(*JOBS.split('|'))})", "{{region}} {{job}}"),
        width=6,
    ),
    graph(
        "CPU by process",
        "Share of one core that each process takes. A gateway near 100 % delays every request.",
        SHARE,
        (
            f"rate({of_processes('process_cpu_seconds_total')}[{WINDOW}])",
            "{{job}} {{instance}}",
        ),
        width=6,
    ),
    graph(
        "Memory by process",
        "Resident memory. What grows for days without traffic growing is a leak.",
        BYTES,
        (of_processes("process_resident_memory_bytes"), "{{job}} {{instance}}"),
        width=6,
    ),
)

BOARD = Board(
    uid="axiom-fleet",
    title="Axiom: fleet",
    about="Does the fleet serve, how well, and which part of it does not.",
    rows=(("Now", _NOW), ("Serving", _SERVING), ("Alerts and processes", _PROCESSES)),
)
