"""`axiom models`: the base models that are declared."""

from __future__ import annotations

from typing import Annotated

import typer

from axiom_cli.admin import MODELS_PATH, Admin, Target, admin_of
from axiom_cli.commands.adapters import tell_deleted
from axiom_cli.commands.listing import listed
from axiom_cli.commands.options import AsJson, DryRun, Filters, Sort
from axiom_cli.commands.running import asks_gateway
from axiom_cli.output import plain_table, print_figures, table_console, tell_staleness

app = typer.Typer(
    help="Declared base models; `adapters apply` declares them.", no_args_is_help=True
)


@app.command("list")
@asks_gateway
async def list_command(
    target: Target,
    filters: Filters = None,
    sort: Sort = None,
    as_json: AsJson = False,
) -> None:
    """All declared base models, or those that fit every filter."""
    declared = await listed(target, "base models", Admin.models, filters=filters, sort=sort)
    if as_json:
        print_figures({"base_models": [one.model_dump(mode="json") for one in declared]})
        return
    table = plain_table("base model", "version", right=("version",))
    for one in declared:
        table.add_row(one.name, str(one.version))
    table_console().print(table)
    tell_staleness(declared)


@app.command("delete")
@asks_gateway
async def delete_command(
    target: Target,
    name: Annotated[str, typer.Argument(help="Name of the base model.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a base model that no declared adapter is of. Engines that have it go on, and clients
    may still ask for it there."""
    async with admin_of(target) as admin:
        await admin.withdraw(MODELS_PATH, name, version=None, dry_run=dry_run)
    tell_deleted(name, dry_run=dry_run, as_json=as_json)
