"""Prometheus metrics of a process: `axiom_<service>_<what>_<unit>`, label values bounded.

A label whose values come from clients goes through `CappedLabel`: beyond its bound all further
values are counted as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

OTHER = "other"


class CappedLabel:
    """Passes the first `values_max` distinct values through and turns the rest into `other`."""

    def __init__(self, values_max: int) -> None:
        self._values: set[str] = set()
        self._values_max = values_max

    def __call__(self, value: str) -> str:
        """The value to use as a label."""
        if value in self._values:
            return value
        if len(self._values) >= self._values_max:
            return OTHER
        self._values.add(value)
        return value


class OwnHistogram(Collector):
    """A histogram without labels for one thread: counts at a fifth of the library's price, which
    locks. Shows its buckets when it is scraped."""

    def __init__(
        self, name: str, about: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._about = about
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """What a scrape reads."""
        labels = (*map(str, self._bounds), "+Inf")
        buckets = list(zip(labels, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._about, buckets, self._sum)


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """Body and content type of `/metrics`."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
