"""Prometheus metrics of a process, built from what `metric_names` declares.

A label whose values come from outside goes through `CappedLabel`: beyond its bound all further
values are counted as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import prod
from typing import ClassVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

OTHER = "other"
UNITS = ("seconds", "bytes", "celsius", "watts", "total", "ratio", "count")
Reading = Iterable[tuple[tuple[str, ...], float]]
"""Values of one metric by the values of its labels, in their order."""


class Service(StrEnum):
    """Who exposes a metric, as its name says it."""

    GATEWAY = "gateway"
    NODE_AGENT = "node_agent"
    SCHEDULER = "scheduler"
    TELEMETRY = "telemetry"


@dataclass(frozen=True, slots=True)
class Label:
    """A label with its closed list of values, or with how many values it has at most and why."""

    name: str
    values: tuple[str, ...] = ()
    values_max: int = 0
    bound: str = ""

    @property
    def most(self) -> int:
        """How many values there can be."""
        return len(self.values) or self.values_max


@dataclass(frozen=True, slots=True)
class _Metric:
    service: Service
    what: str
    """The name without `axiom_<service>_`; ends in its unit."""
    about: str
    labels: tuple[Label, ...] = ()

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The name of its series."""
        return f"axiom_{self.service.value}_{self.what}"

    @property
    def unit(self) -> str:
        """The last word of its name, one of `UNITS`."""
        return self.what.rpartition("_")[2]

    @property
    def label_names(self) -> tuple[str, ...]:
        """Its labels, in order."""
        return tuple(label.name for label in self.labels)

    @property
    def series_max(self) -> int:
        """How many series a process can have of it."""
        return prod(label.most for label in self.labels)


class CounterName(_Metric):
    """What only grows while the process lives."""

    __slots__ = ()
    kind = "counter"


class GaugeName(_Metric):
    """What goes up and down."""

    __slots__ = ()
    kind = "gauge"


@dataclass(frozen=True, slots=True)
class HistogramName(_Metric):
    """How values spread over `buckets`, given by their upper bounds."""

    buckets: tuple[float, ...] = ()

    kind = "histogram"

    @property
    def series_max(self) -> int:
        """One a bucket and the last one without bound, the sum and the count."""
        return prod(label.most for label in self.labels) * (len(self.buckets) + 3)


class CappedLabel(dict[Hashable, str]):
    """From what is counted to its label's value: the first ones as they are written, those beyond
    the bound of the label as `other`."""

    def __init__(self, label: Label) -> None:
        super().__init__()
        self._values_max = label.most - 1

    def __missing__(self, counted: Hashable) -> str:
        if len(self) >= self._values_max:
            return OTHER
        value = self[counted] = str(counted)
        return value


class MetricSet:
    """The metrics of one process: its registry, with what the system says of the process."""

    def __init__(self) -> None:
        # A second series beside each counter and histogram, which nobody queries.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

    def before_scrape(self, call: Callable[[], None]) -> None:
        """Call at each scrape, before what is made after this is read."""
        _BeforeScrape(call, self.registry)

    def counter(self, name: CounterName) -> Counter:
        """A counter to count with."""
        return Counter(name.name, name.about, name.label_names, registry=self.registry)

    def own_counter(self, name: CounterName) -> OwnCounter:
        """A cheap one, for one thread and with labels."""
        return OwnCounter(name, self.registry)

    def read_counter(self, name: CounterName, read: Callable[[], float]) -> None:
        """A counter that somebody else counts; `read` at each scrape."""
        _ReadCounter(name, read, self.registry)

    def gauge(self, name: GaugeName) -> Gauge:
        """A gauge to set."""
        return Gauge(name.name, name.about, name.label_names, registry=self.registry)

    def read_gauge(self, name: GaugeName, read: Callable[[], float]) -> None:
        """A gauge that is `read` at each scrape."""
        self.gauge(name).set_function(read)

    def read_gauges(self, name: GaugeName, read: Callable[[], Reading]) -> None:
        """A gauge with labels that is `read` at each scrape; what is not told then is not there."""
        _ReadGauges(name, read, self.registry)

    def read_flags(self, name: GaugeName, read: Callable[[], Collection[str]]) -> None:
        """A gauge with one closed label, the last value of which is `other`, that is `read` at each
        scrape: 1 for what is named, else 0."""
        (label,) = name.labels
        known = frozenset(label.values)

        def flags() -> Reading:
            named = {what if what in known else OTHER for what in read()}
            return [((value,), float(value in named)) for value in label.values]

        self.read_gauges(name, flags)

    def histogram(self, name: HistogramName) -> Histogram:
        """A histogram to observe with."""
        return Histogram(
            name.name, name.about, name.label_names, buckets=name.buckets, registry=self.registry
        )

    def own_histogram(self, name: HistogramName) -> OwnHistogram:
        """A cheap one, for one thread and without labels."""
        return OwnHistogram(name, self.registry)


class OwnCounter(Collector):
    """A counter with labels for one thread, as `OwnHistogram` is a histogram. Who counts adds to
    `counts`, which are by the values of the labels, in their order."""

    def __init__(self, name: CounterName, registry: CollectorRegistry) -> None:
        self._name = name
        self.counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        registry.register(self)

    def collect(self) -> Iterable[CounterMetricFamily]:
        """What a scrape reads."""
        name = self._name
        family = CounterMetricFamily(name.name, name.about, labels=name.label_names)
        for values, count in self.counts.items():
            family.add_metric(values, count)
        yield family


class OwnHistogram(Collector):
    """A histogram without labels for one thread: counts at a fifth of the library's price, which
    locks. Shows its buckets when it is scraped."""

    def __init__(self, name: HistogramName, registry: CollectorRegistry) -> None:
        self._name = name
        self._bounds = name.buckets
        self._counts = [0] * (len(name.buckets) + 1)
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
        yield HistogramMetricFamily(self._name.name, self._name.about, buckets, self._sum)


class _BeforeScrape(Collector):
    def __init__(self, call: Callable[[], None], registry: CollectorRegistry) -> None:
        self._call = call
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing, and so it is not called when it is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        self._call()
        return ()


class _ReadGauges(Collector):
    def __init__(
        self, name: GaugeName, read: Callable[[], Reading], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        name = self._name
        family = GaugeMetricFamily(name.name, name.about, labels=name.label_names)
        for values, value in self._read():
            family.add_metric(values, value)
        yield family


class _ReadCounter(Collector):
    def __init__(
        self, name: CounterName, read: Callable[[], float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[CounterMetricFamily]:
        yield CounterMetricFamily(self._name.name, self._name.about, self._read())


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """Body and content type of `/metrics`."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
