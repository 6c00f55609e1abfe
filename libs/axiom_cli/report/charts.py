"""Charts as inline SVG, without a library: lines, and grouped bars.

Colours are CSS classes (`s0`, `s1`, ...), so that the page decides on light and dark; each series
also has its own dash or order, so that nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from axiom_cli.report.scales import Scale, linear_scale, log_scale, time_scale
from axiom_cli.report.svg import WIDTH, frame, number, percent, text

HEIGHT = 300
LEFT, RIGHT, TOP, BOTTOM = 62, 28, 14, 44
MARK_TURNS = 0.8
"""Names of marks beyond this share of the width stand left of their line."""
DASHES = ("", "7 4", "2 3", "9 3 2 3")
"""Dash pattern of each series; the first is drawn solid and thicker, on top of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line; `points` are (x, y) in order of x."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment worth a vertical line, with its name."""

    at: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """What to draw. `x_log` and `y_log` leave out points at or below zero on that axis.

    `y_share` fixes the y axis to 0..100 %; `step` holds each value until the next point.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    x_log: bool = False
    y_log: bool = False
    y_share: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Groups of bars: `values[s][g]` is the value of series s in group g."""

    title: str
    y_label: str
    groups: tuple[str, ...]
    series: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


def line_chart(chart: LineChart) -> str:
    """The chart as one `<svg>` element. The first series is the one to look at."""
    lines = [_drawable(series, chart) for series in chart.series]
    points = [point for line in lines for point in line]
    if not points:
        nothing = text(WIDTH / 2, HEIGHT / 2, "no data", anchor="middle")
        return frame(chart.title, [nothing], height=HEIGHT)
    x = _x_scale([p[0] for p in points], log=chart.x_log)
    y = _y_scale([p[1] for p in points], chart)
    body = [*_axes(x, y, chart.x_label, chart.y_label, percent if chart.y_share else number)]
    for index, mark in enumerate(chart.marks):
        body += _mark(x(mark.at), mark.name, row=index)
    for index in reversed(range(len(lines))):
        path = _path([(x(px), y(py)) for px, py in lines[index]], step=chart.step)
        dash = f' stroke-dasharray="{DASHES[index]}"' if DASHES[index] else ""
        body.append(f'<path class="line s{index}" d="{path}"{dash}/>')
    return frame(chart.title, body, height=HEIGHT)


def bar_chart(chart: BarChart) -> str:
    """The chart as one `<svg>` element; each bar carries its value as text."""
    peak = max((value for row in chart.values for value in row), default=0.0)
    y = linear_scale(peak * 1.08, start_px=_bottom(), end_px=TOP)
    body = list(_y_axis(y, chart.y_label, number))
    group_px = (WIDTH - LEFT - RIGHT) / max(1, len(chart.groups))
    bar_px = min(38.0, group_px * 0.8 / max(1, len(chart.series)))
    for g, group in enumerate(chart.groups):
        middle = LEFT + (g + 0.5) * group_px
        body.append(text(middle, _bottom() + 17, group, anchor="middle"))
        start = middle - bar_px * len(chart.series) / 2
        for s in range(len(chart.series)):
            value = chart.values[s][g]
            left, top = start + s * bar_px, y(value)
            body.append(
                f'<rect class="bar s{s}" x="{left + 1:.1f}" y="{top:.1f}" '
                f'width="{bar_px - 2:.1f}" height="{_bottom() - top:.1f}"/>'
            )
            body.append(text(left + bar_px / 2, top - 4, number(value), "value", "middle"))
    return frame(chart.title, body, height=HEIGHT)


def legend(names: Sequence[str], *, bars: bool = False) -> str:
    """The key of a chart: a sample of each line, or of each bar, with its name."""
    items = []
    for index, name in enumerate(names):
        dash = f' stroke-dasharray="{DASHES[index]}"' if DASHES[index] else ""
        sample = f'<path class="line s{index}" d="M1 6H33"{dash}/>'
        if bars:
            sample = f'<rect class="bar s{index}" x="11" y="0" width="12" height="12"/>'
        key = f'<svg class="key" viewBox="0 0 34 12" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{key}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _drawable(series: Series, chart: LineChart) -> list[tuple[float, float]]:
    return [
        (x, y)
        for x, y in series.points
        if not (chart.x_log and x <= 0) and not (chart.y_log and y <= 0)
    ]


def _x_scale(values: Sequence[float], *, log: bool) -> Scale:
    if log:
        return log_scale(min(values), max(values), start_px=LEFT, end_px=WIDTH - RIGHT)
    return time_scale(max(values) or 1.0, start_px=LEFT, end_px=WIDTH - RIGHT)


def _y_scale(values: Sequence[float], chart: LineChart) -> Scale:
    if chart.y_share:
        return linear_scale(1.0, start_px=_bottom(), end_px=TOP)
    if chart.y_log:
        return log_scale(min(values), max(values), start_px=_bottom(), end_px=TOP)
    return linear_scale(max(values), start_px=_bottom(), end_px=TOP)


def _axes(
    x: Scale, y: Scale, x_label: str, y_label: str, y_text: Callable[[float], str]
) -> list[str]:
    body = _y_axis(y, y_label, y_text)
    for tick in x.ticks:
        body.append(text(x(tick), _bottom() + 17, number(tick), anchor="middle"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "axis", "middle"))
    return body


def _y_axis(y: Scale, label: str, shown: Callable[[float], str]) -> list[str]:
    body = []
    for tick in y.ticks:
        at = y(tick)
        body.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        body.append(text(LEFT - 7, at + 4, shown(tick), anchor="end"))
    middle = (TOP + _bottom()) / 2
    body.append(
        f'<text class="axis" text-anchor="middle" transform="translate(14 {middle:.0f}) '
        f'rotate(-90)">{escape(label)}</text>'
    )
    return body


def _mark(at_px: float, name: str, *, row: int) -> list[str]:
    line = f'<line class="mark" x1="{at_px:.1f}" x2="{at_px:.1f}" y1="{TOP}" y2="{_bottom()}"/>'
    y_px = TOP + 9 + 12 * row
    if at_px > MARK_TURNS * WIDTH:
        return [line, text(at_px - 4, y_px, name, "mark", "end")]
    return [line, text(at_px + 4, y_px, name, "mark")]


def _path(points: Sequence[tuple[float, float]], *, step: bool) -> str:
    parts = []
    for index, (x, y) in enumerate(points):
        if index == 0:
            parts.append(f"M{x:.1f} {y:.1f}")
        elif step:
            parts.append(f"H{x:.1f}V{y:.1f}")
        else:
            parts.append(f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _bottom() -> int:
    return HEIGHT - BOTTOM
