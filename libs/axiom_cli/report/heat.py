"""A heat map as inline SVG: one row a thing, time to the right, shade by level.

Neighbours of one level in a row are one rectangle, so that a quiet run is a small picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from axiom_cli.report.scales import time_scale
from axiom_cli.report.svg import WIDTH, frame, number, text

SHADES = 5
LEFT, RIGHT, TOP, BOTTOM = 150, 20, 8, 40
_ROW_PX_MAX, _ROWS_PX = 14.0, 520.0
_LABEL_PX = 11.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """`levels[r][c]`: how much row r has in column c of time, 0 for nothing; all rows are equally
    long. `bounds` are the least values of the shades 2 to `SHADES`, rising."""

    title: str
    x_label: str
    end: float
    rows: tuple[str, ...]
    levels: tuple[tuple[int, ...], ...]
    bounds: tuple[int, int, int, int]


def heat_map(heat: HeatMap) -> str:
    """The map as one `<svg>` element."""
    row_px = min(_ROW_PX_MAX, _ROWS_PX / max(1, len(heat.rows)))
    bottom = TOP + row_px * len(heat.rows)
    height = bottom + BOTTOM
    x = time_scale(heat.end or 1.0, start_px=LEFT, end_px=WIDTH - RIGHT)
    body = [
        f'<rect class="ground" x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" '
        f'height="{bottom - TOP:.1f}"/>'
    ]
    every = max(1, round(_LABEL_PX / row_px + 0.49))
    for index, (name, row) in enumerate(zip(heat.rows, heat.levels, strict=True)):
        at = TOP + index * row_px
        if index % every == 0:
            body.append(text(LEFT - 8, at + row_px / 2 + 4, name, "name", "end"))
        body += _cells(row, heat.bounds, at, row_px)
    for tick in x.ticks:
        body.append(text(x(tick), bottom + 16, number(tick), anchor="middle"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 34, heat.x_label, "axis", "middle"))
    return frame(heat.title, body, height=height)


def heat_legend(bounds: tuple[int, int, int, int], what: str) -> str:
    """The key: each shade with its levels, and what they count."""
    edges = (1, *bounds)
    items = []
    for shade, low in enumerate(edges, start=1):
        high = edges[shade] - 1 if shade < SHADES else None
        name = f"{low}" if low == high else f"{low} to {high}" if high else f"{low} or more"
        sample = f'<rect class="heat h{shade}" x="11" y="0" width="12" height="12"/>'
        key = f'<svg class="key" viewBox="0 0 34 12" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{key}{name}{f' {what}' if shade == SHADES else ''}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def bounds_for(most: int) -> tuple[int, int, int, int]:
    """Bounds for levels up to `most`: by equal ratios, one by one where there are few."""
    first, second, third, last = (max(n + 1, round(most ** (n / 4))) for n in (1, 2, 3, 4))
    return (first, second, third, last)


def _cells(row: Sequence[int], bounds: Sequence[int], at_y: float, row_px: float) -> Iterator[str]:
    cell_px = (WIDTH - RIGHT - LEFT) / max(1, len(row))
    column = 0
    for shade, run in groupby(_shade(level, bounds) for level in row):
        length = len(list(run))
        if shade:
            yield (
                f'<rect class="heat h{shade}" x="{LEFT + column * cell_px:.1f}" y="{at_y:.1f}" '
                f'width="{length * cell_px:.1f}" height="{max(1.0, row_px - 1):.1f}"/>'
            )
        column += length


def _shade(level: int, bounds: Sequence[int]) -> int:
    return 0 if level <= 0 else 1 + sum(level >= bound for bound in bounds)
