"""`axiom plan` and `axiom config`: what is wanted of nodes, and what a gateway runs with."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from axiom_cli.admin import Target, admin_of
from axiom_cli.admin_client import ListAsked
from axiom_cli.output import counting, plain_table, print_figures, table_console, tell_staleness
from axiom_common.wire.views import ConfigView, NodePlanView


async def plan(target: Target, node: str | None, asked: ListAsked, *, as_json: bool) -> None:
    """Print the plans of all nodes, or of one; NotFoundError when nothing is planned for it."""
    async with admin_of(target) as admin:
        if node is not None:
            plans: Sequence[NodePlanView] = [await admin.plan(node)]
        else:
            with counting("plans") as on_page:
                plans = await admin.plans(asked.told(on_page))
    if as_json:
        print_figures({"plans": [one.model_dump(mode="json") for one in plans]})
        return
    table_console().print(plan_table(plans) if plans else "nothing is planned")
    tell_staleness(plans)


def plan_table(plans: Sequence[NodePlanView]) -> Table:
    """One row an engine, the node's plan on its first."""
    table = plain_table("node", "plan", "agent", "engine", "homes", "to retire", right=("plan",))
    for one in plans:
        head = (one.node, str(one.revision), escape(verdict(one)))
        for engine in one.engines or (None,):
            homes = retired = name = ""
            if engine is not None:
                name = engine.engine.partition(".")[2]
                homes, retired = ", ".join(engine.homes), ", ".join(engine.retire)
            table.add_row(*head, name, escape(homes) or "none", escape(retired))
            head = ("", "", "")
    return table


def verdict(plan: NodePlanView) -> str:
    """What the node's agent made of its plan."""
    seen = plan.seen
    if seen is None:
        return "not heard"
    if not seen.accepted:
        return f"refused {seen.revision}: {seen.reason}"
    return "accepted" if seen.revision == plan.revision else f"still at {seen.revision}"


async def config(target: Target, *, as_json: bool) -> None:
    """Print a gateway's settings."""
    async with admin_of(target) as admin:
        seen = await admin.config()
    if as_json:
        print_figures(seen.model_dump(mode="json"))
    else:
        table_console().print(config_table(seen))


def config_table(seen: ConfigView) -> Table:
    """One row a setting."""
    table = plain_table(f"setting of {seen.gateway}", "value")
    for name, value in sorted(seen.settings.items()):
        table.add_row(name, "–" if value is None else escape(str(value)))
    return table
