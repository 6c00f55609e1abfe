"""One inference server, as an agent sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from axiom_common.model.engine import EngineRank
from axiom_common.model.ids import EngineAdapter

VLLM: Final = "vllm"
SGLANG: Final = "sglang"
"""Kinds of engines that there is a driver for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Cumulative sum (in seconds) and count of a latency since the engine started."""

    sum_s: float = 0.0
    count: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAdapters:
    """Residency as an engine's metrics tell it: which adapters are in HBM, which in host RAM (those
    in HBM may be told in both), in no order. Limits None: the engine does not say."""

    hbm: frozenset[EngineAdapter]
    host: frozenset[EngineAdapter]
    pinned: frozenset[EngineAdapter] = frozenset()
    hbm_slots: int | None = None
    host_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One scrape of an engine's metrics. None: the engine does not say.

    `in_use` are the adapters with a request that has produced output: neither residency nor demand.
    `max_loras` is the engine's own word on its HBM slots. `loaded` is its word on residency, which
    most engines do not give. Counters are totals since the engine started. `ranks` are told where
    several data-parallel ranks stand behind one address; all else is over all of them then, KV
    usage of the fullest.
    """

    running: int
    waiting: int
    deferred: int = 0
    kv_usage: float | None = None
    max_loras: int | None = None
    in_use: frozenset[EngineAdapter] = frozenset()
    ttft: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    prefill: Histogram = field(default_factory=Histogram)
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    started_s: float | None = None
    loaded: LoadedAdapters | None = None
    kv_tokens: int | None = None
    preemptions: float | None = None
    rejections: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    ranks: tuple[EngineRank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResidency:
    """Residency in the engine's own words: names in LRU order, least recently used first."""

    hbm: tuple[EngineAdapter, ...]
    host: tuple[EngineAdapter, ...]
    hbm_slots: int
    host_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineModels:
    """What GET /v1/models lists: the base models, and the adapters with their paths.

    Adapters stand in the order of their loads; `by_use`: the list is what host RAM holds, the least
    recently used first (SGLang).
    """

    base: tuple[str, ...]
    adapters: dict[EngineAdapter, str]
    by_use: bool = False


class Engine(Protocol):
    """Control side of an engine. All calls raise UnavailableError when it does not answer in time,
    EngineCallError when it answers with an error."""

    async def healthy(self) -> bool:
        """Whether /health answers 200; never raises."""
        ...

    async def sample(self) -> EngineSample:
        """Scrape the metrics."""
        ...

    async def models(self) -> EngineModels:
        """List the names that the engine answers to."""
        ...

    async def load(self, name: EngineAdapter, path: str) -> None:
        """Register `name` and make it resident. Loading a registered name again is no error, unless
        it stands for another path: that is refused like a load that fails."""
        ...

    async def unload(self, name: EngineAdapter) -> None:
        """Forget `name`. An unknown name is no error."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
