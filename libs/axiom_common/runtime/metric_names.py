"""Every metric of every service: its name, what it tells, its unit and the bound of its labels.

A name is `axiom_<service>_<what>_<unit>`; `total` is the unit of counters. docs/metrics.md is made
from these files. No label holds a node, an adapter or a client's words without a bound.
"""

from __future__ import annotations

from axiom_common.model.adapter import ResidencySource
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.prefix import FactsState, Uncredited
from axiom_common.model.reason import Reason
from axiom_common.policy.scorers.thermal_safety import SLOWDOWN_BY_BIT
from axiom_common.runtime.gateway_metric_names import Gateway
from axiom_common.runtime.metric_labels import ENGINE, REASON, degraded, label, nats_refusals
from axiom_common.runtime.metrics import (
    CounterName,
    GaugeName,
    HistogramName,
    Label,
    Service,
)
from axiom_common.runtime.ops import (
    LIVENESS_FROZEN,
    NATS_AWAY,
    REDIS_AWAY,
    REGISTRY_AWAY,
    REGISTRY_RESET,
)
from axiom_common.state.region_view import Outcome
from axiom_common.wire.schemas import FactKind, ReportKind
from axiom_common.wire.views import THROTTLES

__all__ = ["SERVICES", "AnyMetric", "Gateway", "NodeAgent", "Scheduler", "Telemetry", "metrics_of"]


class NodeAgent:
    """Of the node agent. What is told of an engine goes when the engine leaves the settings."""

    _OF = Service.NODE_AGENT
    _LOAD_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0)
    _POLL_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

    POLL_DURATION = HistogramName(
        _OF,
        "poll_duration_seconds",
        "Time of one poll of an engine.",
        (ENGINE,),
        buckets=_POLL_SECONDS,
    )
    POLL_FAILURES = CounterName(
        _OF, "poll_failures_total", "Polls that an engine did not answer.", (ENGINE,)
    )
    RESTARTS = CounterName(
        _OF, "engine_restarts_total", "New processes seen of an engine.", (ENGINE,)
    )
    ENGINE_READY = GaugeName(
        _OF, "engine_ready_ratio", "1 when the engine serves, else 0.", (ENGINE,)
    )
    ENGINE_RUNNING = GaugeName(
        _OF, "engine_running_count", "Requests that an engine runs.", (ENGINE,)
    )
    ENGINE_WAITING = GaugeName(
        _OF, "engine_waiting_count", "Requests that wait in an engine's own queue.", (ENGINE,)
    )
    KV_USAGE = GaugeName(
        _OF, "engine_kv_usage_ratio", "Share of an engine's KV blocks that is taken.", (ENGINE,)
    )
    SLOTS = GaugeName(_OF, "engine_slots_count", "An engine's slots for adapters.", (ENGINE,))
    HELD = GaugeName(
        _OF,
        "engine_adapters_count",
        "Adapters that an engine holds; those in HBM lie in its slots.",
        (ENGINE, Label("place", ("hbm", "host"))),
    )
    TEMPERATURE = GaugeName(
        _OF, "engine_temperature_celsius", "The hottest of an engine's GPUs.", (ENGINE,)
    )
    THROTTLED = GaugeName(
        _OF,
        "engine_throttled_ratio",
        "1 while this has held the clocks of one of an engine's GPUs down for a beat, else 0.",
        (ENGINE, Label("reason", tuple(THROTTLES[bit] for bit in SLOWDOWN_BY_BIT))),
    )
    POWER = GaugeName(_OF, "engine_power_watts", "Power of an engine's GPUs.", (ENGINE,))
    LOST_GPUS = GaugeName(_OF, "gpus_lost_count", "GPUs that fell off the bus or were unplugged.")
    SOURCE_SWITCHES = CounterName(
        _OF,
        "residency_source_switches_total",
        "Times that this source took over saying what an engine holds.",
        (ENGINE, label("source", ResidencySource)),
    )
    LOAD_DURATION = HistogramName(
        _OF,
        "load_duration_seconds",
        "Time that an engine took for a load that succeeded.",
        (ENGINE,),
        buckets=_LOAD_SECONDS,
    )
    LOAD_FAILURES = CounterName(_OF, "load_failures_total", "Loads that failed.", (ENGINE, REASON))
    LOADS_WAITING = GaugeName(
        _OF, "loads_waiting_count", "Loads that wait for their turn at an engine.", (ENGINE,)
    )
    UNLOADS = CounterName(_OF, "unloads_total", "Names that an engine forgot by plan.", (ENGINE,))
    UNLOAD_FAILURES = CounterName(_OF, "unload_failures_total", "Unloads that failed.", (ENGINE,))
    FACTS = GaugeName(
        _OF,
        "facts_engines_count",
        "Engines with a tokenizer, by how it stands with what is told of their KV caches.",
        (label("state", FactsState),),
    )
    KV_BLOCKS = GaugeName(
        _OF, "kv_blocks_count", "Blocks of an engine's KV cache that are mirrored.", (ENGINE,)
    )
    KV_UNCREDITED = CounterName(
        _OF,
        "kv_blocks_uncredited_total",
        "Blocks that engines stored and of which nothing is told.",
        (label("reason", Uncredited),),
    )
    KV_LOSSES = CounterName(
        _OF,
        "kv_losses_total",
        "Times that all that was known of an engine's KV cache was void.",
        (Label("reason", ("restarted", "gap", "malformed")),),
    )
    KV_MALFORMED = CounterName(
        _OF, "kv_messages_malformed_total", "KV event messages that did not parse."
    )
    FACT_MESSAGES = CounterName(
        _OF,
        "fact_messages_total",
        "Messages of facts handed to the bus.",
        (label("kind", FactKind),),
    )
    ENSURES = CounterName(
        _OF,
        "ensures_total",
        "Answers to gateways; the reason is empty where nothing was refused.",
        (label("outcome", EnsureOutcome), label("reason", Reason, "")),
    )
    REPORTS = CounterName(
        _OF, "reports_total", "Reports handed to the bus.", (label("kind", ReportKind, "beat"),)
    )
    REPORTS_REDUCED = CounterName(
        _OF,
        "reports_reduced_total",
        "Reports with something left out, to be small enough to send.",
        (Label("reduction", ("1", "2", "3")),),
    )
    REPORT_FAILURES = CounterName(
        _OF, "report_failures_total", "Reports that the bus did not take."
    )
    INVALID = CounterName(
        _OF,
        "invalid_messages_total",
        "Messages that did not parse.",
        (
            Label(
                "kind", ("EnsureRequest", "ResyncRequest", "InFlightReport", "FactRequest", "plan")
            ),
        ),
    )
    DROPPED = CounterName(
        _OF, "dropped_messages_total", "Messages lost because this process was too slow."
    )
    NATS_REFUSALS = nats_refusals(_OF)
    PLAN_REFUSALS = CounterName(_OF, "plan_refusals_total", "Plans refused.", (REASON,))
    RELOADS = CounterName(
        _OF,
        "settings_reloads_total",
        "Changes of the settings file.",
        (Label("outcome", ("taken", "refused")),),
    )
    DEGRADED = degraded(
        _OF,
        NATS_AWAY,
        REGISTRY_AWAY,
        "settings-invalid",
        "plan-refused",
        "engine-starting",
        "engine-draining",
        "engine-unreachable",
        "tokenizer-refused",
        "no-events",
        "several-ranks",
        "hybrid-cache",
    )


class Scheduler:
    """Of the scheduler."""

    _OF = Service.SCHEDULER
    _SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

    LEADERS = GaugeName(
        _OF, "leaders_count", "1 while this process leads, else 0; a region's sum should be 1."
    )
    NODES = GaugeName(_OF, "nodes_count", "Nodes known.")
    ADAPTERS = GaugeName(_OF, "adapters_count", "Adapters declared.")
    UNPLACED = GaugeName(_OF, "adapters_unplaced_count", "Adapters without a home.", (REASON,))
    UNACKNOWLEDGED = GaugeName(
        _OF, "plans_unacknowledged_count", "Nodes that do not carry out their plan yet."
    )
    REFUSED = GaugeName(_OF, "plans_refused_count", "Nodes that refuse their plan.", (REASON,))
    PLANS_WRITTEN = CounterName(_OF, "plans_written_total", "Plans written.")
    INVALID = CounterName(
        _OF,
        "invalid_messages_total",
        "Messages and records that do not parse.",
        (Label("kind", ("report", "record")),),
    )
    DROPPED = CounterName(
        _OF, "dropped_messages_total", "Messages lost because this process was too slow."
    )
    NATS_REFUSALS = nats_refusals(_OF)
    RECONCILES = CounterName(
        _OF,
        "reconciles_total",
        "Placements, by how they ended.",
        (Label("outcome", ("done", "conflict", "fenced", "lost", "unavailable")),),
    )
    RECONCILE_DURATION = HistogramName(
        _OF,
        "reconcile_duration_seconds",
        "Time of one placement with its writes.",
        buckets=_SECONDS,
    )
    DEGRADED = degraded(_OF, NATS_AWAY, REGISTRY_AWAY, REGISTRY_RESET, REDIS_AWAY, LIVENESS_FROZEN)


class Telemetry:
    """Of the telemetry service. No label holds a node: a region may have thousands."""

    _OF = Service.TELEMETRY
    _WRITE_SECONDS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

    REPORTS = CounterName(
        _OF, "reports_total", "Reports heard of own nodes.", (label("outcome", Outcome),)
    )
    OTHERS = CounterName(_OF, "others_reports_total", "Reports of nodes that other instances own.")
    MEMBERS = GaugeName(
        _OF,
        "members_count",
        "Telemetry instances that share the region's nodes, this one included.",
    )
    WRITES = CounterName(
        _OF,
        "writes_total",
        "Records sent to the shadow cache.",
        (Label("outcome", ("stored", "not-newer", "away")),),
    )
    WRITE_DURATION = HistogramName(
        _OF,
        "write_duration_seconds",
        "Time of one pipeline of writes to the shadow cache.",
        buckets=_WRITE_SECONDS,
    )
    RESYNCS = CounterName(_OF, "resyncs_total", "Requests for a node's full state.")
    FORGOTTEN = CounterName(
        _OF, "nodes_forgotten_total", "Nodes that fell silent and were forgotten."
    )
    NODES = GaugeName(_OF, "nodes_count", "Nodes that are heard.")
    ENGINES = GaugeName(_OF, "engines_count", "Engines on them.")
    PENDING = GaugeName(
        _OF, "pending_writes_count", "Nodes of which more than figures is not written yet."
    )
    INVALID = CounterName(_OF, "invalid_messages_total", "Messages that do not parse.")
    DROPPED = CounterName(
        _OF, "dropped_messages_total", "Messages lost because this process was too slow."
    )
    NATS_REFUSALS = nats_refusals(_OF)
    DEGRADED = degraded(_OF, NATS_AWAY, REDIS_AWAY, REGISTRY_AWAY, LIVENESS_FROZEN)


SERVICES = (Gateway, NodeAgent, Scheduler, Telemetry)
AnyMetric = CounterName | GaugeName | HistogramName


def metrics_of(service: type) -> tuple[AnyMetric, ...]:
    """All that one of `SERVICES` declares, in the order of this file."""
    return tuple(value for value in vars(service).values() if isinstance(value, AnyMetric))
