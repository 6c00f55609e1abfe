"""Every metric of every service: its name, what it tells, its unit and the bound of its labels.

A name is `axiom_<service>_<what>_<unit>`; `total` is the unit of counters. docs/metrics.md is made
from this file. No label holds a node, an adapter or a client's words without a bound.
"""

from __future__ import annotations

from enum import StrEnum

from axiom_common.model.adapter import ResidencySource
from axiom_common.model.decision import LoadKind
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import BUILT_IN
from axiom_common.policy.registry import ENGINE_FILTERS
from axiom_common.policy.scorers.thermal_safety import SLOWDOWN_BY_BIT
from axiom_common.runtime.metrics import (
    OTHER,
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
from axiom_common.wire.bounds import ENGINES_MAX
from axiom_common.wire.schemas import ReportKind
from axiom_common.wire.views import THROTTLES


def _label(name: str, values: type[StrEnum], *more: str) -> Label:
    return Label(name, (*(value.value for value in values), *more))


def _nats_refusals(service: Service) -> CounterName:
    about = "What this process published or subscribed to without NATS's permission."
    return CounterName(service, "nats_refusals_total", about)


def _degraded(service: Service, *what: str) -> GaugeName:
    about = "1 while `/readyz` names it as degraded, else 0."
    return GaugeName(service, "degraded_ratio", about, (Label("what", (*what, OTHER)),))


_ENGINE = Label("engine", values_max=ENGINES_MAX, bound="engines of one node's settings")
_REASON = _label("reason", Reason)


class Gateway:
    """Of the gateway."""

    _OF = Service.GATEWAY
    _SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
    _DECISION_SECONDS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2)

    STATUS = Label("status", values_max=32, bound=f"from engines too; capped with `{OTHER}`")
    PROFILE = Label("profile", (*BUILT_IN, OTHER))
    ENDPOINT = Label(
        "endpoint",
        ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", OTHER),
    )
    LEFT_OUT_BECAUSE = Label("reason", (*ENGINE_FILTERS, Reason.STALE_TELEMETRY, Reason.FLAPPING))
    VERDICT = Label("verdict", ("served", "rejected", "forgotten", "failed", "broken", "withheld"))

    REQUESTS = CounterName(
        _OF, "requests_total", "Requests answered; 499: its client had gone.", (ENDPOINT, STATUS)
    )
    DECISIONS = CounterName(
        _OF,
        "decisions_total",
        "Decisions, by the load that the winner needs.",
        (PROFILE, _label("outcome", LoadKind, "no-winner")),
    )
    QUARANTINES = CounterName(
        _OF,
        "quarantines_total",
        "Decisions that passed over an engine that would have to evict an adapter in use.",
    )
    REFUSALS = CounterName(_OF, "refusals_total", "Requests refused.", (_REASON,))
    ENSURES = CounterName(
        _OF,
        "ensures_total",
        "Loads asked of agents.",
        (_label("outcome", EnsureOutcome, "unanswered"),),
    )
    TRIES = CounterName(_OF, "tries_total", "Tries at engines, by how they ended.", (VERDICT,))
    RETRIES = CounterName(_OF, "retries_total", "Failed tries that the client saw nothing of.")
    DROPPED = CounterName(_OF, "dropped_messages_total", "Bus messages lost to full queues.")
    INVALID = CounterName(_OF, "invalid_messages_total", "Bus messages that do not parse.")
    NATS_REFUSALS = _nats_refusals(_OF)
    FIRST_BYTE = HistogramName(
        _OF, "first_byte_seconds", "Arrival to first answer byte.", buckets=_SECONDS
    )
    HOLD = HistogramName(_OF, "hold_seconds", "Time that held requests waited.", buckets=_SECONDS)
    DECISION = HistogramName(
        _OF, "decision_seconds", "Time of one decision.", buckets=_DECISION_SECONDS
    )
    UNDER_WAY = GaugeName(_OF, "requests_under_way_count", "Requests from head to end of answer.")
    HELD = GaugeName(_OF, "held_count", "Requests waiting for room.")
    ENGINES = GaugeName(_OF, "engines_count", "Engines in the view.")
    LEFT_OUT = GaugeName(
        _OF,
        "engines_left_out_count",
        "Engines that get no requests, or the last ones, whatever is asked for.",
        (LEFT_OUT_BECAUSE,),
    )
    PEERS = GaugeName(_OF, "peers_count", "Other gateways heard.")
    VIEW_AGE = GaugeName(
        _OF,
        "view_age_seconds",
        "Time since the last report of any node; NaN before the first.",
    )
    OLDEST_REPORT = GaugeName(
        _OF,
        "oldest_report_seconds",
        "Time since the last report of the node that is silent for longest; NaN without any.",
    )
    DEGRADED = _degraded(
        _OF,
        NATS_AWAY,
        REDIS_AWAY,
        REGISTRY_AWAY,
        REGISTRY_RESET,
        LIVENESS_FROZEN,
        "stale-telemetry",
        "no-engine-ready",
        "draining",
    )
    DECISIONS_TOLD = CounterName(
        _OF, "decisions_told_total", "Requests whose decisions went to the region's stream."
    )
    DECISIONS_SAMPLED_OUT = CounterName(
        _OF, "decisions_sampled_out_total", "Requests that its sample left out, under load."
    )
    DECISIONS_DROPPED = CounterName(
        _OF, "decisions_dropped_total", "Requests lost to it: a full queue, or NATS away."
    )
    SPANS = CounterName(_OF, "spans_total", "Spans that ended, of sampled requests.")
    SPANS_SENT = CounterName(_OF, "spans_sent_total", "Spans that the collector of traces took.")
    SPANS_NOT_SENT = CounterName(
        _OF, "spans_not_sent_total", "Spans that it did not take; a full queue loses more."
    )


class NodeAgent:
    """Of the node agent. What is told of an engine goes when the engine leaves the settings."""

    _OF = Service.NODE_AGENT
    _LOAD_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0)
    _POLL_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

    POLL_DURATION = HistogramName(
        _OF,
        "poll_duration_seconds",
        "Time of one poll of an engine.",
        (_ENGINE,),
        buckets=_POLL_SECONDS,
    )
    POLL_FAILURES = CounterName(
        _OF, "poll_failures_total", "Polls that an engine did not answer.", (_ENGINE,)
    )
    RESTARTS = CounterName(
        _OF, "engine_restarts_total", "New processes seen of an engine.", (_ENGINE,)
    )
    ENGINE_READY = GaugeName(
        _OF, "engine_ready_ratio", "1 when the engine serves, else 0.", (_ENGINE,)
    )
    ENGINE_RUNNING = GaugeName(
        _OF, "engine_running_count", "Requests that an engine runs.", (_ENGINE,)
    )
    ENGINE_WAITING = GaugeName(
        _OF, "engine_waiting_count", "Requests that wait in an engine's own queue.", (_ENGINE,)
    )
    KV_USAGE = GaugeName(
        _OF, "engine_kv_usage_ratio", "Share of an engine's KV blocks that is taken.", (_ENGINE,)
    )
    SLOTS = GaugeName(_OF, "engine_slots_count", "An engine's slots for adapters.", (_ENGINE,))
    HELD = GaugeName(
        _OF,
        "engine_adapters_count",
        "Adapters that an engine holds; those in HBM lie in its slots.",
        (_ENGINE, Label("place", ("hbm", "host"))),
    )
    TEMPERATURE = GaugeName(
        _OF, "engine_temperature_celsius", "The hottest of an engine's GPUs.", (_ENGINE,)
    )
    THROTTLED = GaugeName(
        _OF,
        "engine_throttled_ratio",
        "1 while this has held the clocks of one of an engine's GPUs down for a beat, else 0.",
        (_ENGINE, Label("reason", tuple(THROTTLES[bit] for bit in SLOWDOWN_BY_BIT))),
    )
    POWER = GaugeName(_OF, "engine_power_watts", "Power of an engine's GPUs.", (_ENGINE,))
    LOST_GPUS = GaugeName(_OF, "gpus_lost_count", "GPUs that fell off the bus or were unplugged.")
    SOURCE_SWITCHES = CounterName(
        _OF,
        "residency_source_switches_total",
        "Times that this source took over saying what an engine holds.",
        (_ENGINE, _label("source", ResidencySource)),
    )
    LOAD_DURATION = HistogramName(
        _OF,
        "load_duration_seconds",
        "Time that an engine took for a load that succeeded.",
        (_ENGINE,),
        buckets=_LOAD_SECONDS,
    )
    LOAD_FAILURES = CounterName(
        _OF, "load_failures_total", "Loads that failed.", (_ENGINE, _REASON)
    )
    LOADS_WAITING = GaugeName(
        _OF, "loads_waiting_count", "Loads that wait for their turn at an engine.", (_ENGINE,)
    )
    UNLOADS = CounterName(_OF, "unloads_total", "Names that an engine forgot by plan.", (_ENGINE,))
    UNLOAD_FAILURES = CounterName(_OF, "unload_failures_total", "Unloads that failed.", (_ENGINE,))
    ENSURES = CounterName(
        _OF,
        "ensures_total",
        "Answers to gateways; the reason is empty where nothing was refused.",
        (_label("outcome", EnsureOutcome), _label("reason", Reason, "")),
    )
    REPORTS = CounterName(
        _OF, "reports_total", "Reports handed to the bus.", (_label("kind", ReportKind, "beat"),)
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
        (Label("kind", ("EnsureRequest", "ResyncRequest", "InFlightReport", "plan")),),
    )
    DROPPED = CounterName(
        _OF, "dropped_messages_total", "Messages lost because this process was too slow."
    )
    NATS_REFUSALS = _nats_refusals(_OF)
    PLAN_REFUSALS = CounterName(_OF, "plan_refusals_total", "Plans refused.", (_REASON,))
    RELOADS = CounterName(
        _OF,
        "settings_reloads_total",
        "Changes of the settings file.",
        (Label("outcome", ("taken", "refused")),),
    )
    DEGRADED = _degraded(
        _OF,
        NATS_AWAY,
        REGISTRY_AWAY,
        "settings-invalid",
        "plan-refused",
        "engine-starting",
        "engine-draining",
        "engine-unreachable",
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
    UNPLACED = GaugeName(_OF, "adapters_unplaced_count", "Adapters without a home.", (_REASON,))
    UNACKNOWLEDGED = GaugeName(
        _OF, "plans_unacknowledged_count", "Nodes that do not carry out their plan yet."
    )
    REFUSED = GaugeName(_OF, "plans_refused_count", "Nodes that refuse their plan.", (_REASON,))
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
    NATS_REFUSALS = _nats_refusals(_OF)
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
    DEGRADED = _degraded(_OF, NATS_AWAY, REGISTRY_AWAY, REGISTRY_RESET, REDIS_AWAY, LIVENESS_FROZEN)


class Telemetry:
    """Of the telemetry service. No label holds a node: a region may have thousands."""

    _OF = Service.TELEMETRY
    _WRITE_SECONDS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

    REPORTS = CounterName(
        _OF, "reports_total", "Reports heard of own nodes.", (_label("outcome", Outcome),)
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
    NATS_REFUSALS = _nats_refusals(_OF)
    DEGRADED = _degraded(_OF, NATS_AWAY, REDIS_AWAY, REGISTRY_AWAY, LIVENESS_FROZEN)


SERVICES = (Gateway, NodeAgent, Scheduler, Telemetry)
AnyMetric = CounterName | GaugeName | HistogramName


def metrics_of(service: type) -> tuple[AnyMetric, ...]:
    """All that one of `SERVICES` declares, in the order of this file."""
    return tuple(value for value in vars(service).values() if isinstance(value, AnyMetric))
