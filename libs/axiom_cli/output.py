"""How commands speak: figures as one JSON object on stdout, all else for people on stderr.

Exit codes: 0 done, 1 it could not be done, 2 the command line or the settings are wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from axiom_common.errors import AxiomError, SettingsError

FAILED = 1
WRONG_SETTINGS = 2


def progress_console() -> Console:
    """Where progress and remarks go."""
    return Console(stderr=True, highlight=False)


def table_console() -> Console:
    """Where tables for people go."""
    return Console(highlight=False)


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
    if as_json:
        print_figures({"error": {"code": error.code, "message": line}})
    else:
        sys.stderr.write(f"error: {line}\n")
    return typer.Exit(
        WRONG_SETTINGS if isinstance(error, SettingsError) and not as_json else FAILED
    )
