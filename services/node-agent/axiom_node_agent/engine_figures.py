"""What the metrics tell of an engine, read at each scrape. What is not known is not told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from axiom_common.model.engine import GpuState
from axiom_common.policy.scorers.thermal_safety import SLOWDOWN_BY_BIT, sustained_bits
from axiom_common.runtime.metric_names import NodeAgent
from axiom_common.runtime.metrics import GaugeName, Reading
from axiom_common.wire.views import THROTTLES
from axiom_node_agent.state import EngineBook

Figure = Callable[[EngineBook, tuple[GpuState, ...]], Reading]
"""Of an engine and all GPUs of the node."""


def _running(book: EngineBook, _: tuple[GpuState, ...]) -> Reading:
    return _one(book, book.sample.running if book.sample else None)


def _waiting(book: EngineBook, _: tuple[GpuState, ...]) -> Reading:
    return _one(book, book.sample.waiting if book.sample else None)


def _kv_usage(book: EngineBook, _: tuple[GpuState, ...]) -> Reading:
    return _one(book, book.sample.kv_usage if book.sample else None)


def _slots(book: EngineBook, _: tuple[GpuState, ...]) -> Reading:
    """None while the engine has told none: 0 stands for that."""
    return _one(book, book.lru.hbm_slots or None)


def _held(book: EngineBook, _: tuple[GpuState, ...]) -> Reading:
    engine, in_hbm = book.declared.engine, len(book.lru.hbm)
    return [((engine, "hbm"), in_hbm), ((engine, "host"), len(book.lru.copies) - in_hbm)]


def _temperature(book: EngineBook, gpus: tuple[GpuState, ...]) -> Reading:
    told = [gpu.temperature_c for gpu in _own(book, gpus) if gpu.temperature_c is not None]
    return _one(book, max(told, default=None))


def _power(book: EngineBook, gpus: tuple[GpuState, ...]) -> Reading:
    """None when one of its GPUs does not tell: the sum of the others says nothing."""
    told = [gpu.power_w for gpu in _own(book, gpus)]
    known = [power_w for power_w in told if power_w is not None]
    return _one(book, sum(known) if known and len(known) == len(told) else None)


def _throttled(book: EngineBook, gpus: tuple[GpuState, ...]) -> Reading:
    told = [gpu for gpu in _own(book, gpus) if gpu.throttle is not None]
    sustained = [sustained_bits(gpu) for gpu in told]
    return [
        ((book.declared.engine, THROTTLES[bit]), float(any(bits & bit for bits in sustained)))
        for bit in (SLOWDOWN_BY_BIT if told else ())
    ]


FIGURES: Mapping[GaugeName, Figure] = {
    NodeAgent.ENGINE_RUNNING: _running,
    NodeAgent.ENGINE_WAITING: _waiting,
    NodeAgent.KV_USAGE: _kv_usage,
    NodeAgent.SLOTS: _slots,
    NodeAgent.HELD: _held,
    NodeAgent.TEMPERATURE: _temperature,
    NodeAgent.POWER: _power,
    NodeAgent.THROTTLED: _throttled,
}


def _own(book: EngineBook, gpus: tuple[GpuState, ...]) -> list[GpuState]:
    return [gpu for gpu in gpus if gpu.index in book.declared.gpus]


def _one(book: EngineBook, value: float | None) -> Reading:
    return () if value is None else (((book.declared.engine,), value),)
