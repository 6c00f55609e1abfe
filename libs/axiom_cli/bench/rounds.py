"""Work that is measured in a process of its own, in turns with others, several rounds.

Of each figure the least counts, for other work on the same cores only ever adds.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rich.table import Table

from axiom_cli.output import plain_table, print_figures, progress_console, table_console
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.runtime.native import which_runs

WITHIN_S = 600.0


class Rounds(NamedTuple):
    """The least of each figure, by name, and how long all took."""

    of_each: dict[str, dict[str, Any]]
    seconds: float


def in_turns(
    commands_of: Callable[[], Mapping[str, list[str]]], rounds: int, *, within_s: float = WITHIN_S
) -> Rounds:
    """Make all commands and run them in turns, so often, and say so; UnavailableError when one
    fails or takes longer than `within_s`."""
    console = progress_console()
    console.print(which_runs(), style="dim")
    clock = SystemClock()
    began_ms = clock.now_ms()
    commands = commands_of()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            console.print(f"round {number + 1}: {name}", style="dim")
            found[name].append(measured(name, command, within_s=within_s))
    of_each = {name: least(figures) for name, figures in found.items()}
    return Rounds(of_each, (clock.now_ms() - began_ms) / 1e3)


def show(figures: dict[str, Any], *, as_json: bool) -> None:
    """Print what was measured, for scripts or for people."""
    if as_json:
        print_figures(figures)
    else:
        table_console().print(figures_table(figures))


def measured(name: str, command: list[str], *, within_s: float = WITHIN_S) -> dict[str, Any]:
    """The JSON object that the command prints; UnavailableError when it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=True)
        figures: dict[str, Any] = json.loads(ran.stdout)
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{name} failed: {error.stderr[-500:]}") from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{name} could not be measured: {error}") from error
    return figures


def least(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of each figure, at any depth; the most of a rate."""
    return {
        key: least([figures[key] for figures in rounds])
        if isinstance(value, dict)
        else (max if key.endswith("_per_s") else min)(figures[key] for figures in rounds)
        for key, value in rounds[0].items()
    }


def figures_table(figures: dict[str, Any]) -> Table:
    """Every figure, and each part of one that has some."""
    table = plain_table("figure", "of", "value", right=("value",))
    for key, value in figures.items():
        parts = value if isinstance(value, dict) else {"": value}
        for name, part in parts.items():
            shown = f"{part:.3g}" if isinstance(part, float) else str(part)
            table.add_row(key, name, shown)
    return table
