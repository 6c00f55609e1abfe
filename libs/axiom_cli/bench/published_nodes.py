"""Nodes that are published instead of run: the messages that agents of busy hosts would send.

Each is of the size of a real one, and nothing of it stands still: figures move with every beat,
adapters change places, GPUs warm and cool. Which message a node sends when is the publisher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import (
    EngineFigures,
    EngineLimits,
    EngineState,
    EngineStatus,
    GpuState,
    HostState,
)
from axiom_common.model.ids import EngineAdapter, NodeId, RegionId, engine_id
from axiom_common.state.region_view import EngineBeat, NodeBeat, order_of
from axiom_common.wire.schemas import NodeReport, ReportKind, encode

BASE_MODEL = "published-8b"
INCARNATION = 1
ENGINES = 2
GPUS = 8
HBM_SLOTS = 4
HOST_SLOTS = 12
REGISTERED = 64
SHAPE = {
    "engines": ENGINES,
    "gpus": GPUS,
    "residents_per_engine": HBM_SLOTS + HOST_SLOTS,
    "registered_per_engine": REGISTERED,
}
"""Of each node, for those who read the figures."""
PROBE = "probe"
"""What the names of adapters begin with whose coming is measured."""
_READINGS = 16
"""Different readings of each GPU, prepared ahead."""

Truth = dict[str, list[list[str]]]
"""By engine, its residents oldest first, each as [adapter, state]."""


@dataclass(slots=True)
class _Engine:
    """Its figures in `state` are old: `figures` has the last."""

    state: EngineState
    figures: EngineFigures
    moved: bool = False
    """Its order is not the one that the last full or delta told."""
    loads: int = 0


class PublishedNode:
    """One node. Each method that tells gives the bytes of the next message, in order."""

    def __init__(self, region: RegionId, name: NodeId, random: Random) -> None:
        self.name = name
        self._region = region
        self._random = random
        states = [_first_state(name, number) for number in range(ENGINES)]
        self._engines = [_Engine(state, state.figures) for state in states]
        self._readings = [_gpus(reading) for reading in range(_READINGS)]
        self._seq = 0
        self._base = 0

    def full(self) -> bytes:
        """Everything."""
        self._begin_base(self._engines)
        return self._report(ReportKind.FULL, self._engines, base=None)

    def beat(self, *, gpus: bool, use: bool) -> bytes:
        """Figures; with `gpus` a new reading of all, with `use` an adapter became the youngest."""
        self._seq += 1
        if use:
            self._use(self._random.choice(self._engines))
        told = []
        for engine in self._engines:
            engine.figures = _next(engine.figures)
            order = None
            if engine.moved:
                order = order_of([r.adapter for r in engine.state.residents])
            told.append(EngineBeat(engine.state.engine, engine.figures, order))
        return encode(
            NodeBeat(
                region=self._region,
                node=self.name,
                incarnation=INCARNATION,
                seq=self._seq,
                base=self._base,
                engines=tuple(told),
                gpus=self._readings[self._seq % _READINGS] if gpus else None,
            )
        )

    def load(self) -> tuple[EngineAdapter, bytes]:
        """One engine got another adapter: its name, and the delta."""
        engine = self._random.choice(self._engines)
        engine.loads += 1
        name = EngineAdapter(f"{PROBE}-{engine.state.engine}-{engine.loads}~1")
        engine.state = _loaded(engine.state, name)
        base = self._base
        self._begin_base([engine])
        return name, self._report(ReportKind.DELTA, [engine], base=base)

    def truth(self) -> Truth:
        """What a reader should know by now."""
        return {
            e.state.engine: [[r.adapter, r.state.value] for r in e.state.residents]
            for e in self._engines
        }

    def _begin_base(self, engines: Sequence[_Engine]) -> None:
        self._seq += 1
        self._base = self._seq
        for engine in engines:
            engine.moved = False

    def _report(self, kind: ReportKind, engines: Sequence[_Engine], *, base: int | None) -> bytes:
        whole: dict[str, Any] = {}
        if kind is ReportKind.FULL:
            whole = {"gpus": self._readings[self._seq % _READINGS], "host": _HOST}
        return encode(
            NodeReport(
                kind=kind,
                region=self._region,
                node=self.name,
                incarnation=INCARNATION,
                seq=self._seq,
                base=base,
                engines=tuple(e.state.with_figures(e.figures) for e in engines),
                **whole,
            )
        )

    def _use(self, engine: _Engine) -> None:
        residents = list(engine.state.residents)
        in_slots = [r for r in residents if r.state is AdapterState.RESIDENT]
        used = self._random.choice(in_slots)
        residents.remove(used)
        engine.state = replace(engine.state, residents=(*residents, used))
        engine.moved = True


def _next(figures: EngineFigures) -> EngineFigures:
    """What the next scrape finds."""
    sample = figures.sample + 1
    phase = sample % 97
    return EngineFigures(
        sample=sample,
        sample_age_ms=float(phase),
        running=phase % 48,
        waiting=phase % 5,
        deferred=phase % 2,
        kv_usage=0.3 + phase / 200,
        ttft_ms=80.0 + phase,
        tpot_ms=9.0 + phase / 50,
        prefill_ms_per_token=0.05,
        preemptions_per_s=phase % 3 / 4,
        rejections_per_s=0.0,
        prefix_hit_share=0.4,
    )


def _first_state(node: NodeId, number: int) -> EngineState:
    engine = engine_id(node, f"engine-{number + 1}")
    names = [EngineAdapter(f"tenant-{n % 9}/adapter-{n:03}~1") for n in range(REGISTERED)]
    held = names[: HBM_SLOTS + HOST_SLOTS]
    return EngineState(
        engine=engine,
        url=f"http://{node}.invalid:{8001 + number}",
        base_model=BASE_MODEL,
        served_name=f"published/{BASE_MODEL}",
        status=EngineStatus.READY,
        limits=EngineLimits(
            hbm_slots=HBM_SLOTS, host_slots=HOST_SLOTS, max_lora_rank=64, kv_tokens=400_000
        ),
        gpus=tuple(range(number * GPUS // ENGINES, (number + 1) * GPUS // ENGINES)),
        sample=1,
        kv_usage=0.3,
        ttft_ms=80.0,
        tpot_ms=9.0,
        prefill_ms_per_token=0.05,
        preemptions_per_s=0.0,
        rejections_per_s=0.0,
        prefix_hit_share=0.4,
        residents=tuple(_residency(name, in_slot=n >= HOST_SLOTS) for n, name in enumerate(held)),
        registered=tuple(names),
    )


def _loaded(state: EngineState, name: EngineAdapter) -> EngineState:
    """The oldest host copy goes, the oldest in a slot falls to host, the new one comes last."""
    residents = list(state.residents)
    residents.remove(next(r for r in residents if r.state is AdapterState.HOST))
    fallen = next(n for n, r in enumerate(residents) if r.state is AdapterState.RESIDENT)
    residents[fallen] = replace(residents[fallen], state=AdapterState.HOST)
    return replace(
        state,
        residents=(*residents, _residency(name, in_slot=True)),
        registered=(*state.registered[1:], name),
    )


def _residency(name: EngineAdapter, *, in_slot: bool) -> Residency:
    return Residency(
        adapter=name,
        state=AdapterState.RESIDENT if in_slot else AdapterState.HOST,
        source=ResidencySource.EXTENSION,
        in_flight=0,
    )


def _gpus(reading: int) -> tuple[GpuState, ...]:
    return tuple(
        GpuState(
            index=index,
            uuid=f"GPU-5f1c0f2e-9f3f-4e0d-8a51-{index:012}",
            name="NVIDIA H100 80GB HBM3",
            memory_used_bytes=(60 << 30) + (reading << 20),
            memory_total_bytes=80 << 30,
            utilization=0.8 + reading / 100,
            memory_utilization=0.4 + reading / 100,
            temperature_c=58.0 + (reading + index) % 8,
            power_w=520.0 + 10 * reading,
            power_limit_w=700.0,
            sm_clock_mhz=1980 - 15 * (reading % 3),
            sm_clock_max_mhz=1980,
            memory_clock_mhz=2619,
            throttle=4 if reading % 4 == 0 else 0,
            ecc_corrected=0,
            ecc_uncorrected=0,
            pcie_rx_bytes_per_s=1e9 + reading * 1e7,
            pcie_tx_bytes_per_s=2e8 + reading * 1e6,
            nvlink_rx_bytes_per_s=4e10,
            nvlink_tx_bytes_per_s=4e10,
        )
        for index in range(GPUS)
    )


_HOST = HostState(
    memory_total_bytes=2 << 40,
    memory_available_bytes=1 << 40,
    page_cache_bytes=512 << 30,
    adapter_cache_bytes=40 << 30,
    adapter_disk_total_bytes=8 << 40,
    adapter_disk_free_bytes=6 << 40,
)
