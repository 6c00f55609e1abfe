"""What goes wrong with simulated engines: values; the run applies them."""

from __future__ import annotations

from typing import NamedTuple


class Throttle(NamedTuple):
    """An engine's steps take `factor` as long, from `at_ms` for `for_ms`."""

    engine: int
    factor: float
    at_ms: float
    for_ms: float


class Stall(NamedTuple):
    """An engine stops for `for_ms`, first at `at_ms`, then every `every_ms`, `times` times."""

    engine: int
    at_ms: float
    for_ms: float
    every_ms: float
    times: int


class Crash(NamedTuple):
    """An engine dies at `at_ms` with all that it ran, and is back, empty, `down_ms` later."""

    engine: int
    at_ms: float
    down_ms: float


Disturbance = Throttle | Stall | Crash
