"""What telemetry tells of a simulated engine: all that a policy may know of it."""

from __future__ import annotations

from typing import NamedTuple

from axiom_sim.fleet.requests import Unit


class Resident(NamedTuple):
    """An adapter in an engine's HBM, and how many requests run with it."""

    adapter: int
    running: int


class KvChange(NamedTuple):
    """The engine's cache holds (`stored`), or no longer holds, the prompt prefix of an adapter that
    ends with `unit`; `tokens` deep from the prompt's beginning."""

    adapter: int
    unit: Unit
    tokens: int
    stored: bool


class EngineReport(NamedTuple):
    """One engine at `at_ms`, told a while later. Times are means over the last beats, None without
    a sample. `residents` and `host` are in LRU order, oldest first; an adapter in `residents` is in
    `host` as well.

    `alive` False: nothing listens there. `sample` counts the reports of this engine; `life` its
    starts. `waiting` includes `deferred`, those that lack an adapter slot. `throttled`: the GPU
    tells that heat holds its clocks down. `kv_changes` since the report before this one, for
    policies that follow them.
    """

    engine: int
    at_ms: float
    alive: bool
    life: int
    sample: int
    running: int
    waiting: int
    deferred: int
    kv_usage: float
    ttft_ms: float | None
    tpot_ms: float | None
    prefill_ms_per_token: float | None
    load_queue_ms: float
    residents: tuple[Resident, ...]
    host: tuple[int, ...]
    throttled: bool
    kv_changes: tuple[KvChange, ...] = ()
