"""How commands speak: tables or one JSON object on stdout, progress and errors on stderr.

Exit codes: 0 done, 1 it could not be done, or not everywhere, 2 the command line or the settings
are wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.table import Table

from axiom_common.errors import AxiomError, InvalidInputError, SettingsError

FAILED = 1
WRONG_SETTINGS = 2


class OutputError(AxiomError):
    """Standard output can't be written."""

    code = "output-failed"


def progress_console() -> Console:
    """Where progress and remarks go."""
    return Console(stderr=True, highlight=False)


def table_console() -> Console:
    """Where tables for people go."""
    return Console(highlight=False)


def plain_table(*heads: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines; the columns of numbers are on the right."""
    table = Table(box=None, header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    return table


@contextmanager
def counting(what: str, *, doing: str = "reading") -> Iterator[Callable[[int], None]]:
    """Tell people how many there are by now, in a line that goes at the end. Scripts see nothing of
    it."""
    console = progress_console()
    if not console.is_terminal:
        yield lambda _count: None
        return
    with console.status(f"{doing} {what}") as line:
        yield lambda count: line.update(f"{doing} {what}: {count}")


class HasStaleness(Protocol):
    """What a gateway tells with its age."""

    @property
    def staleness_ms(self) -> float:
        """0: it is as it is now."""
        ...


def tell_staleness(declared: Sequence[HasStaleness]) -> None:
    """Say so when these are from the gateway's last view, as what tells it is away."""
    oldest_ms = max((one.staleness_ms for one in declared), default=0.0)
    if oldest_ms:
        told = f"this is as it was {oldest_ms / 1e3:.0f} s ago: axiom status says what is away"
        progress_console().print(told, style="yellow")


def tell_without(gateways: Sequence[str]) -> bool:
    """Say so when a change holds but for these gateways; whether it holds at all of them."""
    if gateways:
        told = (
            f"not confirmed by {', '.join(gateways)}: cut off or dead, nobody waits for it any "
            "more. If it is at work it goes on as before: take it out of the load balancer, or "
            "restart it"
        )
        progress_console().print(told, style="yellow", markup=False, soft_wrap=True)
    return not gateways


def print_figures(figures: Mapping[str, Any]) -> None:
    """The one JSON object of a command with --json."""
    sys.stdout.write(json.dumps(figures, allow_nan=False) + "\n")
    sys.stdout.flush()


@contextmanager
def told_errors(*, as_json: bool = False) -> Iterator[None]:
    """Turn the errors of Axiom into one line, or one JSON object, and an exit code.

    A group of errors (tasks that failed together) is told by its first one. Anything that is not an
    AxiomError is a defect and passes through with its trace.
    """
    try:
        yield
    except AxiomError as error:
        raise _tell(error, as_json=as_json) from error
    except BaseExceptionGroup as group:
        first = _first_error(group)
        if first is None:
            raise
        raise _tell(first, as_json=as_json) from group


def _first_error(group: BaseExceptionGroup[BaseException]) -> AxiomError | None:
    """The first AxiomError, when the group holds nothing else."""
    known, unknown = group.split(AxiomError)
    if unknown is not None or known is None:
        return None
    error: BaseException = known
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, AxiomError) else None


def _tell(error: AxiomError, *, as_json: bool) -> typer.Exit:
    line = " ".join(str(error).split())
    if as_json and not isinstance(error, OutputError):
        figures = {"code": error.code, "message": line}
        if isinstance(error, InvalidInputError) and error.path is not None:
            figures["path"] = error.path
        print_figures({"error": figures})
    else:
        sys.stderr.write(f"error: {line}\n")
    return typer.Exit(WRONG_SETTINGS if isinstance(error, SettingsError) else FAILED)
