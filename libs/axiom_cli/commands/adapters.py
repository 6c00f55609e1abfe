"""`axiom adapters`: what is declared, and where it is now."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from axiom_cli.admin import ADAPTERS_PATH, Admin, Target, admin_of
from axiom_cli.admin_client import ListAsked
from axiom_cli.commands.listing import listed
from axiom_cli.commands.options import AsJson, DryRun, Filters, Sort
from axiom_cli.commands.running import asks_gateway
from axiom_cli.declarations import Applied, Put, apply_declarations, read_declarations
from axiom_cli.output import counting, plain_table, print_figures, table_console, tell_staleness
from axiom_common.errors import InvalidInputError, SettingsError
from axiom_common.model.adapter import MEBIBYTE
from axiom_common.model.ids import EngineAdapter
from axiom_common.wire import rest

app = typer.Typer(help="Declare adapters, and see them.", no_args_is_help=True)

STDIN = Path("-")
AdapterName = Annotated[str, typer.Argument(help="Name of the adapter.")]


@app.command("apply")
@asks_gateway
async def apply_command(
    target: Target,
    file: Annotated[
        Path, typer.Argument(help="YAML: base_models, adapters; see examples/. -: standard input.")
    ],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> bool:
    """Declare the base models and adapters of a file. Nothing is withdrawn, and what others change
    at the same time is left to them."""
    puts = _read(file)
    with counting("declarations", doing="putting") as on_put:
        applied = await apply_declarations(target, puts, dry_run=dry_run, on_put=on_put)
    if as_json:
        figures = [_applied_figures(one) for one in applied]
        print_figures({"applied": figures, "dry_run": dry_run})
    else:
        console = table_console()
        for one in (one for one in applied if one.detail):
            place = f"{file}:{one.put.line}"
            told = f"{place}: {one.put.name}: {one.result}: {one.detail}"
            console.print(told, soft_wrap=True, markup=False)
        counts = Counter(one.result.value for one in applied)
        told = ", ".join(f"{count} {what}" for what, count in counts.items()) or "declares nothing"
        console.print(f"dry run, nothing is done: {told}" if dry_run else told)
    return not any(one.failed for one in applied)


@app.command("list")
@asks_gateway
async def list_command(
    target: Target,
    filters: Filters = None,
    sort: Sort = None,
    as_json: AsJson = False,
) -> None:
    """All declared adapters, or those that fit every filter."""
    declared = await listed(target, "adapters", Admin.adapters, filters=filters, sort=sort)
    if as_json:
        print_figures({"adapters": [one.model_dump(mode="json") for one in declared]})
    else:
        table_console().print(_adapter_table(declared))
        tell_staleness(declared)


@app.command("show")
@asks_gateway
async def show_command(target: Target, name: AdapterName, as_json: AsJson = False) -> None:
    """One adapter, and on which engines it is now."""
    async with admin_of(target) as admin:
        declared = await admin.adapter(name)
        engine_name = EngineAdapter(f"{declared.name}~{declared.revision}")
        engines = await admin.engines(ListAsked(filters=(f"residents.adapter={engine_name}",)))
    held = [
        (engine.engine, resident)
        for engine in engines
        for resident in engine.residents
        if resident.adapter == engine_name
    ]
    if as_json:
        figures = [{"engine": engine} | one.model_dump(mode="json") for engine, one in held]
        print_figures({"adapter": declared.model_dump(mode="json"), "engines": figures})
        return
    console = table_console()
    console.print(_adapter_table([declared]))
    table = plain_table("engine", "state", "known from", "in flight", right=("in flight",))
    for engine, one in held:
        in_flight = "–" if one.in_flight is None else str(one.in_flight)
        table.add_row(engine, one.state, one.source, in_flight)
    console.print(table if held else "on no engine now")
    tell_staleness([declared])


@app.command("delete")
@asks_gateway
async def delete_command(
    target: Target, name: AdapterName, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Withdraw an adapter; agents unload it once nobody uses it."""
    async with admin_of(target) as admin:
        seen = await admin.adapter(name)
        await admin.withdraw(ADAPTERS_PATH, name, version=seen.version, dry_run=dry_run)
    tell_deleted(name, dry_run=dry_run, as_json=as_json)


def tell_deleted(name: str, *, dry_run: bool, as_json: bool, **more: object) -> None:
    """What was withdrawn, or would be; `more` for scripts."""
    if as_json:
        print_figures({"deleted": name, "dry_run": dry_run, **more})
    else:
        told = f"dry run, nothing is done: {name} would go" if dry_run else f"deleted {name}"
        table_console().print(told, markup=False)


def _read(file: Path) -> list[Put]:
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else file.open("rb") as opened:
            return read_declarations(opened)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}", path=error.path) from error


def _applied_figures(one: Applied) -> dict[str, object]:
    return {
        "kind": one.put.kind.value,
        "name": one.put.name,
        "line": one.put.line,
        "result": one.result.value,
        "revision": one.revision,
        "detail": one.detail,
    }


def _adapter_table(declared: Sequence[rest.Adapter]) -> Table:
    heads = ("adapter", "revision", "base model", "rank", "MiB", "path", "tenant")
    table = plain_table(*heads, right=("revision", "rank", "MiB"))
    for one in declared:
        size = f"{one.size_bytes / MEBIBYTE:.0f}" if one.size_bytes else "–"
        table.add_row(
            one.name,
            str(one.revision),
            one.base_model,
            str(one.rank),
            size,
            escape(one.path),
            one.tenant,
        )
    return table
