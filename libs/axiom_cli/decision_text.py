"""Decisions for people: the best engines side by side, and why others were left out."""

from __future__ import annotations

from rich.table import Table

from axiom_common.wire.decisions import CandidateView, DecisionView


def decision_table(decision: DecisionView) -> Table:
    """One row a term, one column an engine, the winner first: predicted ms, and the score."""
    shown = best_of(decision)
    table = Table(box=None, header_style="bold")
    table.add_column("term")
    table.add_column("weight", justify="right")
    for one in shown:
        table.add_column(one.engine, justify="right", overflow="fold")
    for number, part in enumerate(shown[0].parts if shown else ()):
        cells = [one.parts[number] for one in shown]
        values = [f"{cell.ms:,.1f} ms  {cell.value:5.2f}" for cell in cells]
        table.add_row(part.term, f"{part.weight:g}", *values)
    table.add_row("cost", "", *(f"{one.cost_ms:,.1f} ms  {one.composite:5.2f}" for one in shown))
    table.add_row("tier", "", *(str(one.tier) for one in shown))
    return table


def best_of(decision: DecisionView) -> tuple[CandidateView, ...]:
    """The winner and the runners-up; empty without a winner."""
    return () if decision.winner is None else (decision.winner, *decision.runners_up)


def verdict(decision: DecisionView) -> str:
    """The decision in one line."""
    if decision.winner is None:
        return f"no engine (profile {decision.profile})"
    load = "" if decision.load == "none" else f", adapter load: {decision.load}"
    stale = ", on old news" if decision.stale else ""
    return f"{decision.winner.engine} (profile {decision.profile}{load}{stale})"


def refusals(decision: DecisionView) -> str:
    """How many engines each reason left out, most first; empty when none."""
    counts = sorted(decision.refusals.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {reason}" for reason, count in counts)


def about(base_model: str | None, adapter: str | None, prompt_tokens: int | None) -> str:
    """What was asked for, in one line."""
    asked = [base_model or "base model not kept"]
    if adapter is not None:
        asked.append(f"adapter {adapter}")
    if prompt_tokens is not None:
        asked.append(f"about {prompt_tokens} prompt tokens")
    return ", ".join(asked)
