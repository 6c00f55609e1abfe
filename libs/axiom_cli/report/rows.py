"""Charts with one row a thing, as inline SVG: dots on a scale, or bars. For many things that differ
by orders of magnitude, with bounds as vertical lines.

A row that stands out is drawn in the first colour and in bold; a kind of dot has its own shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from axiom_cli.report.charts import Mark
from axiom_cli.report.scales import Scale, linear_scale, log_scale
from axiom_cli.report.svg import WIDTH, frame, number, percent, text

LEFT, RIGHT, BOTTOM = 150, 74, 44
ROW_PX = 24
MARK_PX = 13
"""Above the rows, for the name of each mark."""
_MARK_TURNS_PX = WIDTH - 240


@dataclass(frozen=True, slots=True, kw_only=True)
class DotChart:
    """Row r has a dot of kind k at `values[r][k]`, joined by a line; None: there is none.

    The scale is logarithmic; values at or below zero lie on its left end, with their number.
    """

    title: str
    x_label: str
    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    marks: tuple[Mark, ...] = ()
    marked: str | None = None
    """The row that stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBarChart:
    """One bar a row, of a share from 0 to 1; None: there is none."""

    title: str
    x_label: str
    rows: tuple[str, ...]
    values: tuple[float | None, ...]
    marks: tuple[Mark, ...] = ()
    marked: str | None = None


def dot_chart(chart: DotChart) -> str:
    """The chart as one `<svg>` element; the last dot of a row carries its value as text."""
    known = [v for row in chart.values for v in row if v is not None]
    positive = [v for v in (*known, *(mark.at for mark in chart.marks)) if v > 0] or [1.0]
    x = log_scale(min(positive), max(positive), start_px=LEFT, end_px=WIDTH - RIGHT)
    body = _ground(x, chart.rows, chart.marks, chart.x_label, number, chart.marked)
    for index, (name, row) in enumerate(zip(chart.rows, chart.values, strict=True)):
        at_y, colour = _row_y(index, chart.marks), _colour(name, chart.marked)
        dots = [(kind, value) for kind, value in enumerate(row) if value is not None]
        if not dots:
            body.append(text(LEFT + 6, at_y + 4, "none"))
            continue
        first, last = x(max(dots[0][1], x.low)), x(max(dots[-1][1], x.low))
        body.append(
            f'<line class="span {colour}" x1="{first:.1f}" x2="{last:.1f}" '
            f'y1="{at_y:.1f}" y2="{at_y:.1f}"/>'
        )
        body += [_dot(kind, x(max(value, x.low)), at_y, colour) for kind, value in dots]
        body.append(text(last + 9, at_y + 4, number(dots[-1][1]), "value"))
    return frame(chart.title, body, height=_height(chart.rows, chart.marks))


def row_bar_chart(chart: RowBarChart) -> str:
    """The chart as one `<svg>` element; each bar carries its value as text."""
    x = linear_scale(1.0, start_px=LEFT, end_px=WIDTH - RIGHT)
    body = _ground(x, chart.rows, chart.marks, chart.x_label, percent, chart.marked)
    for index, (name, value) in enumerate(zip(chart.rows, chart.values, strict=True)):
        at_y = _row_y(index, chart.marks)
        if value is None:
            body.append(text(LEFT + 6, at_y + 4, "none"))
            continue
        body.append(
            f'<rect class="bar {_colour(name, chart.marked)}" x="{LEFT}" y="{at_y - 7:.1f}" '
            f'width="{x(value) - LEFT:.1f}" height="14"/>'
        )
        body.append(text(x(value) + 5, at_y + 4, f"{value * 100:.1f} %", "value"))
    return frame(chart.title, body, height=_height(chart.rows, chart.marks))


def dot_legend(kinds: Sequence[str]) -> str:
    """The key of a dot chart: each shape with its name."""
    items = []
    for kind, name in enumerate(kinds):
        sample = _dot(kind, 17, 6, "s2")
        key = f'<svg class="key" viewBox="0 0 34 12" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{key}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _ground(
    x: Scale,
    rows: Sequence[str],
    marks: Sequence[Mark],
    label: str,
    shown: Callable[[float], str],
    marked: str | None,
) -> list[str]:
    """Grid, names of rows, marks."""
    top, bottom = MARK_PX * len(marks), _height(rows, marks) - BOTTOM
    body = []
    for tick in x.ticks:
        at = x(tick)
        body.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom:.1f}"/>'
        )
        body.append(text(at, bottom + 16, shown(tick), anchor="middle"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, label, "axis", "middle"))
    for index, name in enumerate(rows):
        kind = "name marked" if name == marked else "name"
        body.append(text(LEFT - 8, _row_y(index, marks) + 4, name, kind, "end"))
    for index, mark in enumerate(marks):
        at, at_y = x(max(mark.at, x.low)), MARK_PX * (index + 1) - 3
        body.append(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{at_y - 9}" y2="{bottom:.1f}"/>'
        )
        turns = at > _MARK_TURNS_PX
        name = text(at - 4 if turns else at + 4, at_y, mark.name, "mark", _anchor(turns=turns))
        body.append(name)
    return body


def _anchor(*, turns: bool) -> str:
    return "end" if turns else "start"


def _dot(kind: int, x: float, y: float, colour: str) -> str:
    """A circle, a diamond, a square, in turn."""
    if kind % 3 == 0:
        return f'<circle class="bar {colour}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if kind % 3 == 1 else ""
    return (
        f'<rect class="bar {colour}" x="{x - 4.2:.1f}" y="{y - 4.2:.1f}" width="8.4" '
        f'height="8.4"{turn}/>'
    )


def _colour(name: str, marked: str | None) -> str:
    return "s0" if name == marked else "s2"


def _row_y(index: int, marks: Sequence[Mark]) -> float:
    return MARK_PX * len(marks) + ROW_PX * (index + 0.5) + 4


def _height(rows: Sequence[str], marks: Sequence[Mark]) -> float:
    return MARK_PX * len(marks) + ROW_PX * len(rows) + 8 + BOTTOM
