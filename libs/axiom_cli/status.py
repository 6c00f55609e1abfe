"""`axiom status`: what a gateway sees of its fleet."""

from __future__ import annotations

from rich.table import Table

from axiom_cli.admin import Target, admin_of
from axiom_cli.output import print_figures, table_console
from axiom_common.wire import rest


async def status(target: Target, *, as_json: bool) -> None:
    """Ask the gateway and print; UnavailableError when it gives no answer."""
    async with admin_of(target) as admin:
        seen = await admin.status()
    if as_json:
        print_figures(seen.model_dump(mode="json"))
        return
    table_console().print(status_table(seen))


def status_table(seen: rest.Status) -> Table:
    """One row a region."""
    table = Table(box=None, header_style="bold")
    for head in ("region", "nodes", "engines", "adapters", "view age", "degraded"):
        table.add_column(head, justify="left" if head in {"region", "degraded"} else "right")
    for name, region in sorted(seen.regions.items()):
        age = "–" if region.view_age_ms is None else f"{region.view_age_ms:.0f} ms"
        table.add_row(
            name,
            str(region.nodes),
            str(region.engines),
            str(region.adapters),
            age,
            ", ".join(region.degraded) or "nothing",
        )
    return table
