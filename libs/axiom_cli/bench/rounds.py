"""Work that is measured in a process of its own, in turns with others, several rounds.

Of each figure the least counts, for other work on the same cores only ever adds.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from rich.table import Table

from axiom_cli.output import plain_table
from axiom_common.errors import UnavailableError

WITHIN_S = 600.0


def measured(name: str, command: list[str]) -> dict[str, Any]:
    """The JSON object that the command prints; UnavailableError when it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)
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
