"""Engines, GPUs and nodes as their agent reports them. Unknown is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple, Self

from axiom_common.model.adapter import Residency
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.model.reason import Reason


class EngineStatus(StrEnum):
    """What the agent sees of an engine process."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    UNREACHABLE = "unreachable"


class Role(StrEnum):
    """Which phase of a request an engine serves."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Fixed capacity of an engine. `hbm_slots` 0: the engine serves no adapters. `kv_tokens` is the
    size of its KV cache, None where it does not say."""

    max_num_seqs: int = 256
    hbm_slots: int = 0
    host_slots: int = 0
    max_lora_rank: int = 0
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """Predicts how long one adapter takes to reach HBM: fixed + bytes / rate, per tier.

    Defaults: PCIe 4.0 x16 at 80 % of nominal, and a 10 Gb/s store (design figures of the fleet).
    """

    h2d_fixed_ms: float = 40.0
    h2d_gbps: float = 25.0
    store_fixed_ms: float = 40.0
    store_gbps: float = 1.2

    def h2d_ms(self, size_bytes: int) -> float:
        """Host RAM to HBM, in ms."""
        return self.h2d_fixed_ms + size_bytes / (self.h2d_gbps * 1e6)

    def cold_ms(self, size_bytes: int) -> float:
        """Store to host RAM to HBM, in ms."""
        return self.store_fixed_ms + size_bytes / (self.store_gbps * 1e6) + self.h2d_ms(size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailure:
    """An adapter that this engine could not load; excluded there until `retry_in_ms` has passed."""

    adapter: EngineAdapter
    reason: Reason
    retry_in_ms: float


class EngineFigures(NamedTuple):
    """What of an engine changes all the time: a beat brings this and leaves the rest as it was.

    A beat holds them as one array, and a reader refuses a longer one than it knows: readers learn a
    new figure before agents tell it.

    `sample` counts the scrapes that the figures come from, `sample_age_ms` is the age of the last:
    an agent that beats on while its engine hangs repeats a sample, and readers can tell. `deferred`
    of the `waiting` wait for something else than capacity: an adapter slot, a KV transfer.
    `ttft_ms`, `tpot_ms`, `prefill_ms_per_token` are means over the last beats, None if no sample.
    `load_queue_ms` is the predicted time of the loads that wait or run on this engine. The rates
    are over the last beats; `prefix_hit_share` is of prompt tokens, by the engine's own count.
    """

    sample: int = 0
    sample_age_ms: float = 0.0
    running: int = 0
    waiting: int = 0
    deferred: int = 0
    kv_usage: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    prefill_ms_per_token: float | None = None
    load_queue_ms: float = 0.0
    preemptions_per_s: float | None = None
    rejections_per_s: float | None = None
    prefix_hit_share: float | None = None


class EngineRank(NamedTuple):
    """One data-parallel rank behind an engine's address, where it has more than one."""

    rank: int
    running: int = 0
    waiting: int = 0
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine at one moment; the fields of `EngineFigures` lie in it.

    `base_model` is the fleet's name, `served_name` the engine's own name for it. `residents` are in
    the engine's LRU order, least recently used first, HBM and host alike. `registered` are the
    adapter names that the engine answers to; a registered name need not be resident.
    Of several data-parallel `ranks` behind one address the figures are the sums, of KV usage the
    largest, and an adapter is as resident as on the rank where it is least.
    """

    engine: EngineId
    url: str
    base_model: str
    served_name: str
    status: EngineStatus
    role: Role = Role.BOTH
    kind: str = "vllm"
    limits: EngineLimits = field(default_factory=EngineLimits)
    link: LinkModel = field(default_factory=LinkModel)
    gpus: tuple[int, ...] = ()
    sample: int = 0
    sample_age_ms: float = 0.0
    running: int = 0
    waiting: int = 0
    deferred: int = 0
    kv_usage: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    prefill_ms_per_token: float | None = None
    load_queue_ms: float = 0.0
    preemptions_per_s: float | None = None
    rejections_per_s: float | None = None
    prefix_hit_share: float | None = None
    ranks: tuple[EngineRank, ...] = ()
    residents: tuple[Residency, ...] = ()
    registered: tuple[EngineAdapter, ...] = ()
    failures: tuple[LoadFailure, ...] = ()

    @property
    def figures(self) -> EngineFigures:
        """What a beat tells of the engine."""
        return EngineFigures._make(_figures(self))

    def with_figures(
        self,
        figures: EngineFigures,
        *,
        ranks: tuple[EngineRank, ...] | None = None,
        residents: tuple[Residency, ...] | None = None,
    ) -> Self:
        """The engine after a beat that told `figures`, and the others where they are given."""
        # Most of the cost of a beat lies here: as lean as it can be.
        after: dict[str, Any] = dict(zip(_NAMES, _values(self), strict=True))
        after |= zip(EngineFigures._fields, figures, strict=True)
        if ranks is not None:
            after["ranks"] = ranks
        if residents is not None:
            after["residents"] = residents
        return type(self)(**after)


_figures = attrgetter(*EngineFigures._fields)
_NAMES = tuple(field.name for field in fields(EngineState))
_values = attrgetter(*_NAMES)


class MigSlice(NamedTuple):
    """One MIG instance of a GPU."""

    uuid: str
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU from NVML; None, and an empty tuple, where NVML does not say.

    `throttle` is the raw reasons bit mask, `throttled_ms` for how long each bit of it has stood
    without a break: (bit, ms). Shares lie in [0, 1]; ECC counts are since the driver was loaded;
    `xid` is the last error event and `xid_age_ms` its age. Links are in bytes a second. `lost`: the
    GPU fell off the bus, or was unplugged.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: int | None = None
    throttled_ms: tuple[tuple[int, float], ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    xid_age_ms: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    mig: tuple[MigSlice, ...] = ()
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The host's memory and disk for adapters, in bytes; None where the system does not say.

    `adapter_cache_bytes` of the adapters' files lie in the page cache, so that a load reads no
    disk. `adapter_disk_*` is the file system that holds them.
    """

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    page_cache_bytes: int | None = None
    adapter_cache_bytes: int | None = None
    adapter_disk_total_bytes: int | None = None
    adapter_disk_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """The plan an agent last saw, and whether it carries it out (ACK) or refused it (NACK)."""

    revision: int
    fence: int
    accepted: bool
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A GPU host with its engines, whole. (incarnation, seq) orders all states of one node.

    `base` numbers the last report in it that told more than figures: what follows says which base
    it builds on. A state that names none (-1) is its own.
    """

    region: RegionId
    node: NodeId
    incarnation: int
    seq: int
    base: int = -1
    engines: tuple[EngineState, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    host: HostState | None = None
    plan: PlanStatus | None = None

    def __post_init__(self) -> None:
        if self.base < 0:
            object.__setattr__(self, "base", self.seq)
