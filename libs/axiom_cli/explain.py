"""`axiom explain`: where would a request for a model go now, and why not elsewhere?"""

from __future__ import annotations

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from axiom_cli.admin import Target, admin_of
from axiom_cli.decision_text import about, best_of, decision_table, verdict
from axiom_cli.output import print_figures, table_console
from axiom_common.errors import InvalidInputError
from axiom_common.wire.decisions import ExplainPost, Explanation, JudgedEngine


def question(
    model: str,
    *,
    prompt_tokens: int,
    prompt: str | None = None,
    profile: str | None,
    limit: int,
    after: str,
) -> ExplainPost:
    """The question; InvalidInputError where a part of it can't be asked."""
    try:
        return ExplainPost(
            model=model,
            prompt_tokens=prompt_tokens,
            prompt=prompt,
            profile=profile,
            limit=limit,
            after=after,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = str(first["loc"][0])
        raise InvalidInputError(f"{path}: {first['msg']}", path=path) from error


async def explain(target: Target, asked: ExplainPost, *, as_json: bool) -> None:
    """Ask the gateway and print; InvalidInputError when it knows no such model."""
    async with admin_of(target) as admin:
        told = await admin.explain(asked)
    if as_json:
        print_figures(told.model_dump(mode="json"))
    else:
        print_explanation(told, table_console())


def print_explanation(told: Explanation, console: Console) -> None:
    """For people."""
    asked = about(told.base_model, told.adapter, told.prompt_tokens)
    console.print(f"asked anew, nothing booked: {asked}", markup=False, soft_wrap=True)
    console.print(f"it would go to {verdict(told.decision)}", markup=False, soft_wrap=True)
    if told.matched_tokens is not None:
        console.print(f"which holds {told.matched_tokens} tokens of the prompt", markup=False)
    if best_of(told.decision):
        console.print(decision_table(told.decision))
    console.print(engine_table(told.engines))
    if told.next is not None:
        console.print(f"more with --after {told.next}", markup=False, soft_wrap=True)


def engine_table(engines: tuple[JudgedEngine, ...]) -> Table:
    """One row an engine: candidates first, the cheapest on top."""
    table = Table(box=None, header_style="bold")
    for head in ("engine", "cost", "tier", "composite", "left out for"):
        right = head in {"cost", "tier", "composite"}
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for one in sorted(engines, key=_rank):
        seen = one.candidate
        if seen is None:
            table.add_row(one.engine, "", "", "", one.reason or "")
        else:
            composite = f"{seen.composite:.2f}"
            table.add_row(one.engine, f"{seen.cost_ms:,.1f} ms", str(seen.tier), composite, "")
    return table


def _rank(one: JudgedEngine) -> tuple[bool, int, float, str]:
    seen = one.candidate
    if seen is None:
        return True, 0, 0.0, one.engine
    return False, seen.tier, seen.cost_ms, one.engine
