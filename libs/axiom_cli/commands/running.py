"""What commands share: how they are run, told to end, and which gateway they ask.

A command that asks a gateway is an async function that takes its `Target` and is decorated with
`asks_gateway`, which gives it the options that name one.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from axiom_cli.admin import Target
from axiom_cli.contexts import ContextsFile, Named, chosen
from axiom_cli.output import FAILED, told_errors
from axiom_common.errors import AxiomError, SettingsError
from axiom_common.runtime.settings import read_secret

T = TypeVar("T")
Command = Callable[..., Coroutine[Any, Any, bool | None]]
"""False: it was done in part only, which ends with `FAILED`."""

GATEWAY_PANEL = "Which gateway"


def contexts_file(ctx: typer.Context) -> ContextsFile:
    """The one that the root command was given, else the user's own."""
    given = ctx.find_root().params.get("contexts")
    return ContextsFile(Path(given or Path(typer.get_app_dir("axiom")) / "contexts.yaml"))


def _context_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the shell's completion, where an error must not be seen."""
    try:
        known = contexts_file(ctx).read().contexts
    except AxiomError:
        return []
    return [name for name in sorted(known) if name.startswith(incomplete)]


ContextName = Annotated[str, typer.Argument(help="A context.", autocompletion=_context_names)]


def _target(
    ctx: typer.Context,
    *,
    context: Annotated[
        str | None,
        typer.Option(
            envvar="AXIOM_CONTEXT",
            help="One of `axiom contexts list`; else the one in use.",
            autocompletion=_context_names,
            rich_help_panel=GATEWAY_PANEL,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="AXIOM_URL", help="Its URL.", rich_help_panel=GATEWAY_PANEL),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="AXIOM_KEY_FILE",
            help="The file with the secret of a key for it.",
            dir_okay=False,
            rich_help_panel=GATEWAY_PANEL,
        ),
    ] = None,
) -> Target:
    """The gateway that these options, the environment and the contexts name."""
    given = {"context": context, "url": url, "key_file": key_file}

    def level(*, environment: bool) -> Named:
        def is_of(name: str) -> bool:
            source = ctx.get_parameter_source(name)
            return (source is not None and source.name == "ENVIRONMENT") is environment

        return Named(**{name: value for name, value in given.items() if is_of(name)})  # type: ignore[arg-type]

    choice = chosen(level(environment=False), level(environment=True), contexts_file(ctx).read())
    try:
        return Target(choice.url, read_secret(choice.key_file))
    except SettingsError as error:
        raise SettingsError(f"the key file for {choice.context or choice.url}: {error}") from error


_TARGET = inspect.signature(_target, eval_str=True).parameters


def asks_gateway(command: Command) -> Callable[..., None]:
    """A command's function as typer takes it: with the options that name a gateway instead of its
    parameter `target`; errors are told, and its end has an exit code."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "target"
    ]

    @functools.wraps(command)
    def asking(**given: Any) -> None:
        of_target = {name: given.pop(name) for name in _TARGET}
        with told_errors(as_json=given.get("as_json", False)):
            done = run(command(target=_target(**of_target), **given))
        if done is False:
            raise typer.Exit(FAILED)

    parameters = [*own, *_TARGET.values()]
    as_keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    asking.__signature__ = inspect.Signature(as_keywords)  # type: ignore[attr-defined]
    return asking


def until_interrupted(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, for which Ctrl-C is the way to end it: no error."""

    @functools.wraps(command)
    def ended(**given: Any) -> None:
        try:
            command(**given)
        except KeyboardInterrupt:
            return

    ended.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return ended


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. SIGINT or SIGTERM cancel it; once it has cleaned up, KeyboardInterrupt."""

    async def until_signalled() -> asyncio.Task[T]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name="command")
            loop = asyncio.get_running_loop()

            def cancel() -> None:
                # Only the first signal counts: a second must not cut the clean-up short.
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.add_signal_handler(number, lambda: None)
                task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, cancel)
        return task

    task = uvloop.run(until_signalled())
    if task.cancelled():
        raise KeyboardInterrupt
    return task.result()
