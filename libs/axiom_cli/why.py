"""`axiom why`: the decisions of one request and what became of it, by the id in its answer."""

from __future__ import annotations

from rich.console import Console

from axiom_cli.admin import Target, admin_of
from axiom_cli.decision_text import about, best_of, decision_table, refusals, verdict
from axiom_cli.output import print_figures, table_console
from axiom_common.wire.decisions import AttemptView, OutcomeView, WhyView


async def why(target: Target, decision_id: str, *, as_json: bool) -> None:
    """Ask the gateway that took the request; NotFoundError when it keeps nothing of it."""
    async with admin_of(target) as admin:
        kept = await admin.why(decision_id)
    if as_json:
        print_figures(kept.model_dump(mode="json"))
    else:
        print_why(kept, table_console())


def print_why(kept: WhyView, console: Console) -> None:
    """For people."""
    asked = about(kept.base_model, kept.adapter, kept.prompt_tokens)
    console.print(f"request {kept.id}: {asked}", markup=False, soft_wrap=True)
    for attempt in kept.attempts:
        _print_attempt(attempt, console)
    if not kept.attempts:
        console.print("no decision is kept of it")
    console.print(outcome_line(kept.outcome), markup=False, soft_wrap=True)


def _print_attempt(attempt: AttemptView, console: Console) -> None:
    told = f"try {attempt.attempt}, {attempt.age_ms / 1e3:.1f} s ago: {verdict(attempt.decision)}"
    console.print(told, markup=False, soft_wrap=True)
    if best_of(attempt.decision):
        console.print(decision_table(attempt.decision))
    if attempt.decision.refusals:
        console.print(f"left out: {refusals(attempt.decision)}", markup=False, soft_wrap=True)
    if attempt.excluded:
        failed = ", ".join(attempt.excluded)
        console.print(f"not asked again: {failed}", markup=False, soft_wrap=True)


def outcome_line(outcome: OutcomeView | None) -> str:
    """What became of the request, in one line; what is not known is left out."""
    if outcome is None:
        return "outcome: under way"
    facts = [outcome.ending if outcome.reason is None else f"{outcome.ending} ({outcome.reason})"]
    if outcome.status is not None:
        facts.append(f"status {outcome.status}")
    if outcome.engine is not None:
        facts.append(f"by {outcome.engine}")
    facts.append(f"{outcome.total_ms:,.0f} ms in all")
    if outcome.retries:
        facts.append(f"retries {outcome.retries}")
    if outcome.held_ms:
        facts.append(f"held {outcome.held_ms:,.0f} ms")
    for name, ms in (
        ("load", outcome.load_ms),
        ("first token", outcome.ttft_ms),
        ("each token", outcome.tpot_ms),
    ):
        if ms is not None:
            facts.append(f"{name} {ms:,.1f} ms")
    for name, tokens in (
        ("prompt tokens", outcome.prompt_tokens),
        ("of them cached", outcome.cached_tokens),
        ("matched", outcome.matched_tokens),
        ("answer tokens", outcome.completion_tokens),
    ):
        if tokens is not None:
            facts.append(f"{name} {tokens}")
    return f"outcome: {', '.join(facts)}"
