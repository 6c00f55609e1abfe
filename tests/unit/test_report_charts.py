"""Scales and charts: round numbers, pixels inside the frame, well-formed SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from axiom_cli.report.charts import (
    HEIGHT,
    WIDTH,
    BarChart,
    LineChart,
    Mark,
    Series,
    bar_chart,
    legend,
    line_chart,
    number,
)
from axiom_cli.report.scales import linear_scale, log_scale, time_scale


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
