"""The page around the charts: one HTML file without scripts or anything from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a sentence that says what to see, and HTML made by this package."""

    heading: str
    lead: str
    body: str


def page(title: str, lead: str, sections: Sequence[Section], *, footer: str) -> str:
    """The whole document. `title`, `lead`, headings and `footer` are plain text."""
    parts = [
        f"<section><h2>{escape(s.heading)}</h2><p>{escape(s.lead)}</p>{s.body}</section>"
        for s in sections
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>\n'
        + "\n".join(parts)
        + f"\n<footer><p>{escape(footer)}</p></footer>\n</main>\n</body>\n</html>\n"
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, marked: int | None = None
) -> str:
    """A table whose first column names the row; row `marked` stands out."""
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = []
    for index, row in enumerate(rows):
        cells = f'<th scope="row">{escape(row[0])}</th>'
        cells += "".join(f"<td>{escape(text)}</td>" for text in row[1:])
        body.append(f'<tr class="marked">{cells}</tr>' if index == marked else f"<tr>{cells}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def figure(chart: str, *, legend: str, data: str, caption: str = "") -> str:
    """A chart with its key, and its numbers as a table for those who can't see it. `caption` is
    for one of several in a section."""
    said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f"<figure>{said}{legend}{chart}"
        f"<details><summary>The numbers</summary>{data}</details></figure>"
    )


_STYLE = """
:root{--ink:#1c2430;--soft:#5b6675;--grid:#e3e7ec;--page:#fbfbf9;--card:#fff;--mark:#8a94a3;
--s0:#00725a;--s1:#b4560b;--s2:#2f5fd0;--s3:#8a2f9b;--tint:#e7f4ef}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a3adba;--grid:#2c3440;
--page:#12161c;--card:#1a2029;--mark:#77818f;--s0:#3ccf9e;--s1:#f0a35a;--s2:#82a8ff;--s3:#d58be6;
--tint:#15312a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:68rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.2rem;margin:2.6rem 0 .2rem}
p{margin:.2rem 0 .9rem;max-width:46rem}
.lead,footer,caption,section>p{color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;background:var(--card)}
caption{caption-side:bottom;text-align:left;padding:.5rem 0;font-size:.85rem}
th,td{padding:.5rem .75rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child{text-align:left}
thead th{font-weight:600;font-size:.85rem;color:var(--soft)}
tr.marked{background:var(--tint)}
tr.marked th,tr.marked td{font-weight:650}
figure{margin:0;padding:1rem;background:var(--card);border:1px solid var(--grid);border-radius:8px}
figure+figure{margin-top:1rem}
figcaption{font-weight:600;margin-bottom:.4rem}
.chart{display:block;width:100%;height:auto}
.chart text{font-size:12px;fill:var(--soft);font-family:inherit}
.chart text.value{fill:var(--ink);font-size:11px}
.chart text.mark{font-size:11px}
.chart text.name{fill:var(--ink)}
.chart text.name.marked{font-weight:650}
.span{stroke-width:2;opacity:.45}
.ground{fill:var(--page)}
.heat{fill:var(--s2)}
.h1{opacity:.22}.h2{opacity:.4}.h3{opacity:.6}.h4{opacity:.8}
.grid{stroke:var(--grid);stroke-width:1}
.mark{stroke:var(--mark);stroke-width:1;stroke-dasharray:2 2}
.chart text.mark{stroke:none;fill:var(--soft)}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.line.s0{stroke-width:3}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}
.bar{stroke:none}
.bar.s0{fill:var(--s0)}.bar.s1{fill:var(--s1)}.bar.s2{fill:var(--s2)}.bar.s3{fill:var(--s3)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;list-style:none;margin:0 0 .5rem;padding:0;
font-size:.9rem}
.legend li{display:flex;align-items:center;gap:.45rem}
.key{width:34px;height:12px}
details{margin-top:.6rem;font-size:.9rem}
summary{cursor:pointer;color:var(--soft)}
footer{margin-top:3rem;font-size:.85rem}
"""
