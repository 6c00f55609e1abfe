"""Scales and charts: round numbers, pixels inside the frame, well-formed SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from axiom_cli.report.charts import (
    HEIGHT,
    BarChart,
    LineChart,
    Mark,
    Series,
    bar_chart,
    legend,
    line_chart,
)
from axiom_cli.report.heat import SHADES, HeatMap, bounds_for, heat_legend, heat_map
from axiom_cli.report.rows import DotChart, RowBarChart, dot_chart, dot_legend, row_bar_chart
from axiom_cli.report.scales import linear_scale, log_scale, time_scale
from axiom_cli.report.svg import WIDTH, number


@pytest.mark.parametrize("high", [0.0, 0.003, 1.0, 7, 9.99, 10, 123, 4_700, 1e7])
def test_a_linear_scale_covers_its_values_in_few_round_steps(high: float) -> None:
    scale = linear_scale(high, start_px=0, end_px=100)
    assert scale.low == 0
    assert scale.high >= high
    assert 2 <= len(scale.ticks) <= 8
    step = scale.ticks[1]
    assert f"{step:.0e}"[0] in "125"
    assert scale(scale.high) == 100


@pytest.mark.parametrize(("low", "high"), [(30, 8_000), (99, 101), (5, 5), (0.4, 2e5), (100, 100)])
def test_a_log_scale_covers_its_values_between_ticks(low: float, high: float) -> None:
    scale = log_scale(low, high, start_px=0, end_px=100)
    assert scale.low <= low
    assert scale.high >= high
    assert scale.low < scale.high
    assert scale.ticks[0] == pytest.approx(scale.low)
    assert scale.ticks[-1] == pytest.approx(scale.high)
    assert 0 <= scale(low) <= scale(high) <= 100


def test_a_log_scale_gives_equal_ratios_equal_lengths() -> None:
    scale = log_scale(10, 1000, start_px=0, end_px=200)
    assert scale(100) == pytest.approx(100)


def test_a_time_scale_ends_where_the_run_ends() -> None:
    scale = time_scale(43, start_px=0, end_px=86)
    assert scale(43) == 86
    assert max(scale.ticks) <= 43


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.05, "0.05"), (4.25, "4.2"), (7.0, "7"), (830.4, "830"), (12_300, "12,300")],
)
def test_numbers_read_well(value: float, text: str) -> None:
    assert number(value) == text


def line(**changes: object) -> LineChart:
    fields: dict[str, object] = {
        "title": "a < b",
        "x_label": "time, s",
        "y_label": "loads & more",
        "series": (
            Series(name="axiom", points=((0, 1), (5, 20), (10, 400))),
            Series(name="other", points=((0, 2), (10, 900))),
        ),
    }
    return LineChart(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "chart",
    [
        line(),
        line(y_log=True),
        line(x_log=True, y_log=True),
        line(step=True, marks=(Mark(at=5, name="flip <now>"),)),
        line(y_share=True, series=(Series(name="axiom", points=((1, 0.2), (9, 1.0))),)),
        line(series=(Series(name="axiom", points=((3, 3),)),)),
        line(series=()),
        line(y_log=True, series=(Series(name="axiom", points=((1, 0), (2, -1))),)),
    ],
)
def test_line_charts_are_well_formed_and_stay_inside(chart: LineChart) -> None:
    root = ElementTree.fromstring(line_chart(chart))
    assert root.get("aria-label") == "a < b"
    for path in root.iter("path"):
        for token in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d") or ""):
            assert 0 <= float(token[0]) <= WIDTH
            assert 0 <= float(token[1]) <= HEIGHT


def test_the_first_series_is_drawn_last_and_solid() -> None:
    paths = list(ElementTree.fromstring(line_chart(line())).iter("path"))
    assert [path.get("class") for path in paths] == ["line s1", "line s0"]
    assert paths[1].get("stroke-dasharray") is None
    assert paths[0].get("stroke-dasharray") is not None


def test_a_step_line_holds_its_value_until_the_next() -> None:
    svg = line_chart(line(step=True, series=(Series(name="a", points=((0, 0), (10, 10))),)))
    path = next(ElementTree.fromstring(svg).iter("path")).get("d") or ""
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+", path)


def test_bars_are_as_high_as_their_values_and_say_them() -> None:
    svg = bar_chart(
        BarChart(
            title="t",
            y_label="requests",
            groups=("e1", "e2"),
            series=("axiom", "other"),
            values=((100, 50), (25, 0)),
        )
    )
    root = ElementTree.fromstring(svg)
    heights = [float(rect.get("height") or 0) for rect in root.iter("rect")]
    tallest = max(heights)
    assert heights == pytest.approx([tallest, tallest / 4, tallest / 2, 0], abs=0.1)
    texts = [text.text for text in root.iter("text") if text.get("class") == "value"]
    assert texts == ["100", "25", "50", "0"]


def test_a_legend_names_each_series_with_its_own_dash() -> None:
    html = legend(["axiom", "<b>"])
    assert "&lt;b&gt;" in html
    root = ElementTree.fromstring(html)
    assert len({path.get("stroke-dasharray") for path in root.iter("path")}) == 2


def test_a_dot_chart_has_a_row_each_and_marks_for_bounds() -> None:
    chart = DotChart(
        title="TTFT <of> policies",
        x_label="ms",
        rows=("axiom", "aff", "nobody"),
        kinds=("p50", "p90", "p99"),
        values=((40.0, 90.0, 400.0), (60.0, None, 9_000.0), (None, None, None)),
        marks=(Mark(at=35.0, name="floor"),),
        marked="axiom",
    )
    root = ElementTree.fromstring(dot_chart(chart))
    assert len(root.findall("circle")) == 2
    assert len([one for one in root.findall("line") if one.get("class") == "mark"]) == 1
    texts = [one.text for one in root.findall("text")]
    assert {"axiom", "aff", "nobody", "none", "floor", "400", "9,000"} <= set(texts)
    marked = [one.text for one in root.findall("text") if "marked" in (one.get("class") or "")]
    assert marked == ["axiom"]
    assert ElementTree.fromstring(dot_legend(chart.kinds)).tag == "ul"


def test_dots_at_zero_lie_on_the_left_end_of_a_log_scale() -> None:
    chart = DotChart(title="t", x_label="x", rows=("a",), kinds=("k",), values=((0.0,),))
    (dot,) = ElementTree.fromstring(dot_chart(chart)).findall("circle")
    assert float(dot.get("cx") or 0) == pytest.approx(150, abs=1)


def test_bars_of_shares_stay_inside_and_tell_their_value() -> None:
    chart = RowBarChart(
        title="goodput",
        x_label="share",
        rows=("axiom", "aff", "none"),
        values=(0.987, 1.0, None),
        marks=(Mark(at=1.0, name="bound"),),
        marked="axiom",
    )
    root = ElementTree.fromstring(row_bar_chart(chart))
    bars = root.findall("rect")
    assert len(bars) == 2
    ends = [float(bar.get("x") or 0) + float(bar.get("width") or 0) for bar in bars]
    assert all(end <= WIDTH for end in ends)
    assert "98.7 %" in [one.text for one in root.findall("text")]


def test_a_heat_map_joins_equal_neighbours() -> None:
    heat = HeatMap(
        title="residency",
        x_label="s",
        end=60.0,
        rows=("a", "b"),
        levels=((1, 1, 0, 4), (0, 0, 0, 0)),
        bounds=bounds_for(4),
    )
    root = ElementTree.fromstring(heat_map(heat))
    cells = [one for one in root.findall("rect") if "heat" in (one.get("class") or "")]
    assert [one.get("class") for one in cells] == ["heat h1", "heat h4"]
    assert ElementTree.fromstring(heat_legend(heat.bounds, "engines")).tag == "ul"


@pytest.mark.parametrize("most", [0, 1, 2, 5, 6, 16, 100, 625])
def test_bounds_of_shades_rise(most: int) -> None:
    bounds = bounds_for(most)
    assert len(bounds) == SHADES - 1
    assert list(bounds) == sorted(set(bounds))
    assert bounds[0] >= 2
    assert bounds[-1] <= max(5, most)
