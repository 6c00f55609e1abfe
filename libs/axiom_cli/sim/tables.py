"""The figures of one variant as people read them: rows of text, and what they say of Axiom. Pure.

Terminal, report and document all show these; `results` are those of `axiom sim run --json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from axiom_cli.report.svg import number
from axiom_sim.exam.means import CI_SUFFIX

OURS = "axiom"
BEST = " *"
"""After a cell that no policy beats."""
NONE = "–"
ORACLES = {"clairvoyant": "clairvoyant", "fresh_state": "fresh-state"}
"""Keys of the bounds that are dispatchers, with their names: they know more than a policy may."""

Figures = Mapping[str, Any]


def share(value: float) -> str:
    """A share in percent, to a tenth."""
    return f"{value * 100:.1f} %"


@dataclass(frozen=True, slots=True)
class Column:
    """A figure: its key, its head, how it is written, and whether more of it is better."""

    key: str
    head: str
    shown: Callable[[float], str] = number
    more_is_better: bool = False


COLUMNS = (
    Column("goodput", "goodput", share, more_is_better=True),
    Column("ttft_ms_p50", "TTFT p50, ms"),
    Column("ttft_ms_p99", "TTFT p99, ms"),
    Column("tpot_ms_p99", "TPOT p99, ms"),
    Column("adapter_loads", "adapter loads"),
    Column("unsafe_evictions", "unsafe evictions"),
    Column("max_over_mean_load", "max/mean load"),
    Column("failed", "failed"),
)
HEAD = ("policy", *(column.head for column in COLUMNS))


def policy_rows(result: Figures) -> list[tuple[str, ...]]:
    """One row a policy, then one each oracle; the best cell of a column has the mark `BEST`."""
    policies: Mapping[str, Figures] = result["policies"]
    best = {column.key: _best(column, policies) for column in COLUMNS}
    rows = [
        (name, *(_cell(column, figures, best[column.key]) for column in COLUMNS))
        for name, figures in policies.items()
    ]
    for key, name in ORACLES.items():
        if (figures := result.get("bounds", {}).get(key)) is not None:
            rows.append((name, *(_cell(column, figures, None) for column in COLUMNS)))
    return rows


def _best(column: Column, policies: Mapping[str, Figures]) -> float | None:
    """None where all are equal."""
    values: list[float] = [v for p in policies.values() if (v := p.get(column.key)) is not None]
    if len(set(values)) < 2:
        return None
    return max(values) if column.more_is_better else min(values)


def _cell(column: Column, figures: Figures, best: float | None) -> str:
    value = figures.get(column.key)
    if value is None:
        return NONE
    shown = column.shown(value)
    if (width := figures.get(f"{column.key}{CI_SUFFIX}")) is not None:
        shown = f"{shown} ± {column.shown(width).removesuffix(' %')}"
    return shown + (BEST if value == best else "")


def bound_lines(result: Figures) -> list[str]:
    """What no policy can beat, in words."""
    bounds: Figures = result.get("bounds", {})
    told = [
        text.format(shown(value))
        for key, text, shown in (
            ("belady_loads", "no policy loads fewer than {} (Belady, one pool)", number),
            ("true_rate_loads", "{} with true rates and no foresight, one pool", number),
            ("ttft_floor_ms_p99", "TTFT p99 at least {} ms", number),
            ("pooled_goodput", "goodput at most {}", share),
        )
        if (value := bounds.get(key)) is not None
    ]
    return [f"Bounds: {'; '.join(told)}."] if told else []


def best_baseline(policies: Mapping[str, Figures]) -> str | None:
    """By goodput, then by p99 of TTFT; None where only Axiom was run."""
    others = [name for name in policies if name != OURS]
    return max(others, key=lambda name: _rank(policies[name]), default=None)


def _rank(figures: Figures) -> tuple[float, float]:
    p99 = figures.get("ttft_ms_p99")
    return (figures.get("goodput") or 0.0, -(p99 if p99 is not None else float("inf")))


def verdict_lines(result: Figures) -> list[str]:
    """Axiom beside the best baseline, with its losses; and how its distance to a dispatcher that
    knows the future splits into foresight and staleness."""
    policies: Mapping[str, Figures] = result["policies"]
    if OURS not in policies:
        return []
    ours, lines = policies[OURS], []
    if (name := best_baseline(policies)) is not None:
        lines.append(f"Axiom beside {name}, the best baseline: {_beside(ours, policies[name])}.")
        lines += _lost(ours, {n: p for n, p in policies.items() if n != OURS})
    bounds = result.get("bounds", {})
    fresh, clairvoyant = bounds.get("fresh_state"), bounds.get("clairvoyant")
    if fresh and clairvoyant:
        lines.append(f"Foresight, fresh-state to clairvoyant: {_step(fresh, clairvoyant)}.")
    if fresh:
        lines.append(f"Staleness, axiom to fresh-state: {_step(ours, fresh)}.")
    return lines


def _beside(ours: Figures, theirs: Figures) -> str:
    parts = [f"goodput {share(ours['goodput'])} to {share(theirs['goodput'])}"]
    for key, head in (("ttft_ms_p99", "TTFT p99"), ("adapter_loads", "loads")):
        mine, other = ours.get(key), theirs.get(key)
        if mine is not None and other:
            parts.append(f"{head} {mine / other:.2f} times")
    return ", ".join(parts)


def _lost(ours: Figures, others: Mapping[str, Figures]) -> list[str]:
    """The columns in which somebody is better than Axiom, with who is best."""
    lost = []
    for column in COLUMNS:
        mine, best = ours.get(column.key), _best(column, {"": ours, **others})
        if mine is None or best is None or mine == best:
            continue
        who = next(name for name, figures in others.items() if figures.get(column.key) == best)
        lost.append(f"{column.head} to {who} ({column.shown(best)})")
    return [f"Lost: {'; '.join(lost)}."] if lost else []


def _step(before: Figures, after: Figures) -> str:
    parts = [f"goodput {(after['goodput'] - before['goodput']) * 100:+.1f} points"]
    here, there = before.get("ttft_ms_p99"), after.get("ttft_ms_p99")
    if here is not None and there is not None:
        parts.append(f"TTFT p99 {there - here:+,.0f} ms")
    return ", ".join(parts)


def overview_rows(results: Mapping[str, Figures]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Goodput of all policies, one column a variant; head and rows, the first for utilisation."""
    goodput = COLUMNS[0]
    best = {name: _best(goodput, result["policies"]) for name, result in results.items()}
    policies = dict.fromkeys(name for one in results.values() for name in one["policies"])
    rows = [("(utilisation)", *(share(result["utilisation"]) for result in results.values()))]
    rows += [
        (
            policy,
            *(_cell(goodput, r["policies"].get(policy, {}), best[v]) for v, r in results.items()),
        )
        for policy in policies
    ]
    return ("policy", *results), rows
