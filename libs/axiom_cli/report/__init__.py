"""A self-contained HTML report: pure functions from figures to SVG charts and a page."""
