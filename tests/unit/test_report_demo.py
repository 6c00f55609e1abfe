"""The demo's figures and its page."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from axiom_cli.demo.command import demo_table
from axiom_cli.demo.figures import (
    EngineCounters,
    EngineKill,
    FleetCounters,
    Observation,
    Outcome,
    PolicyRun,
    outcome,
    percentile,
    policy_figures,
)
from axiom_cli.demo.report import TABLE_HEAD, demo_report, table_row

KILL = EngineKill(engine="n1.e1", at_ms=10_000, back_ms=14_000)


def seen(**changes: object) -> Observation:
    fields: dict[str, object] = {
        "sent_ms": 9_000.0,
        "ended_ms": 10_050.0,
        "ttft_ms": 100.0,
        "tokens": 7,
        "engine": "n1.e1",
        "error": "cut",
    }
    return Observation(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observation", "kill", "expected"),
    [
        (seen(error=""), KILL, Outcome.DONE),
        (seen(), KILL, Outcome.INTERRUPTED),
        (seen(), None, Outcome.FAILED),
        (seen(ttft_ms=None), KILL, Outcome.FAILED),
        (seen(engine="n1.e2"), KILL, Outcome.FAILED),
        (seen(ended_ms=9_990.0), KILL, Outcome.FAILED),
        (seen(ended_ms=20_000.0), KILL, Outcome.FAILED),
        (seen(sent_ms=10_001.0, ended_ms=10_500.0), KILL, Outcome.FAILED),
    ],
)
def test_only_the_killed_engines_begun_streams_are_interrupted(
    observation: Observation, kill: EngineKill | None, expected: Outcome
) -> None:
    assert outcome(observation, kill) is expected


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3], 0.99, 3), ([4, 1, 3, 2], 0.5, 2), (range(1, 101), 0.99, 99)],
)
def test_percentiles_are_nearest_rank(
    values: list[float], share: float, expected: float | None
) -> None:
    assert percentile(values, share) == expected


def test_what_a_killed_engine_had_counted_is_kept() -> None:
    fleet = FleetCounters()
    fleet.seen("a", EngineCounters(adapter_loads=3, prefix_query_tokens=10))
    fleet.seen("b", EngineCounters(adapter_loads=1))
    fleet.seen("a", EngineCounters(adapter_loads=5, prefix_query_tokens=20, prefix_hit_tokens=4))
    fleet.ended("a")
    fleet.seen("a", EngineCounters(adapter_loads=9))
    total = fleet.total()
    assert total == EngineCounters(adapter_loads=15, prefix_query_tokens=20, prefix_hit_tokens=4)
    assert total.minus(EngineCounters(adapter_loads=4)).adapter_loads == 11


def test_figures_of_a_run() -> None:
    observations = [
        seen(sent_ms=0.0, ended_ms=1_000.0, ttft_ms=50.0, tokens=30, error=""),
        seen(sent_ms=500.0, ended_ms=2_000.0, ttft_ms=150.0, tokens=10, error=""),
        seen(),
        seen(ttft_ms=None, tokens=0, error="status 503", ended_ms=9_100.0),
    ]
    figures = policy_figures(
        observations,
        EngineCounters(adapter_loads=4, prefix_query_tokens=200, prefix_hit_tokens=50),
        KILL,
    )
    assert (figures.requests, figures.failed, figures.interrupted) == (4, 1, 1)
    assert (figures.ttft_ms_p50, figures.ttft_ms_p99) == (100.0, 150.0)
    assert figures.tokens_per_s == pytest.approx(47 / 10.05, abs=0.05)
    assert figures.prefix_hit_tokens_share == 0.25


def test_an_empty_run_has_figures_too() -> None:
    figures = policy_figures([], EngineCounters(), None)
    assert (figures.requests, figures.ttft_ms_p99, figures.tokens_per_s) == (0, None, 0.0)


def run(policy: str, kill: EngineKill | None = KILL) -> PolicyRun:
    observations = tuple(
        seen(
            sent_ms=i * 100.0,
            ended_ms=i * 100.0 + 900,
            ttft_ms=40.0 + i,
            engine=f"n1.e{i % 2 + 1}",
            error="",
        )
        for i in range(200)
    )
    return PolicyRun(
        policy=policy,
        figures=policy_figures(observations, EngineCounters(adapter_loads=12), kill),
        observations=observations,
        loads=((0, 0), (5_000, 4), (20_000, 12)),
        kill=kill,
    )


class _Tags(HTMLParser):
    """Checks nesting and collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [v or "" for k, v in attrs if k in {"href", "src", "data", "srcset"}]
        if tag == "h2":
            self.headings.append(tag)
        if tag not in {"meta", "path", "line", "rect"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [v or "" for k, v in attrs if k in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("kill", [KILL, None])
def test_the_page_is_whole_and_needs_nothing_from_outside(kill: EngineKill | None) -> None:
    runs = [run("round-robin", kill), run("least-loaded", kill), run("axiom", kill)]
    html = demo_report(runs, setting="24 adapters <here>", facts={"cpu": "x & y"})
    tags = _Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.references == []
    assert len(tags.headings) == 5
    assert html.count('<svg class="chart"') == 4
    assert "<script" not in html
    assert not re.search(r"url\(|@import|https?:", html)
    assert "&lt;here&gt;" in html
    assert "x &amp; y" in html
    assert ("killed" in html.split("</table>", 1)[1]) == (kill is not None)


def test_a_page_of_requests_that_all_failed_is_still_a_page() -> None:
    lost = PolicyRun(
        policy="axiom",
        figures=policy_figures([seen(ttft_ms=None, engine="")], EngineCounters(), None),
        observations=(seen(ttft_ms=None, engine=""),),
        loads=(),
        kill=None,
    )
    assert "no data" in demo_report([lost], setting="s", facts={})


def test_a_row_has_a_cell_for_each_column() -> None:
    row = table_row(run("axiom"))
    assert len(row) == len(TABLE_HEAD)
    assert row[0] == "axiom"


def test_the_terminal_table_fits_eighty_columns_with_nothing_cut() -> None:
    told = io.StringIO()
    runs = [run("round-robin"), run("least-loaded"), run("axiom")]
    Console(file=told, width=80).print(demo_table(runs))
    words = set(told.getvalue().split())
    assert "…" not in told.getvalue()
    assert {word for head in TABLE_HEAD for word in head.split()} <= words
    assert {"round-robin", "least-loaded", "axiom"} <= words
