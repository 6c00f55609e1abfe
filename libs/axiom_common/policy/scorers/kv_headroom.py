"""KV headroom: how much of the KV cache is free; nothing counts as free above the hard limit.

Near the limit an engine preempts running requests and computes them again, so pressure has a price
in time too: none up to `PRESSURE_FROM`, then growing in a line to twice the service time at the
hard limit, and on beyond it.
"""

from __future__ import annotations

PRESSURE_FROM = 0.80
HARD_LIMIT = 0.95


def kv_headroom(usage: float | None) -> float:
    """The score in [0, 1] for a KV usage in [0, 1]; unknown usage is no reason to avoid."""
    if usage is None:
        return 1.0
    return 1.0 - usage if usage < HARD_LIMIT else 0.0


def kv_slowdown(usage: float | None) -> float:
    """The factor (at least 1) on the service time of a request that joins at this usage."""
    if usage is None:
        return 1.0
    return 1.0 + max(0.0, usage - PRESSURE_FROM) / (HARD_LIMIT - PRESSURE_FROM)
