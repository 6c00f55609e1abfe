"""`axiom bench decide`: what one decision costs, compiled and in numpy, and the text of a request.

Each is measured in a process of its own, in turns, several rounds (`bench.rounds`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from axiom_cli.bench.rounds import figures_table, least, measured
from axiom_cli.machine import commit, machine
from axiom_cli.output import print_figures, progress_console, table_console
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.runtime.native import is_native, which_runs

NATIVE, TWIN = "native", "python"
RENDERING = "rendering"
PROMPT_BYTES = 128 << 10
_SIZES = ("decide_us", "small_us", "release_us", "decide_us_no_prompt")
"""Figures that both have; the twin's end with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideBenchOptions:
    """The size of the large fleet, and how many chunks its index holds."""

    engines: int
    adapters: int
    chunks: int
    rounds: int
    as_json: bool


def bench_decide(options: DecideBenchOptions) -> None:
    """Measure and print. UnavailableError when one of them fails."""
    console = progress_console()
    console.print(which_runs(), style="dim")
    clock = SystemClock()
    began_ms = clock.now_ms()
    rounds: dict[str, list[dict[str, Any]]] = {
        kind: [] for kind in ((NATIVE, TWIN) if is_native() else (TWIN,))
    }
    rounds[RENDERING] = []
    sizes = [str(size) for size in (options.engines, options.adapters, options.chunks)]
    python = [sys.executable, "-m"]
    for number in range(options.rounds):
        for kind in rounds:
            console.print(f"round {number + 1}: {kind}", style="dim")
            work = ["axiom_cli.bench.decide_work", kind, *sizes]
            if kind == RENDERING:
                work = ["axiom_cli.bench.rendering_work"]
            rounds[kind].append(measured(kind, [*python, *work]))
    of_each = {kind: least(figures) for kind, figures in rounds.items()}
    figures = figures_of(options, of_each, seconds=(clock.now_ms() - began_ms) / 1e3)
    if options.as_json:
        print_figures(figures)
    else:
        table_console().print(figures_table(figures))


def figures_of(
    options: DecideBenchOptions, of_each: dict[str, dict[str, Any]], *, seconds: float
) -> dict[str, Any]:
    """What is printed with --json. Without the compiled part the twin's figures stand alone."""
    own, twin = of_each.get(NATIVE, of_each[TWIN]), of_each[TWIN]
    return {
        "fleet": {
            "engines": options.engines,
            "adapters": options.adapters,
            "chunks": twin["chunks"],
        },
        "prompt_bytes": PROMPT_BYTES,
        **{size: own[size] for size in _SIZES},
        **{f"{size}_python": twin[size] for size in _SIZES},
        "render_us_20_messages": of_each[RENDERING]["chat_10kB"]["p50"],
        **{f"text_us_{kind}": times for kind, times in of_each[RENDERING].items()},
        "seconds": seconds,
        "repeats": options.rounds,
        "machine": machine(),
        "commit": commit(),
    }
