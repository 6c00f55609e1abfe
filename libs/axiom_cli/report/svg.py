"""Pieces that all charts are made of: text and the frame, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 720


def text(x: float, y: float, shown: str, kind: str = "tick", anchor: str = "start") -> str:
    """Plain text at a place; `kind` is its CSS class."""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(shown)}</text>"
    )


def frame(title: str, body: Sequence[str], *, height: float) -> str:
    """The `<svg>` element around a chart; `title` is read to those who can't see it."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(body)}</svg>'
    )


def number(value: float) -> str:
    """A value as people read it: 12,300, 830, 4.2, 0.05."""
    if value and abs(value) < 1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 20 or value == int(value) else f"{value:.1f}"


def percent(value: float) -> str:
    """A share as whole percents."""
    return f"{value * 100:.0f} %"
