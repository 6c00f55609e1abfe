"""A page of metrics in Prometheus' text form: single families found by plain search.

An agent reads a page of 60 kB four times a second for each engine and needs some twenty of its
hundreds of samples, so nothing else is looked at. What is no count of anything (negative, infinite,
absurdly large, not a number) is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from axiom_common.ports.engine import Histogram

FIGURE_MAX = float(1 << 53)
SAMPLES_MAX = 1024
"""Of one family that counts something: ranks and reasons. A page with more is no engine's."""

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class PrometheusPage:
    """One page. Where a method takes several names, they are one family's, the newest first: it was
    renamed, and the first present one counts. ValueError where a sample's value is no number, and
    where a family of figures has more than `SAMPLES_MAX` samples."""

    def __init__(self, text: str) -> None:
        self._text = "\n" + text

    def samples(self, name: str) -> Iterator[tuple[str, float]]:
        """(labels as they stand, value) of each sample of exactly `name`."""
        page = self._text
        needle = "\n" + name
        size = len(needle)
        start = page.find(needle)
        while start >= 0:
            begin = start + size
            end = page.find("\n", begin)
            rest = page[begin : end if end >= 0 else len(page)]
            if rest.startswith("{"):
                labels, _, value = rest[1:].rpartition("}")
            elif rest.startswith(" "):
                labels, value = "", rest
            else:
                start = page.find(needle, begin)
                continue
            # A sample may carry a time stamp behind its value.
            parts = value.split(None, 1)
            yield labels, float(parts[0] if parts else "nan")
            start = page.find(needle, begin)

    def declares(self, name: str) -> bool:
        """Whether the page knows the family, be it without a sample now."""
        return f"\n# TYPE {name} " in self._text

    def figures(self, *names: str) -> list[tuple[str, float]]:
        """(labels, value) of the samples that count something."""
        for name in names:
            found = []
            for labels, value in self.samples(name):
                if 0 <= value <= FIGURE_MAX:
                    found.append((labels, value))
                    if len(found) > SAMPLES_MAX:
                        raise ValueError(f"more than {SAMPLES_MAX} samples of {name}")
            if found:
                return found
        return []

    def total(self, *names: str) -> float | None:
        """The sum over all samples; None without any."""
        return total(self.figures(*names))

    def largest(self, *names: str) -> float | None:
        """The largest sample; None without any."""
        return max((value for _, value in self.figures(*names)), default=None)

    def histogram(self, *names: str) -> Histogram:
        """Sum and count over all samples; empty without any."""
        for name in names:
            count = self.total(f"{name}_count")
            if count is not None:
                return Histogram(sum_s=self.total(f"{name}_sum") or 0.0, count=count)
        return Histogram()


def total(figures: list[tuple[str, float]]) -> float | None:
    """The sum of (labels, value) pairs, within what a figure may be; None without any."""
    return min(sum(value for _, value in figures), FIGURE_MAX) if figures else None


def labels_of(labels: str) -> dict[str, str]:
    """A sample's labels by name."""
    found = dict(_LABEL.findall(labels))
    if "\\" in labels:
        found = {name: _ESCAPED.sub(_unescaped, value) for name, value in found.items()}
    return found


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
