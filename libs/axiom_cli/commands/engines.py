"""`axiom engines`: what they are, and orders that keep new requests from one of them.

An order that some gateway, cut off, did not confirm ends with exit code 1, and says so.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.commands.listing import listed
from axiom_cli.commands.options import AsJson, DryRun, Filters, Sort
from axiom_cli.commands.running import asks_gateway
from axiom_cli.engine_drain import Deadline, ordered, until_idle
from axiom_cli.node_text import in_flight
from axiom_cli.output import (
    plain_table,
    print_figures,
    progress_console,
    table_console,
    tell_without,
)
from axiom_common.model.engine_order import NOTE_MAX
from axiom_common.wire.engine_orders import EngineOrderPost, EngineOrderView
from axiom_common.wire.views import EngineView

WAIT_S = 600.0
ACKNOWLEDGE_S = 90.0
"""A gateway that fell silent without a goodbye is waited for no longer than a minute."""

app = typer.Typer(help="Engines, and orders that take one out of use.", no_args_is_help=True)

EngineName = Annotated[str, typer.Argument(help="NODE.ENGINE, as `engines list` shows it.")]
Note = Annotated[str | None, typer.Option(help=f"Why, at most {NOTE_MAX} characters.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also the last engine of its base model: requests fail.")
]


@app.command("list")
@asks_gateway
async def list_command(
    target: Target, filters: Filters = None, sort: Sort = None, as_json: AsJson = False
) -> None:
    """All engines, or those that fit every filter."""
    engines = await listed(target, "engines", Admin.engines, filters=filters, sort=sort)
    if as_json:
        print_figures({"engines": [one.model_dump(mode="json") for one in engines]})
    else:
        table_console().print(engine_table(*engines))


@app.command("show")
@asks_gateway
async def show_command(target: Target, engine: EngineName, as_json: AsJson = False) -> None:
    """One engine, and the adapters on it."""
    async with admin_of(target) as admin:
        seen = await admin.engine(engine)
    if as_json:
        print_figures({"engine": seen.model_dump(mode="json")})
        return
    console = table_console()
    console.print(engine_table(seen))
    residents = plain_table("adapter", "state", "known from")
    for one in seen.residents:
        residents.add_row(in_flight(one), one.state, one.source)
    console.print(residents if seen.residents else "no adapter on it")


@app.command("cordon")
@asks_gateway
async def cordon_command(
    target: Target,
    engine: EngineName,
    note: Note = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> bool:
    """Keep new requests from an engine; its adapters stay at home there."""
    wanted = EngineOrderPost(note=note, force=force)
    async with admin_of(target) as admin:
        if dry_run:
            view = await admin.order_engine(engine, "cordon", wanted, dry_run=True)
        else:
            until = Deadline.within(ACKNOWLEDGE_S)
            view = await ordered(admin, engine, "cordon", wanted, until, _say)
    _tell(view, f"cordoned: {_nothing_new(view)}", dry_run=dry_run, as_json=as_json)
    return tell_without(view.without)


@app.command("drain")
@asks_gateway
async def drain_command(
    target: Target,
    engine: EngineName,
    note: Note = None,
    wait: Annotated[
        bool, typer.Option(help="Wait until nothing is in flight there, not only for the order.")
    ] = True,
    timeout: Annotated[float, typer.Option(min=1, max=86_400, help="Seconds to wait.")] = WAIT_S,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> bool:
    """Empty an engine: no new request, its adapters' homes move, what runs ends by itself.

    From the line `drain of ENGINE acknowledged` on no gateway sends anything new there, but for
    those that it names (exit code 1). The order stands until `engines release`, also where the wait
    ends early (exit code 1).
    """
    wanted = EngineOrderPost(note=note, force=force)
    async with admin_of(target) as admin:
        if dry_run:
            view = await admin.order_engine(engine, "drain", wanted, dry_run=True)
            _tell(view, "drained", dry_run=True, as_json=as_json)
            return True
        until = Deadline.within(timeout)
        view = await ordered(admin, engine, "drain", wanted, until, _say)
        _say(f"drain of {engine} acknowledged: {_nothing_new(view)}")
        if not wait:
            _tell(view, f"drained: {view.in_flight} in flight still", as_json=as_json)
            return tell_without(view.without)
        console = progress_console()
        with console.status(f"{engine}: {view.in_flight} in flight") as line:
            last = await until_idle(admin, engine, until, lambda told: line.update(escape(told)))
    if last is None:
        _say(f"{engine} has left the region")
    else:
        view = view.model_copy(update={"in_flight": last.in_flight, "idle": last.idle})
    _tell(view, "drained: nothing is in flight there", as_json=as_json)
    return tell_without(view.without)


@app.command("release")
@asks_gateway
async def release_command(
    target: Target, engine: EngineName, dry_run: DryRun = False, as_json: AsJson = False
) -> bool:
    """Give an engine back to use; also one that is gone, whose order stands."""
    async with admin_of(target) as admin:
        view = await admin.order_engine(engine, "release", None, dry_run=dry_run)
    _tell(view, "released", dry_run=dry_run, as_json=as_json)
    return tell_without(view.without)


def _nothing_new(view: EngineOrderView) -> str:
    """What the order promises by now."""
    but = f" but from {', '.join(view.without)}" if view.without else ""
    return f"no new request goes there{but}"


def _say(line: str) -> None:
    progress_console().print(line, markup=False, soft_wrap=True)


def _tell(view: EngineOrderView, what: str, *, as_json: bool, dry_run: bool = False) -> None:
    """What was ordered, or would be."""
    if as_json:
        print_figures({"engine": view.model_dump(mode="json"), "dry_run": dry_run})
    else:
        told = f"dry run, nothing is done: {view.engine} would be" if dry_run else view.engine
        table_console().print(f"{told} {what}", markup=False, soft_wrap=True)


def engine_table(*engines: EngineView) -> Table:
    """One row an engine, for 80 columns where names are short."""
    numbers = ("in\nflight", "runs/\nwaits", "slots")
    table = plain_table("engine", "base\nmodel", "status", "order", *numbers, "note", right=numbers)
    table.columns[0].no_wrap = True
    for one in engines:
        order = one.order or "–"
        table.add_row(
            one.engine,
            one.base_model,
            one.status,
            f"{order}, idle" if one.order and one.idle else order,
            str(one.in_flight),
            f"{one.running}/{one.waiting}",
            f"{len(one.residents)}/{one.hbm_slots}",
            escape(one.note or ""),
        )
    return table
