"""The page of `axiom sim run --html`: for each variant the table and four charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from axiom_cli.report.charts import Mark
from axiom_cli.report.heat import HeatMap, bounds_for, heat_legend, heat_map
from axiom_cli.report.page import Section, figure, page, table
from axiom_cli.report.rows import DotChart, RowBarChart, dot_chart, dot_legend, row_bar_chart
from axiom_cli.report.svg import number
from axiom_cli.sim.tables import (
    HEAD,
    NONE,
    ORACLES,
    OURS,
    bound_lines,
    overview_rows,
    policy_rows,
    share,
    verdict_lines,
)
from axiom_sim.exam.outcome import Timeline

_TTFT_KINDS = ("p50", "p90", "p99")
_STAR = "An asterisk marks the best policy of a column."


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn of a variant beside its figures: TTFT p90 by policy, and a timeline."""

    ttft_ms_p90: Mapping[str, float | None]
    timeline: Timeline | None


def sim_report(
    scenario: str,
    about: str,
    results: Mapping[str, Mapping[str, Any]],
    drawn: Mapping[str, Drawn],
    *,
    facts: Mapping[str, str],
) -> str:
    """The whole page. `facts` (machine, commit, seeds, ...) go to its end."""
    sections = [_overview(results)] if len(results) > 1 else []
    sections += [_variant(name, result, drawn[name]) for name, result in results.items()]
    footer = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return page(f"Axiom, simulated: {scenario}", about, sections, footer=footer)


def _overview(results: Mapping[str, Mapping[str, Any]]) -> Section:
    head, rows = overview_rows(results)
    return Section(
        heading="Goodput",
        lead="The share of all requests that were answered within both limits, by variant.",
        body=table(head, rows, caption=_STAR),
    )


def _variant(name: str, result: Mapping[str, Any], drawn: Drawn) -> Section:
    policies = list(result["policies"])
    rows = policy_rows(result)
    marked = policies.index(OURS) if OURS in policies else None
    said = [*bound_lines(result), *verdict_lines(result)]
    body = [
        table(HEAD, rows, caption=_STAR, marked=marked),
        "".join(f"<p>{escape(line)}</p>" for line in said),
        _ttft(result, drawn),
        _loads(result),
        _goodput(result),
    ]
    if drawn.timeline is not None:
        body.append(_residency(drawn.timeline))
    return Section(
        heading=name,
        lead=f"Offered load is {share(result['utilisation'])} of what the engines can do.",
        body="".join(body),
    )


def _ttft(result: Mapping[str, Any], drawn: Drawn) -> str:
    policies: Mapping[str, Mapping[str, Any]] = result["policies"]
    values = tuple(
        (p["ttft_ms_p50"], drawn.ttft_ms_p90.get(name), p["ttft_ms_p99"])
        for name, p in policies.items()
    )
    chart = DotChart(
        title="Time to first token: median, 90th and 99th percentile, one row a policy",
        x_label="time to first token, ms (log)",
        rows=tuple(policies),
        kinds=_TTFT_KINDS,
        values=values,
        marks=_marks(result, ttft_floor_ms_p99="p99 of the floor"),
        marked=OURS,
    )
    rows = [
        (name, *(NONE if v is None else number(v) for v in row))
        for name, row in zip(policies, values, strict=True)
    ]
    return figure(
        dot_chart(chart),
        legend=dot_legend(_TTFT_KINDS),
        data=table(("policy", *_TTFT_KINDS), rows, caption="TTFT, ms, hold and RTT included."),
        caption="Time to first token",
    )


def _loads(result: Mapping[str, Any]) -> str:
    names, figures = _with_oracles(result)
    chart = DotChart(
        title="Adapter loads, one row a policy, with the bounds as lines",
        x_label="adapter loads (log)",
        rows=names,
        kinds=("loads",),
        values=tuple((one.get("adapter_loads"),) for one in figures),
        marks=_marks(result, belady_loads="Belady, one pool", true_rate_loads="true rates"),
        marked=OURS,
    )
    rows = [
        (name, NONE if loads is None else number(loads))
        for name, (loads,) in zip(names, chart.values, strict=True)
    ]
    rows += [(mark.name, number(mark.at)) for mark in chart.marks]
    return figure(
        dot_chart(chart),
        legend="",
        data=table(("policy", "loads"), rows, caption="Activations of an adapter in a slot."),
        caption="Adapter loads against bounds",
    )


def _goodput(result: Mapping[str, Any]) -> str:
    names, figures = _with_oracles(result)
    values = tuple(one.get("goodput") for one in figures)
    chart = RowBarChart(
        title="Goodput, one bar a policy",
        x_label="share of all requests",
        rows=names,
        values=values,
        marks=_marks(result, pooled_goodput="bound, one pool"),
        marked=OURS,
    )
    rows = [
        (name, NONE if value is None else share(value))
        for name, value in zip(names, values, strict=True)
    ]
    return figure(
        row_bar_chart(chart),
        legend="",
        data=table(("policy", "goodput"), rows, caption="Served within both limits."),
        caption="Goodput",
    )


def _residency(timeline: Timeline) -> str:
    most = max((level for row in timeline.levels for level in row), default=0)
    bounds = bounds_for(most)
    chart = heat_map(
        HeatMap(
            title=f"On how many engines each adapter was resident, under {timeline.policy}",
            x_label="time, s",
            end=timeline.end_s,
            rows=timeline.adapters,
            levels=timeline.levels,
            bounds=bounds,
        )
    )
    rows = [
        (name, number(max(row)), number(sum(row) / max(1, len(row))))
        for name, row in zip(timeline.adapters, timeline.levels, strict=True)
    ]
    others = f"; {timeline.left_out:,} less wanted are not shown" if timeline.left_out else ""
    return figure(
        chart,
        legend=heat_legend(bounds, "engines"),
        data=table(("adapter", "most", "mean"), rows, caption="Engines that hold it."),
        caption=f"Residency over time, {timeline.policy}, first seed{others}",
    )


def _with_oracles(
    result: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[Mapping[str, Any], ...]]:
    """Policies and oracles, as names and figures."""
    all_of = dict(result["policies"])
    bounds = result.get("bounds", {})
    all_of |= {name: bounds[key] for key, name in ORACLES.items() if key in bounds}
    return tuple(all_of), tuple(all_of.values())


def _marks(result: Mapping[str, Any], **names: str) -> tuple[Mark, ...]:
    bounds = result.get("bounds", {})
    return tuple(
        Mark(at=bounds[key], name=name)
        for key, name in names.items()
        if bounds.get(key) is not None
    )
