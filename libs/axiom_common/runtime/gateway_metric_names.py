"""Every metric of the gateway; as in `metric_names`."""

from __future__ import annotations

from axiom_common.model.decision import LoadKind
from axiom_common.model.ensure import EnsureOutcome
from axiom_common.model.prefix import Untold
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import BUILT_IN
from axiom_common.policy.registry import ENGINE_FILTERS
from axiom_common.runtime.metric_labels import REASON, degraded, label, nats_refusals
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
    NO_ENGINE_READY,
    ORDERS_STALE,
    REDIS_AWAY,
    REGISTRY_AWAY,
    REGISTRY_RESET,
    SCHEDULER_AWAY,
)
from axiom_common.wire.schemas import FactKind


class Gateway:
    """Of the gateway."""

    _OF = Service.GATEWAY
    _SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
    _TEXT_SECONDS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2)
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
        (PROFILE, label("outcome", LoadKind, "no-winner")),
    )
    QUARANTINES = CounterName(
        _OF,
        "quarantines_total",
        "Decisions that passed over an engine that would have to evict an adapter in use.",
    )
    REFUSALS = CounterName(_OF, "refusals_total", "Requests refused.", (REASON,))
    ENSURES = CounterName(
        _OF,
        "ensures_total",
        "Loads asked of agents.",
        (label("outcome", EnsureOutcome, "unanswered"),),
    )
    TRIES = CounterName(_OF, "tries_total", "Tries at engines, by how they ended.", (VERDICT,))
    RETRIES = CounterName(_OF, "retries_total", "Failed tries that the client saw nothing of.")
    DROPPED = CounterName(_OF, "dropped_messages_total", "Bus messages lost to full queues.")
    INVALID = CounterName(_OF, "invalid_messages_total", "Bus messages that do not parse.")
    NATS_REFUSALS = nats_refusals(_OF)
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
    DEGRADED = degraded(
        _OF,
        NATS_AWAY,
        REDIS_AWAY,
        REGISTRY_AWAY,
        REGISTRY_RESET,
        ORDERS_STALE,
        SCHEDULER_AWAY,
        LIVENESS_FROZEN,
        "stale-telemetry",
        NO_ENGINE_READY,
        "draining",
        "tokenizer-differs",
        "tokenizer-refused",
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
    PROMPT_TEXTS = CounterName(
        _OF,
        "prompt_texts_total",
        "Requests of which the text of the prompt is known (`told`), or why it is not.",
        (label("outcome", Untold, "told"),),
    )
    PROMPT_TEXT = HistogramName(
        _OF, "prompt_text_seconds", "Time to make the text of a prompt.", buckets=_TEXT_SECONDS
    )
    MATCHED_TOKENS = CounterName(
        _OF,
        "matched_tokens_total",
        "Prompt tokens that decisions took for held, of answers whose engine told of cached ones.",
    )
    CACHED_TOKENS = CounterName(
        _OF, "cached_tokens_total", "Prompt tokens that the engines of these answers had cached."
    )
    OVERMATCHED_TOKENS = CounterName(
        _OF,
        "overmatched_tokens_total",
        "Tokens by which a decision took more for held than its engine had cached.",
    )
    PREFIX_ENTRIES = GaugeName(
        _OF, "prefix_entries_count", "Chunks of prompts that some engine is known to hold."
    )
    PREFIX_PREDICTED = GaugeName(
        _OF, "prefix_predicted_count", "Chunks on engines, by prediction from own requests."
    )
    PREFIX_DROPPED = CounterName(
        _OF, "prefix_dropped_total", "Chunks forgotten because there were too many."
    )
    FACTS = CounterName(
        _OF, "facts_heard_total", "Messages of facts from agents.", (label("kind", FactKind),)
    )
    FACTS_LOST = CounterName(
        _OF, "facts_lost_total", "Times that facts of an engine were found to be missing."
    )
    SNAPSHOTS_ASKED = CounterName(
        _OF, "snapshots_asked_total", "Snapshots of an engine's facts asked of agents."
    )
    FACTS_LACKING = GaugeName(_OF, "facts_lacking_count", "Engines of which facts are missing now.")
    FACTS_ENGINES = GaugeName(
        _OF, "facts_engines_count", "Engines whose agents tell what they hold."
    )
