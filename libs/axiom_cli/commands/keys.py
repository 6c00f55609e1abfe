"""`axiom keys`: who may use the admin API, and make a gateway's own key.

A change that some gateway, cut off, did not confirm ends with exit code 1, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from axiom_cli.admin import ABSENT, KEYS_PATH, Admin, Target, admin_of
from axiom_cli.commands.adapters import tell_deleted
from axiom_cli.commands.listing import listed
from axiom_cli.commands.options import AsJson, DryRun, Filters, Sort
from axiom_cli.commands.running import asks_gateway
from axiom_cli.key_files import make_key_file, new_key_file
from axiom_cli.output import (
    plain_table,
    print_figures,
    progress_console,
    table_console,
    tell_staleness,
    tell_without,
    told_errors,
)
from axiom_common.errors import UnavailableError
from axiom_common.model.access import Role
from axiom_common.model.ids import public_name
from axiom_common.model.tenant import DEFAULT_TENANT
from axiom_common.wire import rest

app = typer.Typer(help="Keys of the admin API, and their roles.", no_args_is_help=True)

KeyName = Annotated[str, typer.Argument(help="Name of the key.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", dir_okay=False, help="New file for the secret, for its owner alone; else printed."
    ),
]


@app.command("list")
@asks_gateway
async def list_command(
    target: Target,
    filters: Filters = None,
    sort: Sort = None,
    as_json: AsJson = False,
) -> None:
    """All keys, or those that fit every filter. No secret is kept, so none is shown."""
    keys = await listed(target, "keys", Admin.keys, filters=filters, sort=sort)
    if as_json:
        print_figures({"keys": [_figures(key) for key in keys]})
    else:
        table_console().print(_key_table(keys))
        tell_staleness(keys)


@app.command("show")
@asks_gateway
async def show_command(target: Target, name: KeyName, as_json: AsJson = False) -> None:
    """One key."""
    async with admin_of(target) as admin:
        _print(await admin.key(name), as_json=as_json)


@app.command("create")
@asks_gateway
async def create_command(
    target: Target,
    name: KeyName,
    role: Annotated[Role, typer.Option(help="What it grants.")],
    tenant: Annotated[
        str, typer.Option(help="Whose requests to /v1 it sends: those see its adapters.")
    ] = DEFAULT_TENANT.name,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> bool:
    """Make a key. Its secret is told once, here."""
    wanted = _wanted(role, tenant)
    async with admin_of(target) as admin:
        if dry_run:
            would = await admin.put_key(name, wanted, version=ABSENT, dry_run=True)
            _print(would, as_json=as_json, dry_run=True)
            return True
        with _kept(out) as keep:
            made = await admin.put_key(name, wanted, version=ABSENT)
            keep(made)
    _tell_secret(made, out, as_json=as_json)
    return tell_without(made.without)


@app.command("rotate")
@asks_gateway
async def rotate_command(
    target: Target, name: KeyName, out: Out = None, as_json: AsJson = False
) -> bool:
    """Give a key another secret; the one before is void at once."""
    async with admin_of(target) as admin:
        seen = await admin.key(name)
        with _kept(out) as keep:
            made = await admin.rotate_key(name, version=seen.version)
            keep(made)
    _tell_secret(made, out, as_json=as_json)
    return tell_without(made.without)


@app.command("set-role")
@asks_gateway
async def set_role_command(
    target: Target,
    name: KeyName,
    role: Annotated[Role, typer.Argument(help="What it grants from now on.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> bool:
    """Give a key another role."""
    async with admin_of(target) as admin:
        seen = await admin.key(name)
        wanted = _wanted(role, seen.tenant)
        changed = await admin.put_key(name, wanted, version=seen.version, dry_run=dry_run)
    _print(changed, as_json=as_json, dry_run=dry_run)
    return tell_without(changed.without)


@app.command("delete")
@asks_gateway
async def delete_command(
    target: Target, name: KeyName, dry_run: DryRun = False, as_json: AsJson = False
) -> bool:
    """Withdraw a key: nobody may use it any more."""
    async with admin_of(target) as admin:
        seen = await admin.key(name)
        without = await admin.withdraw(KEYS_PATH, name, version=seen.version, dry_run=dry_run)
    tell_deleted(name, dry_run=dry_run, as_json=as_json, without=without)
    return tell_without(without)


@app.command("new")
def new_command(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="New file for the secret.")],
    as_json: AsJson = False,
) -> None:
    """Make the file of a gateway's own admin key, its setting `admin_key_file`. Asks nobody."""
    with told_errors(as_json=as_json):
        make_key_file(file)
        if as_json:
            print_figures({"file": str(file)})
        else:
            told = f"{file} holds a new secret: name it in a gateway's admin_key_file"
            table_console().print(told, markup=False, soft_wrap=True)


@contextmanager
def _kept(out: Path | None) -> Iterator[Callable[[rest.ApiKeyView], None]]:
    """How a secret is kept; the file is there before the secret is made, so that it can't fail
    afterwards."""
    if out is None:
        yield lambda _made: None
        return
    with new_key_file(out) as write:
        yield lambda made: write(_secret(made))


def _wanted(role: Role, tenant: str) -> rest.ApiKeyPut:
    return rest.ApiKeyPut(role=role, tenant=public_name(tenant, path="tenant"))


def _secret(made: rest.ApiKeyView) -> str:
    if made.secret is None:
        raise UnavailableError(f"the gateway told no secret of {made.name!r}: rotate it")
    return made.secret


def _tell_secret(made: rest.ApiKeyView, out: Path | None, *, as_json: bool) -> None:
    secret = _secret(made)
    if as_json:
        told = {"file": str(out)} if out is not None else {"secret": secret}
        print_figures(_figures(made) | told)
    elif out is not None:
        table_console().print(f"{made.name}: {made.role}, its secret is in {out}", markup=False)
    else:
        progress_console().print(
            f"{made.name}: {made.role}. This is its secret, which is told only now:", markup=False
        )
        typer.echo(secret)


def _print(key: rest.ApiKeyView, *, as_json: bool, dry_run: bool = False) -> None:
    if as_json:
        print_figures(_figures(key) | ({"dry_run": True} if dry_run else {}))
        return
    table_console().print(_key_table([key]))
    if dry_run:
        progress_console().print("dry run, nothing is done")
    tell_staleness([key])


def _figures(key: rest.ApiKeyView) -> dict[str, Any]:
    return key.model_dump(mode="json", exclude={"secret"})


def _key_table(keys: Sequence[rest.ApiKeyView]) -> Table:
    table = plain_table("key", "role", "tenant", "made")
    for key in keys:
        made = datetime.fromtimestamp(key.created_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M UTC")
        table.add_row(key.name, key.role, key.tenant, made if key.created_ms else "–")
    return table
