"""The admin API's shapes of what a gateway sees: nodes, their engines, GPUs and adapters.

All of it is as the node's agent last told it, with the requests that gateways have in flight added;
unknown is null. Every age is in ms at the moment of the answer's making, or says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from axiom_common.model.adapter import Residency
from axiom_common.model.engine import (
    EngineFigures,
    EngineRank,
    EngineState,
    GpuState,
    HostState,
    NodeState,
    PlanStatus,
)
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.ids import EngineId
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.wire.rest import Shape, StalenessMs

THROTTLES = {
    1: "idle",
    2: "application-clocks",
    4: "power-cap",
    8: "hw-slowdown",
    16: "sync-boost",
    32: "sw-thermal",
    64: "hw-thermal",
    128: "power-brake",
    256: "display-clocks",
}
"""NVML's bits for why clocks are held down."""


class PlanView(Shape):
    """The plan a node's agent last saw."""

    revision: int
    fence: int
    accepted: bool
    reason: str | None = None

    @classmethod
    def of(cls, plan: PlanStatus) -> PlanView:
        """The shape of a plan's status."""
        return cls(
            revision=plan.revision, fence=plan.fence, accepted=plan.accepted, reason=plan.reason
        )


class ThrottleView(Shape):
    """Why a GPU's clocks are held down, and for how long without a break; null: not told."""

    reason: str
    ms: float | None


class MigView(Shape):
    """One MIG instance of a GPU."""

    uuid: str
    memory_used_bytes: int | None
    memory_total_bytes: int | None


class GpuView(Shape):
    """One GPU as NVML tells of it. `throttles` null: the driver does not say."""

    index: int
    uuid: str | None
    name: str | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    utilization: float | None
    memory_utilization: float | None
    temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    memory_clock_mhz: int | None
    throttles: tuple[ThrottleView, ...] | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    xid: int | None
    xid_age_ms: float | None
    pcie_rx_bytes_per_s: float | None
    pcie_tx_bytes_per_s: float | None
    nvlink_rx_bytes_per_s: float | None
    nvlink_tx_bytes_per_s: float | None
    mig: tuple[MigView, ...]
    lost: bool

    @classmethod
    def of(cls, gpu: GpuState) -> GpuView:
        """The shape of a GPU."""
        same = {name: getattr(gpu, name) for name in _GPU_AS_IS}
        mig = tuple(MigView(**one._asdict()) for one in gpu.mig)
        return cls(throttles=_throttles(gpu), mig=mig, **same)


_GPU_AS_IS = tuple(name for name in GpuView.model_fields if name not in {"throttles", "mig"})


class HostView(Shape):
    """A host's memory and disk for adapters, in bytes."""

    memory_total_bytes: int | None
    memory_available_bytes: int | None
    page_cache_bytes: int | None
    adapter_cache_bytes: int | None
    adapter_disk_total_bytes: int | None
    adapter_disk_free_bytes: int | None

    @classmethod
    def of(cls, host: HostState) -> HostView:
        """The shape of a host's state."""
        return cls(**{name: getattr(host, name) for name in cls.model_fields})


class ResidentView(Shape):
    """One adapter on one engine. `source` says how this is known, `age_ms` how old that knowledge
    was when the agent told it; `in_flight` null: the engine's own requests are not known."""

    adapter: str
    state: str
    source: str
    in_flight: int | None
    remaining_ms: float
    age_ms: float

    @classmethod
    def of(cls, resident: Residency) -> ResidentView:
        """The shape of a residency."""
        return cls(**{name: getattr(resident, name) for name in cls.model_fields})


class RankView(Shape):
    """One data-parallel rank behind an engine's address."""

    rank: int
    running: int
    waiting: int
    kv_usage: float | None

    @classmethod
    def of(cls, rank: EngineRank) -> RankView:
        """The shape of a rank."""
        return cls(**rank._asdict())


class FailureView(Shape):
    """An adapter that the engine could not load, left out there until the time has passed."""

    adapter: str
    reason: str
    retry_in_ms: float


class _Figures(Shape):
    """What of an engine changes all the time: `EngineFigures`."""

    sample: int
    sample_age_ms: float
    running: int
    waiting: int
    deferred: int
    kv_usage: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    prefill_ms_per_token: float | None
    load_queue_ms: float
    preemptions_per_s: float | None
    rejections_per_s: float | None
    prefix_hit_share: float | None


class EngineUse(NamedTuple):
    """What gateways know of an engine: the order in force, their requests in flight, and whether it
    has nothing to do at all (None: not known)."""

    order: EngineOrder | None = None
    in_flight: int = 0
    idle: bool | None = None


class EngineView(_Figures):
    """An engine as its agent reports it. Residents in its LRU order, oldest first; `gpus` are
    indexes into those of the node. `order` is what an operator ordered of it (`cordon`, `drain`),
    with a note; `in_flight` counts the requests of all gateways there. `idle`: those are none, and
    the engine itself reports none, by a sample newer than its order; null: nobody tells.
    `staleness_ms`: since its node's last report, when all ages here were as they are told; null:
    known from the shadow cache only."""

    region: str
    node: str
    engine: str
    url: str
    kind: str
    base_model: str
    served_name: str
    status: str
    role: str
    max_num_seqs: int
    hbm_slots: int
    host_slots: int
    max_lora_rank: int
    kv_tokens: int | None
    gpus: tuple[int, ...]
    ranks: tuple[RankView, ...]
    residents: tuple[ResidentView, ...]
    registered: tuple[str, ...]
    failures: tuple[FailureView, ...]
    order: str | None
    note: str | None
    in_flight: int
    idle: bool | None
    staleness_ms: float | None

    @classmethod
    def of(
        cls, node: NodeState, engine: EngineState, use: EngineUse, staleness_ms: float | None
    ) -> EngineView:
        """The shape of one engine of a node."""
        limits = engine.limits
        return cls(
            region=node.region,
            node=node.node,
            engine=engine.engine,
            url=engine.url,
            kind=engine.kind,
            base_model=engine.base_model,
            served_name=engine.served_name,
            status=engine.status,
            role=engine.role,
            max_num_seqs=limits.max_num_seqs,
            hbm_slots=limits.hbm_slots,
            host_slots=limits.host_slots,
            max_lora_rank=limits.max_lora_rank,
            kv_tokens=limits.kv_tokens,
            gpus=engine.gpus,
            ranks=tuple(RankView.of(rank) for rank in engine.ranks),
            residents=tuple(ResidentView.of(resident) for resident in engine.residents),
            registered=engine.registered,
            failures=tuple(
                FailureView(adapter=f.adapter, reason=f.reason, retry_in_ms=f.retry_in_ms)
                for f in engine.failures
            ),
            order=use.order.kind if use.order else None,
            note=use.order.note if use.order else None,
            in_flight=use.in_flight,
            idle=use.idle,
            staleness_ms=staleness_ms,
            **{name: getattr(engine, name) for name in EngineFigures._fields},
        )


class NodeView(Shape):
    """A node as the answering gateway sees it. `staleness_ms`: since its last report, null: known
    from the shadow cache only. `gpus` empty: NVML does not say."""

    region: str
    node: str
    incarnation: int
    seq: int
    staleness_ms: float | None
    liveness: str
    engines: tuple[EngineView, ...]
    gpus: tuple[GpuView, ...]
    host: HostView | None
    plan: PlanView | None

    @classmethod
    def of(
        cls,
        state: NodeState,
        *,
        liveness: str,
        staleness_ms: float | None,
        uses: Mapping[EngineId, EngineUse],
    ) -> NodeView:
        """The shape of a node's state. `uses`: what gateways know of its engines."""
        engines = sorted(state.engines, key=lambda engine: engine.engine)
        return cls(
            region=state.region,
            node=state.node,
            incarnation=state.incarnation,
            seq=state.seq,
            staleness_ms=staleness_ms,
            liveness=liveness,
            engines=tuple(
                EngineView.of(state, engine, uses.get(engine.engine, EngineUse()), staleness_ms)
                for engine in engines
            ),
            gpus=tuple(GpuView.of(gpu) for gpu in state.gpus),
            host=HostView.of(state.host) if state.host else None,
            plan=PlanView.of(state.plan) if state.plan else None,
        )


class EnginePlanView(Shape):
    """What is planned for one engine, by the adapters' names there. The first homes, as many as it
    has slots, are made resident ahead of demand, the others when they are asked for; what is to be
    retired is unloaded once nobody uses it."""

    engine: str
    homes: tuple[str, ...]
    retire: tuple[str, ...]

    @classmethod
    def of(cls, plan: EnginePlan) -> EnginePlanView:
        """The shape of an engine's plan."""
        homes = tuple(spec.engine_name for spec in plan.load)
        return cls(engine=plan.engine, homes=homes, retire=plan.unload)


class NodePlanView(Shape):
    """A node's plan as it stands in the registry. `reason` is the scheduler's. `seen`: what the
    node's agent last said of a plan; once it accepted this one, its revision is the same."""

    region: str
    node: str
    revision: int
    fence: int
    reason: str
    engines: tuple[EnginePlanView, ...]
    seen: PlanView | None
    staleness_ms: StalenessMs = 0.0

    @classmethod
    def of(cls, plan: Plan, status: PlanStatus | None, *, staleness_ms: float) -> NodePlanView:
        """The shape of a plan beside its status."""
        return cls(
            region=plan.region,
            node=plan.node,
            revision=plan.revision,
            fence=plan.fence,
            reason=plan.reason,
            engines=tuple(EnginePlanView.of(one) for one in plan.engines),
            seen=PlanView.of(status) if status is not None else None,
            staleness_ms=staleness_ms,
        )


class ConfigView(Shape):
    """What a gateway runs with: all its settings by name, without secrets."""

    gateway: str
    settings: dict[str, Any]


class NodeGone(Shape):
    """A node that a watch told of and that the gateway has forgotten."""

    node: str


def _throttles(gpu: GpuState) -> tuple[ThrottleView, ...] | None:
    if gpu.throttle is None:
        return None
    ms = dict(gpu.throttled_ms)
    bits = [1 << n for n in range(gpu.throttle.bit_length()) if gpu.throttle >> n & 1]
    return tuple(
        ThrottleView(reason=THROTTLES.get(bit, f"bit-{bit}"), ms=ms.get(bit)) for bit in bits
    )
