"""Figures as a section of a Markdown document; the gateway's, and what they say of Axiom."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from axiom_common.errors import InvalidInputError

SECTION = "gateway figures"
OURS = "axiom"
_HEADS = {
    "cpu_us_small": "small",
    "cpu_us_small_adapter": "small, adapter",
    "cpu_us_chunk": "chunk",
    "cpu_us_32kB": "32 kB",
    "cpu_us_128kB": "128 kB",
    "added_ms_p50": "added p50, ms",
    "added_ms_p99": "p99, ms",
    "first_byte_ms": "first byte, ms",
    "first_byte_ms_64": "of 64",
}


def write_section(path: Path, name: str, body: str) -> None:
    """Replace what stands between the two marks of that name; InvalidInputError where they are
    not."""
    before, begin, end, after = _around(path, name)
    path.write_text(f"{before}{begin}\n{body}\n{end}{after}", encoding="utf-8")


def check_section(path: Path, name: str) -> None:
    """InvalidInputError now, where `write_section` would raise it after all was measured."""
    _around(path, name)


def _around(path: Path, name: str) -> tuple[str, str, str, str]:
    """What stands before the first mark, the marks, what stands after the second."""
    begin_mark, end_mark = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"can't read {path}: {error}", path="document") from error
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not (begin and end):
        raise InvalidInputError(f"{path} has no {begin_mark} and {end_mark}", path="document")
    return before, begin, end, after


def section(told: Mapping[str, Any], command: str) -> str:
    """Machine, commit, command, table, and the losses of Axiom."""
    machine, peers = told["machine"], told["peers"]
    lines = [
        f"`{command}` at commit {told['commit']}: {machine['cpu']}, {machine['cores']} cores, "
        f"Python {machine['python']}; {told['engines']} engines, {told['adapters']} adapters, "
        f"{told['repeats']} rounds of {told['seconds']:g} s a step.",
        "",
        f"| CPU us a request or chunk | {' | '.join(_HEADS.values())} |",
        f"| --- |{' ---: |' * len(_HEADS)}",
    ]
    for name, figures in peers.items():
        cells = (f"{figures[key]:.3g}" if key in figures else "" for key in _HEADS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_ratios(peers)])


def _ratios(peers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What a small request costs at Axiom for each peer, the losses named as such."""
    if OURS not in peers:
        return []
    ours = peers[OURS]["cpu_us_small"]
    by_ratio = {
        name: ours / figures["cpu_us_small"] for name, figures in peers.items() if name != OURS
    }
    lost = [f"{ratio:.1f} times {name}'s" for name, ratio in by_ratio.items() if ratio > 1]
    won = [f"{ratio:.2f} of {name}'s" for name, ratio in by_ratio.items() if ratio <= 1]
    lines = [""]
    if lost:
        lines.append(f"Lost: a small request costs Axiom {', '.join(lost)}.")
    if won:
        lines.append(f"Won: it costs Axiom {', '.join(won)}.")
    return lines if len(lines) > 1 else []
