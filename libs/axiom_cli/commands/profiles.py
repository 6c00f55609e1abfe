"""`axiom profiles`: the ways to decide that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.commands.listing import listed
from axiom_cli.commands.options import AsJson, Filters, Sort
from axiom_cli.commands.running import asks_gateway
from axiom_cli.output import plain_table, print_figures, table_console, tell_staleness
from axiom_common.wire import rest

app = typer.Typer(help="The profiles that a decision can go by.", no_args_is_help=True)


@app.command("list")
@asks_gateway
async def list_command(
    target: Target,
    filters: Filters = None,
    sort: Sort = None,
    as_json: AsJson = False,
) -> None:
    """All profiles, or those that fit every filter."""
    profiles = await listed(target, "profiles", Admin.profiles, filters=filters, sort=sort)
    if as_json:
        print_figures({"profiles": [one.model_dump(mode="json") for one in profiles]})
    else:
        table_console().print(_profile_table(profiles))
        tell_staleness(profiles)


@app.command("show")
@asks_gateway
async def show_command(
    target: Target,
    name: Annotated[str, typer.Argument(help="Name of the profile.")],
    as_json: AsJson = False,
) -> None:
    """One profile."""
    async with admin_of(target) as admin:
        profile = await admin.profile(name)
    if as_json:
        print_figures(profile.model_dump(mode="json"))
    else:
        table_console().print(_profile_table([profile]))
        tell_staleness([profile])


def _profile_table(profiles: Sequence[rest.ProfileView]) -> Table:
    table = plain_table(
        "profile", "picker", "wait cap", "quarantine", "weights but 1", right=("wait cap",)
    )
    for one in profiles:
        cap = "none" if one.wait_cap_ms is None else f"{one.wait_cap_ms:,.0f} ms"
        weights = ", ".join(f"{term} {w:g}" for term, w in one.weights.items() if w != 1.0)
        name = f"{one.name} (built in)" if one.built_in else one.name
        table.add_row(name, one.picker, cap, "on" if one.quarantine else "off", weights or "–")
    return table
