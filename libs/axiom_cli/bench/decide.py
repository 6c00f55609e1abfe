"""`axiom bench decide`: what one decision costs, compiled and in numpy, and the text of a request.

Each is measured in a process of its own, in turns, several rounds (`bench.rounds`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from axiom_cli.bench.rounds import in_turns, show
from axiom_cli.machine import commit, machine
from axiom_common.runtime.native import is_native

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
    found = in_turns(lambda: _commands(options), options.rounds)
    show(figures_of(options, found.of_each, seconds=found.seconds), as_json=options.as_json)


def _commands(options: DecideBenchOptions) -> dict[str, list[str]]:
    """Of those that can be measured here."""
    sizes = [str(size) for size in (options.engines, options.adapters, options.chunks)]
    python = [sys.executable, "-m"]
    kinds = (NATIVE, TWIN) if is_native() else (TWIN,)
    work = {kind: [*python, "axiom_cli.bench.decide_work", kind, *sizes] for kind in kinds}
    return {**work, RENDERING: [*python, "axiom_cli.bench.rendering_work"]}


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
