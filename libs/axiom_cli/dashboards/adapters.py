"""Adapters: where they are, how often they move, and what keeps one from its place."""

from __future__ import annotations

from axiom_cli.dashboards.layout import COUNT, RATE, SECONDS, SHARE, Board, graph, number
from axiom_cli.dashboards.queries import (
    ENGINE,
    counted,
    highest,
    now,
    observed,
    per_engine,
    quantile,
    rate,
    slots_taken,
    total,
)
from axiom_common.runtime.metric_names import Gateway, NodeAgent, Scheduler

LOADS_A_REQUEST = 'region:axiom_adapter_loads_per_request:rate15m{region=~"$region"}'
"""deploy/prometheus/rules/recording.yml."""

_NOW = (
    number(
        "Adapters declared",
        "Adapters in the desired state, as the schedulers know it.",
        COUNT,
        (highest(now(Scheduler.ADAPTERS)), "{{region}}"),
    ),
    number(
        "Without a home",
        "Adapters that the scheduler finds no engine for. They load on demand only. Normal: 0.",
        COUNT,
        (f"{total(now(Scheduler.UNPLACED))} or 0 * {total(now(Scheduler.LEADERS))}", "{{region}}"),
        bad_above=1,
    ),
    number(
        "Plans not acknowledged",
        "Nodes that do not carry out their plan yet. Normal: 0 but for seconds after a change.",
        COUNT,
        (highest(now(Scheduler.UNACKNOWLEDGED)), "{{region}}"),
        bad_above=1,
    ),
    number(
        "Slots taken",
        "Share of all adapter slots in HBM that hold an adapter. Full is normal: idle adapters "
        "stay until their slot is needed.",
        SHARE,
        (slots_taken(), "{{region}}"),
    ),
    number(
        "Loads a request",
        "Adapter loads for each request, over 15 minutes. Above 0.3 the fleet thrashes: adapters "
        "push each other out.",
        COUNT,
        (LOADS_A_REQUEST, "{{region}}"),
        bad_above=0.3,
    ),
    number(
        "Loads that wait",
        "Loads that wait for their turn at an engine: engines take one at a time.",
        COUNT,
        (per_engine(total(now(NodeAgent.LOADS_WAITING, ENGINE), "engine")), "{{engine}}"),
        bad_above=8,
    ),
)

_MOVING = (
    graph(
        "Decisions by the load that they need",
        "none: the adapter is in a slot. join: it is on its way. from-host: from the engine's host "
        "RAM. cold: from storage. no-winner: nobody could take the request then. "
        "Many cold ones mean too few slots or too many adapters in use.",
        RATE,
        (total(rate(Gateway.DECISIONS), "outcome"), "{{region}} {{outcome}}"),
    ),
    graph(
        "Loads by engine",
        "Loads that succeeded, per second. One engine far above the others is thrashing alone.",
        RATE,
        (per_engine(total(observed(NodeAgent.LOAD_DURATION, ENGINE), "engine")), "{{engine}}"),
    ),
    graph(
        "Load time",
        "How long engines took for a load. Rises with slow storage and with busy engines.",
        SECONDS,
        (quantile(0.5, NodeAgent.LOAD_DURATION, matchers=(ENGINE,)), "{{region}} half"),
        (quantile(0.95, NodeAgent.LOAD_DURATION, matchers=(ENGINE,)), "{{region}} 95 %"),
    ),
    graph(
        "Failed loads by engine and reason",
        "Loads that an engine or its agent gave up, per second. Normal: 0.",
        RATE,
        (
            per_engine(total(rate(NodeAgent.LOAD_FAILURES, ENGINE), "engine", "reason"), "reason"),
            "{{engine}} {{reason}}",
        ),
    ),
    graph(
        "Loads asked of agents",
        "What agents answered to gateways that asked for an adapter. unanswered: nobody did in "
        "time.",
        RATE,
        (counted(Gateway.ENSURES, "outcome"), "{{region}} {{outcome}}"),
    ),
    graph(
        "Unloads",
        "Names that engines forgot by plan, and unloads that failed, per second.",
        RATE,
        (per_engine(total(rate(NodeAgent.UNLOADS, ENGINE), "engine")), "{{engine}} done"),
        (per_engine(total(rate(NodeAgent.UNLOAD_FAILURES, ENGINE), "engine")), "{{engine}} failed"),
    ),
)

_PLACES = (
    graph(
        "Adapters held",
        "Copies in HBM slots, and further ones in host RAM.",
        COUNT,
        (total(now(NodeAgent.HELD, ENGINE), "engine", "place"), "{{engine}} {{place}}"),
    ),
    graph(
        "Plans: written and not acknowledged",
        "Plans that schedulers wrote, per minute, and nodes that do not carry theirs out yet. "
        "Many plans without a change of adapters or nodes: the placement does not settle.",
        COUNT,
        (f"60 * {total(rate(Scheduler.PLANS_WRITTEN))}", "{{region}} written a minute"),
        (highest(now(Scheduler.UNACKNOWLEDGED)), "{{region}} not acknowledged"),
    ),
    graph(
        "Placements by how they ended",
        "Runs of the placement. done is normal; conflict and fenced once, when another scheduler "
        "takes over; unavailable: NATS's key-value store is away.",
        RATE,
        (counted(Scheduler.RECONCILES, "outcome"), "{{region}} {{outcome}}"),
    ),
)

BOARD = Board(
    uid="axiom-adapters",
    title="Axiom: adapters",
    about="Where adapters are, how often they move, and what keeps one from its place.",
    rows=(("Now", _NOW), ("Loads", _MOVING), ("Placement", _PLACES)),
    by_engine=True,
)
