"""`axiom contexts`: the gateways that a user has names for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape

from axiom_cli.commands.options import AsJson
from axiom_cli.commands.running import ContextName, contexts_file
from axiom_cli.contexts import Context, Contexts
from axiom_cli.output import plain_table, print_figures, table_console, told_errors
from axiom_common.errors import NotFoundError, SettingsError
from axiom_common.runtime.settings import read_secret

app = typer.Typer(help="Names for gateways, each with its URL and key file.", no_args_is_help=True)


@app.command("list")
def list_command(ctx: typer.Context, as_json: AsJson = False) -> None:
    """All contexts; the one in use has a *."""
    with told_errors(as_json=as_json):
        file = contexts_file(ctx)
        known = file.read()
        if as_json:
            items = [_figures(known, name) for name in sorted(known.contexts)]
            print_figures({"file": str(file.path), "in_use": known.in_use, "contexts": items})
            return
        table = plain_table("", "context", "url", "key file")
        for name, context in sorted(known.contexts.items()):
            mark = "*" if name == known.in_use else ""
            table.add_row(mark, name, escape(context.url), escape(str(context.key_file or "–")))
        table_console().print(table if known.contexts else f"no context in {file.path}")


@app.command("show")
def show_command(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Else the one in use.")] = None,
    as_json: AsJson = False,
) -> None:
    """One context."""
    with told_errors(as_json=as_json):
        known = contexts_file(ctx).read()
        name = name or known.in_use
        if name is None:
            raise NotFoundError("no context is in use: `axiom contexts use NAME` chooses one")
        known.named(name)
        _print(known, name, as_json=as_json)


@app.command("use")
def use_command(ctx: typer.Context, name: ContextName, as_json: AsJson = False) -> None:
    """Ask this one from now on, where a command names no other."""
    with told_errors(as_json=as_json):
        _print(contexts_file(ctx).change(lambda known: known.using(name)), name, as_json=as_json)


@app.command("set")
def set_command(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the context.")],
    url: Annotated[str, typer.Option(help="Its gateway's URL.")],
    key_file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="The file with the secret of a key; its path is kept."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="And use it from now on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a context, or make it so. A new URL needs its key file named anew."""
    with told_errors(as_json=as_json):
        context = _context(url, key_file)

        def edit(known: Contexts) -> Contexts:
            known = known.having(name, context)
            return known.using(name) if use else known

        _print(contexts_file(ctx).change(edit), name, as_json=as_json)


@app.command("delete")
def delete_command(ctx: typer.Context, name: ContextName, as_json: AsJson = False) -> None:
    """Forget a context; its key file stays."""
    with told_errors(as_json=as_json):
        contexts_file(ctx).change(lambda known: known.without(name))
        if as_json:
            print_figures({"deleted": name})
        else:
            table_console().print(f"deleted {name}", markup=False)


def _context(url: str, key_file: Path | None) -> Context:
    if key_file is not None:
        key_file = key_file.expanduser().absolute()
        read_secret(key_file)
    try:
        return Context(url=url, key_file=key_file)
    except ValidationError as error:
        raise SettingsError(f"--url: {error.errors(include_url=False)[0]['msg']}") from error


def _print(known: Contexts, name: str, *, as_json: bool) -> None:
    figures = _figures(known, name)
    if as_json:
        print_figures(figures)
        return
    in_use = ", in use" if figures["in_use"] else ""
    key = figures["key_file"] or "no key file"
    told = f"{name}: {figures['url']} ({key}){in_use}"
    table_console().print(told, markup=False, soft_wrap=True)


def _figures(known: Contexts, name: str) -> dict[str, Any]:
    context = known.contexts[name]
    return {
        "name": name,
        "url": context.url,
        "key_file": None if context.key_file is None else str(context.key_file),
        "in_use": name == known.in_use,
    }
