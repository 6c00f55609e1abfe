"""The exam as a section of a Markdown document: all scenarios, and where Axiom lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from axiom_cli.report.svg import number
from axiom_cli.sim.tables import NONE, OURS, Figures, best_baseline, share

SECTION = "exam"
_HEAD = (
    "scenario, variant",
    "load",
    "goodput: axiom",
    "best baseline",
    "fresh-state",
    "clairvoyant",
    "bound",
    "TTFT p99, ms: axiom",
    "that baseline",
    "floor",
    "loads: axiom",
    "that baseline",
    "true rates",
    "Belady",
)

Results = Mapping[str, Mapping[str, Figures]]
"""By scenario, by variant."""


def exam_section(told: Mapping[str, Any], command: str) -> str:
    """What was run, a table of Axiom beside the best baseline and the bounds, its losses, and a
    table of everybody's goodput."""
    results: Results = told["scenarios"]
    machine = told["machine"]
    rows = [
        _row(f"{scenario}, {variant}", result)
        for scenario, variant, result in _each(results)
        if OURS in result["policies"]
    ]
    lost = [
        line
        for scenario, variant, result in _each(results)
        for line in _lost(f"{scenario}, {variant}", result)
    ]
    return "\n".join(
        [
            f"`{command}` at commit {told['commit']}: {machine['cpu']}, {machine['cores']} cores, "
            f"Python {machine['python']}; {told['seeds']} seed(s), {told['seconds'] / 60:.0f} "
            "minutes.",
            "",
            *_table(_HEAD, rows),
            "",
            *(["Lost:", "", *lost] if lost else ["No baseline had a better goodput or p99."]),
            "",
            "Goodput of all:",
            "",
            *_goodput(results),
        ]
    )


def _each(results: Results) -> Iterator[tuple[str, str, Figures]]:
    for scenario, variants in results.items():
        for variant, result in variants.items():
            yield scenario, variant, result


def _row(name: str, result: Figures) -> tuple[str, ...]:
    policies, bounds = result["policies"], result["bounds"]
    ours, best = policies[OURS], best_baseline(policies)
    theirs = policies.get(best, {})
    named = f"{_percent(theirs.get('goodput'))} {best}" if best else NONE
    return (
        name,
        share(result["utilisation"]),
        _percent(ours["goodput"]),
        named,
        _percent(bounds["fresh_state"]["goodput"]),
        _percent(bounds["clairvoyant"]["goodput"]),
        _percent(bounds["pooled_goodput"]),
        _known(ours["ttft_ms_p99"]),
        _known(theirs.get("ttft_ms_p99")),
        _known(bounds["ttft_floor_ms_p99"]),
        _known(ours["adapter_loads"]),
        _known(theirs.get("adapter_loads")),
        _known(bounds["true_rate_loads"]),
        _known(bounds["belady_loads"]),
    )


def _lost(name: str, result: Figures) -> list[str]:
    """A line where a baseline has a better goodput, p99 of TTFT, or fewer loads."""
    policies: Mapping[str, Figures] = result["policies"]
    if OURS not in policies:
        return []
    ours, parts = policies[OURS], []
    others = {n: p for n, p in policies.items() if n != OURS}
    for key, said, shown, sign in (
        ("goodput", "goodput", share, 1),
        ("ttft_ms_p99", "TTFT p99", number, -1),
        ("adapter_loads", "loads", number, -1),
    ):
        known = {n: p[key] for n, p in others.items() if p[key] is not None}
        if ours[key] is None or not known:
            continue
        who = max(known, key=lambda n: sign * known[n])
        if sign * known[who] > sign * ours[key]:
            parts.append(f"{said} {shown(ours[key])} to {who}'s {shown(known[who])}")
    return [f"- {name}: {'; '.join(parts)}"] if parts else []


def _goodput(results: Results) -> list[str]:
    names = list(
        dict.fromkeys(name for _, _, result in _each(results) for name in result["policies"])
    )
    rows = [
        (
            f"{scenario}, {variant}",
            *(_percent(result["policies"].get(name, {}).get("goodput")) for name in names),
        )
        for scenario, variant, result in _each(results)
    ]
    return _table(("scenario, variant", *names), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    ruler = f"| --- |{' ---: |' * (len(head) - 1)}"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.1f}"


def _known(value: float | None) -> str:
    return NONE if value is None else number(value)
