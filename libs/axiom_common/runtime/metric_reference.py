"""docs/metrics.md: `python -m axiom_common.runtime.metric_reference > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from axiom_common.runtime.metric_names import SERVICES, AnyMetric, metrics_of
from axiom_common.runtime.metrics import HistogramName, Label

_HEAD = """\
# Metrics

Made by `python -m axiom_common.runtime.metric_reference`; do not edit.

Every service answers `/metrics` on its port. Besides what stands here it tells what the system
knows of its process: `process_resident_memory_bytes`, `process_virtual_memory_bytes`,
`process_cpu_seconds_total`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds`.

A name is `axiom_<service>_<what>_<unit>`. `total` counts since the start of the process, `count`
is how many there are now, `ratio` is between 0 and 1. What is not known is not told. *Series* is
how many a process can have at most, whatever its clients send: a label has a closed list of values,
or a bound.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for service in SERVICES:
        metrics = metrics_of(service)
        yield f"## {metrics[0].service.value.replace('_', ' ').capitalize()}"
        yield f"At most {sum(metric.series_max for metric in metrics)} series a process.\n"
        yield "| metric | kind | unit | labels | series | what |"
        yield "| --- | --- | --- | --- | --- | --- |"
        yield from map(_row, metrics)
        yield ""
        yield from _labels(metrics)
        yield from _buckets(metrics)


def _row(metric: AnyMetric) -> str:
    labels = ", ".join(f"`{name}`" for name in metric.label_names)
    return (
        f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.series_max} "
        f"| {metric.about} |"
    )


def _labels(metrics: tuple[AnyMetric, ...]) -> Iterator[str]:
    """Each label once; where metrics differ in its values, each set of values."""
    known: dict[Label, list[str]] = {}
    for metric in metrics:
        for label in metric.labels:
            known.setdefault(label, []).append(metric.what)
    for label, where in known.items():
        values = ", ".join(f"`{value}`" for value in label.values if value)
        bound = f"at most {label.values_max}: {label.bound}"
        shared = sum(other.name == label.name for other in known) > 1
        of = f" (of {', '.join(f'`{what}`' for what in where)})" if shared else ""
        yield f"- `{label.name}`{of}: {values or bound}"
    if known:
        yield ""


def _buckets(metrics: tuple[AnyMetric, ...]) -> Iterator[str]:
    for metric in metrics:
        if isinstance(metric, HistogramName):
            bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
            yield f"- buckets of `{metric.what}`: {bounds}"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page().rstrip("\n") + "\n")
