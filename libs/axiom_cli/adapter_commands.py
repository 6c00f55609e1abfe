"""`axiom adapters apply|list|show|delete`: what is declared, through a gateway's admin API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from axiom_cli.admin import Target, admin_of
from axiom_cli.declarations import Applied, Put, apply_declarations, parse_declarations
from axiom_cli.output import print_figures, table_console
from axiom_common.errors import InvalidInputError
from axiom_common.model.adapter import MEBIBYTE
from axiom_common.model.ids import EngineAdapter
from axiom_common.wire import rest


async def apply(target: Target, file: Path, *, as_json: bool) -> bool:
    """Declare what the file names; False when some of it could not be declared."""
    applied = await apply_declarations(target, _read(file))
    if as_json:
        print_figures({"applied": [_applied_figures(one) for one in applied]})
    else:
        console = table_console()
        for one in (one for one in applied if one.detail):
            place = f"{file}:{one.put.line}"
            told = f"{place}: {one.put.name}: {one.result}: {one.detail}"
            console.print(told, soft_wrap=True, markup=False)
        counts = Counter(one.result.value for one in applied)
        console.print(", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing")
    return not any(one.failed for one in applied)


async def list_adapters(target: Target, *, as_json: bool) -> None:
    """Print all declared adapters."""
    async with admin_of(target) as admin:
        declared = await admin.adapters()
    if as_json:
        print_figures({"adapters": [one.model_dump(mode="json") for one in declared]})
    else:
        table_console().print(_adapter_table(declared))


async def show_adapter(target: Target, name: str, *, as_json: bool) -> None:
    """Print one declared adapter and where it is now; NotFoundError when it is not declared."""
    async with admin_of(target) as admin:
        declared = await admin.adapter(name)
        engines = await admin.engines()
    engine_name = EngineAdapter(f"{declared.name}~{declared.revision}")
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
    table = _table("engine", "state", "known from", "in flight")
    for engine, one in held:
        in_flight = "–" if one.in_flight is None else str(one.in_flight)
        table.add_row(engine, one.state, one.source, in_flight)
    console.print(table if held else "on no engine now")


async def delete_adapter(target: Target, name: str, *, as_json: bool) -> None:
    """Withdraw an adapter; agents unload it once nobody uses it."""
    async with admin_of(target) as admin:
        await admin.delete_adapter(name)
    if as_json:
        print_figures({"deleted": name})
    else:
        table_console().print(f"deleted {name}", markup=False)


def _read(file: Path) -> list[Put]:
    try:
        return parse_declarations(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{file}: {error}") from error
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
    table = _table("adapter", "revision", "base model", "rank", "MiB", "path", "tenant")
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


def _table(*heads: str) -> Table:
    table = Table(box=None, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
