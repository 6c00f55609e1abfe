"""The demo's report: what the figures say, and four charts of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from axiom_cli.demo.figures import PolicyRun, percentile
from axiom_cli.report.charts import (
    BarChart,
    LineChart,
    Mark,
    Series,
    bar_chart,
    legend,
    line_chart,
)
from axiom_cli.report.page import Section, figure, page, table
from axiom_cli.report.svg import number

TABLE_HEAD = (
    "policy",
    "requests",
    "failed",
    "interrupted",
    "adapter loads",
    "TTFT p50 ms",
    "TTFT p99 ms",
    "tokens/s",
    "prefix hits",
)
_CDF_POINTS = 120
_BINS = 10
_SHARES = (0.5, 0.9, 0.95, 0.99)


def table_row(run: PolicyRun) -> tuple[str, ...]:
    """A policy's figures as people read them, in the order of TABLE_HEAD."""
    figures = run.figures
    return (
        run.policy,
        number(figures.requests),
        number(figures.failed),
        number(figures.interrupted),
        number(figures.adapter_loads),
        _known(figures.ttft_ms_p50),
        _known(figures.ttft_ms_p99),
        number(figures.tokens_per_s),
        f"{figures.prefix_hit_tokens_share * 100:.1f} %",
    )


def demo_report(runs: Sequence[PolicyRun], *, setting: str, facts: Mapping[str, str]) -> str:
    """The page. The last run is Axiom's: it is drawn first and stands out.

    `setting` says in a sentence what was run, `facts` (machine, commit, ...) go to the footer.
    """
    ordered = [runs[-1], *runs[:-1]]
    sections = [
        Section(
            heading="The figures",
            lead="Loads are activations of an adapter in a GPU slot, counted by the engines. "
            "Interrupted are streams that the killed engine had begun.",
            body=table(
                TABLE_HEAD,
                [table_row(run) for run in runs],
                caption="Equal hardware, equal requests at equal times, each policy on a fresh "
                "fleet.",
                marked=len(runs) - 1,
            ),
        ),
        _ttft_section(ordered),
        _p99_section(ordered),
        _loads_section(ordered),
        _engines_section(ordered),
    ]
    footer = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return page("Axiom demo", setting, sections, footer=footer)


def _ttft_section(runs: Sequence[PolicyRun]) -> Section:
    chart = LineChart(
        title="Share of requests by time to first token, one line a policy",
        x_label="time to first token, ms (log)",
        y_label="share of requests",
        series=tuple(Series(name=run.policy, points=_distribution(run)) for run in runs),
        x_log=True,
        y_share=True,
    )
    rows = [
        (run.policy, *(_known(percentile(_ttfts(run), share)) for share in _SHARES)) for run in runs
    ]
    head = ("policy", *(f"p{share * 100:.0f} ms" for share in _SHARES))
    return Section(
        heading="Time to first token",
        lead="How many requests had their first token within a time; further left is better.",
        body=figure(
            line_chart(chart),
            legend=legend([run.policy for run in runs]),
            data=table(head, rows, caption="Percentiles of time to first token."),
        ),
    )


def _p99_section(runs: Sequence[PolicyRun]) -> Section:
    lines = [_p99_over_time(run) for run in runs]
    chart = LineChart(
        title="99th percentile of time to first token over the run, one line a policy",
        x_label="time, s",
        y_label="TTFT p99, ms (log)",
        series=tuple(
            Series(name=run.policy, points=line) for run, line in zip(runs, lines, strict=True)
        ),
        marks=_marks(runs),
        y_log=True,
    )
    return Section(
        heading="p99 over time",
        lead="Requests are put into ten parts of the run by the time they were sent."
        + _marks_told(runs),
        body=figure(
            line_chart(chart),
            legend=legend([run.policy for run in runs]),
            data=_timeline(runs, lines, "TTFT p99, ms, by time sent."),
        ),
    )


def _loads_section(runs: Sequence[PolicyRun]) -> Section:
    lines = [tuple((at / 1e3, float(loads)) for at, loads in run.loads) for run in runs]
    chart = LineChart(
        title="Adapter loads since the start of the run, one line a policy",
        x_label="time, s",
        y_label="adapter loads",
        series=tuple(
            Series(name=run.policy, points=line) for run, line in zip(runs, lines, strict=True)
        ),
        marks=_marks(runs),
        step=True,
    )
    return Section(
        heading="Adapter loads",
        lead="Each load stops an engine for its whole time; a flat line is a fleet at rest."
        + _marks_told(runs),
        body=figure(
            line_chart(chart),
            legend=legend([run.policy for run in runs]),
            data=_timeline(runs, lines, "Adapter loads since the start."),
        ),
    )


def _engines_section(runs: Sequence[PolicyRun]) -> Section:
    counts = [Counter(seen.engine for seen in run.observations if seen.engine) for run in runs]
    engines = tuple(sorted(set().union(*counts)))
    chart = BarChart(
        title="Requests served by each engine, one bar a policy",
        y_label="requests",
        groups=engines,
        series=tuple(run.policy for run in runs),
        values=tuple(tuple(float(count[engine]) for engine in engines) for count in counts),
    )
    rows = [
        (run.policy, *(number(count[engine]) for engine in engines))
        for run, count in zip(runs, counts, strict=True)
    ]
    return Section(
        heading="Requests per engine",
        lead="Affinity must not become a hot spot: no engine may carry the fleet alone.",
        body=figure(
            bar_chart(chart),
            legend=legend([run.policy for run in runs], bars=True),
            data=table(("policy", *engines), rows, caption="Requests by engine that served."),
        ),
    )


def _distribution(run: PolicyRun) -> tuple[tuple[float, float], ...]:
    ranked = sorted(_ttfts(run))
    stride = max(1, len(ranked) // _CDF_POINTS)
    kept = sorted({*range(0, len(ranked), stride), len(ranked) - 1} if ranked else set())
    return tuple((ranked[index], (index + 1) / len(ranked)) for index in kept)


def _p99_over_time(run: PolicyRun) -> tuple[tuple[float, float], ...]:
    end_ms = max((seen.sent_ms for seen in run.observations), default=0.0) + 1.0

    def bin_of(seen_at_ms: float) -> int:
        return int(seen_at_ms / end_ms * _BINS)

    sent = sorted(
        (seen.sent_ms, seen.ttft_ms) for seen in run.observations if seen.ttft_ms is not None
    )
    line = []
    for index, part in groupby(sent, key=lambda pair: bin_of(pair[0])):
        worst = percentile([ttft for _, ttft in part], 0.99)
        if worst is not None:
            line.append(((index + 0.5) * end_ms / _BINS / 1e3, worst))
    return tuple(line)


def _timeline(
    runs: Sequence[PolicyRun], lines: Sequence[tuple[tuple[float, float], ...]], caption: str
) -> str:
    """At most ten moments of each line, each the last value told by then."""
    end = max((x for line in lines for x, _ in line), default=0.0)
    moments = [end * (index + 1) / _BINS for index in range(_BINS)]
    rows = []
    for run, line in zip(runs, lines, strict=True):
        cells = []
        for moment in moments:
            told = [y for x, y in line if x <= moment + 1e-9]
            cells.append(number(told[-1]) if told else "–")
        rows.append((run.policy, *cells))
    return table(("policy", *(f"{moment:.0f} s" for moment in moments)), rows, caption=caption)


def _marks(runs: Sequence[PolicyRun]) -> tuple[Mark, ...]:
    kill = runs[0].kill
    if kill is None:
        return ()
    return (
        Mark(at=kill.at_ms / 1e3, name="flip, kill"),
        Mark(at=kill.back_ms / 1e3, name="back, empty"),
    )


def _marks_told(runs: Sequence[PolicyRun]) -> str:
    """What the marks stand for."""
    kill = runs[0].kill
    if kill is None:
        return ""
    return f" At the first mark popularity flips and {kill.engine} is killed; then it is back."


def _ttfts(run: PolicyRun) -> list[float]:
    return [seen.ttft_ms for seen in run.observations if seen.ttft_ms is not None]


def _known(value: float | None) -> str:
    return "–" if value is None else number(value)
