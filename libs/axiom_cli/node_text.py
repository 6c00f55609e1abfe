"""How facts of a node read to people: quantities, ages, and what changed between two views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from axiom_common.wire.views import EngineView, GpuView, NodeView, ResidentView

UNKNOWN = "?"
GIB = 1 << 30
HBM_STATES = ("resident", "draining", "unloading")
COMING_STATES = ("fetching", "loading")
SLOWING = ("hw-slowdown", "sw-thermal", "hw-thermal", "power-brake")
"""Throttle reasons that cost requests time; the others are normal life."""
HOT_C = 85.0
BUSY_STEP = 0.05
"""KV use is told again when it moved by so much."""


def age(ms: float | None) -> str:
    """A time as its largest unit."""
    if ms is None:
        return UNKNOWN
    for unit, unit_ms in (("d", 86_400e3), ("h", 3_600e3), ("min", 60e3)):
        if ms >= 2 * unit_ms:
            return f"{ms / unit_ms:.0f} {unit}"
    return f"{ms / 1e3:.1f} s" if ms >= 1e3 else f"{ms:.0f} ms"


def share(value: float | None) -> str:
    """A share in per cent."""
    return UNKNOWN if value is None else f"{value * 100:.0f} %"


def number(value: float | None, digits: int = 0) -> str:
    """A number, or that it is unknown."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def gib(size: int | None) -> str:
    """Bytes in GiB, without the unit."""
    return UNKNOWN if size is None else f"{size / GIB:.0f}"


def in_flight(resident: ResidentView) -> str:
    """An adapter with its requests, where it has any."""
    if resident.in_flight is None:
        return f"{resident.adapter} ×{UNKNOWN}"
    return f"{resident.adapter} ×{resident.in_flight}" if resident.in_flight else resident.adapter


def own_name(engine: EngineView) -> str:
    """An engine's name on its node."""
    return engine.engine.partition(".")[2]


def throttles(gpu: GpuView) -> str:
    """Why a GPU's clocks are held down, of what matters; "" when nothing does."""
    told = [
        f"{t.reason} {age(t.ms)}" if t.ms is not None else t.reason
        for t in gpu.throttles or ()
        if t.reason in SLOWING
    ]
    return ", ".join(told)


def changes(before: NodeView | None, after: NodeView) -> list[str]:
    """What is different, one line a fact; for the first view, what there is. Ages and samples that
    only grew are no change."""
    if before is None:
        engines = ", ".join(own_name(e) for e in after.engines) or "none"
        return [
            f"{after.liveness}, incarnation {after.incarnation}, engines: {engines}",
            *(line for e in after.engines for line in _new_engine(e)),
        ]
    found = list(_different(before, after, ("liveness", "incarnation")))
    if before.plan != after.plan and after.plan is not None:
        plan = after.plan
        verdict = "accepted" if plan.accepted else f"refused ({plan.reason})"
        found.append(f"plan {plan.revision} of term {plan.fence} {verdict}")
    known = {e.engine: e for e in before.engines}
    for engine in after.engines:
        old = known.pop(engine.engine, None)
        found += _new_engine(engine) if old is None else _engine_changes(old, engine)
    found += [f"{own_name(engine)}: gone" for engine in known.values()]
    found += _gpu_changes(before.gpus, after.gpus)
    return found


def _new_engine(engine: EngineView) -> Iterator[str]:
    name = own_name(engine)
    yield f"{name}: {engine.status}, {engine.base_model}, {engine.hbm_slots} slots"
    yield from (f"{name}: {_residency(r)}" for r in engine.residents)


def _residency(resident: ResidentView) -> str:
    rest = f", {age(resident.remaining_ms)} left" if resident.remaining_ms else ""
    return f"{in_flight(resident)} {resident.state} ({resident.source}{rest})"


def _engine_changes(old: EngineView, new: EngineView) -> Iterator[str]:
    name = own_name(new)
    for line in _different(old, new, ("status", "order", "role", "url", "hbm_slots", "host_slots")):
        yield f"{name}: {line}"
    if (old.running, old.waiting, old.deferred) != (new.running, new.waiting, new.deferred):
        yield f"{name}: running {new.running}, waiting {new.waiting} ({new.deferred} deferred)"
    if _moved(old.kv_usage, new.kv_usage, BUSY_STEP):
        yield f"{name}: KV {share(old.kv_usage)} -> {share(new.kv_usage)}"
    yield from (f"{name}: {line}" for line in _resident_changes(old.residents, new.residents))
    for adapter in sorted(set(new.registered) - set(old.registered)):
        yield f"{name}: {adapter} registered"
    for adapter in sorted(set(old.registered) - set(new.registered)):
        yield f"{name}: {adapter} no longer registered"
    failed = {f.adapter for f in old.failures}
    for failure in new.failures:
        if failure.adapter not in failed:
            retry = age(failure.retry_in_ms)
            yield f"{name}: {failure.adapter} failed ({failure.reason}), again in {retry}"


def _resident_changes(old: Sequence[ResidentView], new: Sequence[ResidentView]) -> Iterator[str]:
    known = {r.adapter: r for r in old}
    for resident in new:
        before = known.pop(resident.adapter, None)
        if before is None:
            yield f"+ {_residency(resident)}"
        elif (before.state, before.source) != (resident.state, resident.source):
            yield f"{before.state} -> {_residency(resident)}"
        elif before.in_flight != resident.in_flight:
            requests = UNKNOWN if resident.in_flight is None else resident.in_flight
            yield f"{resident.adapter} in flight {requests}"
    yield from (f"- {r.adapter} (was {r.state})" for r in known.values())
    kept = {r.adapter for r in old} & {r.adapter for r in new}
    order = [[r.adapter for r in side if r.adapter in kept] for side in (old, new)]
    if order[0] != order[1]:
        yield f"order {' < '.join(order[1])}"


def _gpu_changes(old: Sequence[GpuView], new: Sequence[GpuView]) -> Iterator[str]:
    known = {g.index: g for g in old}
    for gpu in new:
        before = known.pop(gpu.index, None)
        if before is None:
            yield f"GPU {gpu.index}: {gpu.name or 'there'}"
            continue
        if gpu.lost != before.lost:
            yield f"GPU {gpu.index}: {'lost' if gpu.lost else 'back'}"
        if _reasons(gpu) != _reasons(before):
            yield f"GPU {gpu.index}: throttled by {', '.join(_reasons(gpu)) or 'nothing'}"
        if gpu.xid != before.xid and gpu.xid is not None:
            yield f"GPU {gpu.index}: XID {gpu.xid}"
        if before.temperature_c is not None and gpu.temperature_c is not None:
            hot = gpu.temperature_c >= HOT_C
            if hot != (before.temperature_c >= HOT_C):
                yield f"GPU {gpu.index}: {gpu.temperature_c:.0f} °C"
    yield from (f"GPU {index}: gone" for index in known)


def _moved(old: float | None, new: float | None, step: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) >= step


def _reasons(gpu: GpuView) -> tuple[str, ...]:
    return tuple(t.reason for t in gpu.throttles or ())


def _different(old: Any, new: Any, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield f"{name.replace('_', ' ')} {before} -> {after}"
