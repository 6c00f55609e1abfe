"""Decisions: how they end, what they cost, what waits, and what is told of them."""

from __future__ import annotations

from axiom_cli.dashboards.layout import COUNT, RATE, SECONDS, SHARE, Board, graph, number
from axiom_cli.dashboards.queries import counted, highest, now, quantile, rate, total
from axiom_common.runtime.metric_names import Gateway

_DECISIONS = total(rate(Gateway.DECISIONS))
_NO_ROOM = 'reason=~"all-saturated|all-quarantined"'


def _of_decisions(part: str) -> str:
    """A rate as a share of all decisions; 0 where there are none."""
    return f"{part} / clamp_min({_DECISIONS}, 1e-9)"


_NOW = (
    number(
        "Decisions a second",
        "Decisions of all gateways; a request that is held takes several.",
        RATE,
        (_DECISIONS, "{{region}}"),
    ),
    number(
        "Decision time, 99 %",
        "How long a decision takes. Normal: below 1 ms.",
        SECONDS,
        (quantile(0.99, Gateway.DECISION), "{{region}}"),
        bad_above=0.005,
    ),
    number(
        "Quarantined",
        "Share of decisions that passed over an engine because it would have to evict an adapter "
        "with tokens in flight.",
        SHARE,
        (_of_decisions(total(rate(Gateway.QUARANTINES))), "{{region}}"),
        bad_above=0.5,
    ),
    number(
        "Held now",
        "Requests that wait in gateways for room. Normal: few, and for short.",
        COUNT,
        (total(now(Gateway.HELD)), "{{region}}"),
        bad_above=100,
    ),
    number(
        "Refused for room",
        "Requests refused per second because every engine was saturated or quarantined for as "
        "long as they may be held.",
        RATE,
        (
            f"{total(rate(Gateway.REFUSALS, _NO_ROOM))} or 0 * {total(now(Gateway.HELD))}",
            "{{region}}",
        ),
        bad_above=0.1,
    ),
    number(
        "Other gateways heard",
        "The fewest other gateways that one of them hears. Too few: each decides as if the others "
        "sent nothing.",
        COUNT,
        (f"min by (region) ({now(Gateway.PEERS)})", "{{region}}"),
    ),
)

_DECIDED = (
    graph(
        "Decisions by outcome",
        "By the load that the winner needs; no-winner: nobody could take the request then, it is "
        "held or refused.",
        RATE,
        (total(rate(Gateway.DECISIONS), "outcome"), "{{region}} {{outcome}}"),
    ),
    graph(
        "Decision time",
        "Pure computing: it rises with the number of engines and with a gateway's CPU.",
        SECONDS,
        (quantile(0.5, Gateway.DECISION), "{{region}} half"),
        (quantile(0.99, Gateway.DECISION), "{{region}} 99 %"),
    ),
    graph(
        "Tries at engines",
        "How tries ended. failed ones are retried unseen, once; broken ones died after their "
        "first token, which a client sees.",
        RATE,
        (counted(Gateway.TRIES, "verdict"), "{{region}} {{verdict}}"),
        (total(rate(Gateway.RETRIES)), "{{region}} retried"),
    ),
)

_WAITING = (
    graph(
        "Refusals by reason",
        "Requests refused. unknown-model is the client's; all others say that the fleet could not.",
        RATE,
        (counted(Gateway.REFUSALS, "reason"), "{{region}} {{reason}}"),
        width=12,
    ),
    graph(
        "Hold time",
        "How long held requests waited, for room or until they were refused.",
        SECONDS,
        (quantile(0.5, Gateway.HOLD), "{{region}} half"),
        (quantile(0.95, Gateway.HOLD), "{{region}} 95 %"),
        width=12,
    ),
    graph(
        "Held and quarantined",
        "Requests held now, and decisions per second that passed over a quarantined engine. Both "
        "high: more adapters are in use at a time than there are slots.",
        COUNT,
        (total(now(Gateway.HELD)), "{{region}} held"),
        (total(rate(Gateway.QUARANTINES)), "{{region}} quarantined a second"),
        width=12,
    ),
    graph(
        "Engines left out, by reason",
        "Engines that get no requests whatever is asked for, as the gateway that leaves out most "
        "sees it.",
        COUNT,
        (highest(now(Gateway.LEFT_OUT), "reason"), "{{region}} {{reason}}"),
        width=12,
    ),
)

_PROMPTS = (
    graph(
        "Prompt tokens that caches had",
        "Of requests whose prompt is known: what their engines had cached, what decisions took "
        "for held, and by how much that was too high. All 0: no base model is in `prompts`.",
        RATE,
        (total(rate(Gateway.CACHED_TOKENS)), "{{region}} cached"),
        (total(rate(Gateway.MATCHED_TOKENS)), "{{region}} matched"),
        (total(rate(Gateway.OVERMATCHED_TOKENS)), "{{region}} matched in excess"),
    ),
    graph(
        "Facts that lack",
        "Engines of which a gateway missed what their agent told, and snapshots that gateways "
        "asked for. Normal: 0, but for a moment after a gateway starts.",
        COUNT,
        (highest(now(Gateway.FACTS_LACKING)), "{{region}} lack"),
        (total(rate(Gateway.SNAPSHOTS_ASKED)), "{{region}} asked a second"),
    ),
    graph(
        "Chunks of prompts known",
        "What engines are known to hold, as the gateway that knows most sees it, and how much of "
        "it is its own prediction.",
        COUNT,
        (highest(now(Gateway.PREFIX_ENTRIES)), "{{region}} held"),
        (highest(now(Gateway.PREFIX_PREDICTED)), "{{region}} predicted"),
    ),
)

_TOLD = (
    graph(
        "Decisions told to the stream",
        "Requests whose decisions went to the region's stream, were left out by the sample under "
        "load, or were lost. `axiom why` on another gateway knows only what was told.",
        RATE,
        (total(rate(Gateway.DECISIONS_TOLD)), "{{region}} told"),
        (total(rate(Gateway.DECISIONS_SAMPLED_OUT)), "{{region}} sampled out"),
        (total(rate(Gateway.DECISIONS_DROPPED)), "{{region}} lost"),
        width=12,
    ),
    graph(
        "Spans of traces",
        "Spans that ended, of sampled requests, and what became of them. All 0: traces are off.",
        RATE,
        (total(rate(Gateway.SPANS)), "{{region}} ended"),
        (total(rate(Gateway.SPANS_SENT)), "{{region}} taken by the collector"),
        (total(rate(Gateway.SPANS_NOT_SENT)), "{{region}} not taken"),
        width=12,
    ),
)

BOARD = Board(
    uid="axiom-decisions",
    title="Axiom: decisions and quarantine",
    about="How decisions end, what they cost, what waits for room, which caches they find, and "
    "what is told of it.",
    rows=(
        ("Now", _NOW),
        ("Decisions", _DECIDED),
        ("Quarantine and hold", _WAITING),
        ("Prompts and caches", _PROMPTS),
        ("What is told of them", _TOLD),
    ),
)
