"""Prometheus metrics of a process: `axiom_<service>_<what>_<unit>`, label values bounded.

A label whose values come from clients goes through `CappedLabel`: beyond its bound all further
values are counted as `other`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

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


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """Body and content type of `/metrics`."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
