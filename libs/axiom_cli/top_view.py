"""What `axiom top` shows, as lines: a region's head, then each node with its GPUs and engines.

Colour says what needs a look: yellow soon, red now. All else is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from axiom_cli.node_text import (
    COMING_STATES,
    HBM_STATES,
    HOT_C,
    UNKNOWN,
    age,
    gib,
    in_flight,
    number,
    own_name,
    share,
    throttles,
)
from axiom_common.wire.rest import RegionStatus
from axiom_common.wire.views import EngineView, GpuView, NodeView, ResidentView

SOON, NOW = "yellow", "red"
_BY_LIVENESS = {"alive": "", "suspect": SOON}
_BY_STATUS = {"ready": "", "starting": SOON, "draining": SOON}
_COLUMNS = "{:<14.14} {:<12.12} {:>6} {:>4} {:>4} {:>5} {:>8} {:>8} {:>8}"
_HEADS = _COLUMNS.format(
    "engine", "status", "flight", "run", "wait", "KV", "TTFT", "TPOT", "sample"
)
ADAPTER_INDENT = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """A node's view, and how long ago it came, in ms."""

    view: NodeView
    since_ms: float = 0.0

    def aged(self, ms: float) -> float | None:
        """The age by now of a fact that was so old when the node told it; None: not known."""
        heard = self.view.staleness_ms
        return None if heard is None else ms + heard + self.since_ms


def wanted(nodes: Iterable[NodeView], model: str | None) -> list[NodeView]:
    """The nodes by region and name, with the engines that serve `model`: a base model, or an
    adapter that they hold or answer to. None: all."""
    found = []
    for node in sorted(nodes, key=lambda n: (n.region, n.node)):
        engines = tuple(e for e in node.engines if model is None or _serves(e, model))
        if engines or model is None:
            found.append(node.model_copy(update={"engines": engines}))
    return found


def _serves(engine: EngineView, model: str) -> bool:
    names = (*(r.adapter for r in engine.residents), *engine.registered)
    return model == engine.base_model or any(
        model in (name, name.rpartition("~")[0]) for name in names
    )


def lines(
    regions: Mapping[str, RegionStatus],
    nodes: Sequence[Seen],
    *,
    width: int,
    height: int | None = None,
    trouble: str = "",
) -> list[Text]:
    """All that is shown, of nodes as many as fit; `trouble` is why it is not fresh."""
    found = []
    for name, region in sorted(regions.items()):
        found.append(_region(name, region))
    if not nodes:
        found.append(Text("no node is known" if regions else "nothing is known yet", style="dim"))
    elif any(seen.view.engines for seen in nodes):
        found.append(Text("  " + _HEADS, style="bold"))
    for shown, seen in enumerate(nodes):
        told = list(_node(seen, width))
        if height is not None and shown and len(found) + len(told) >= height:
            found.append(Text(f"and {len(nodes) - shown} more: --node and --model choose"))
            break
        found += told
    for line in found:
        line.truncate(width, overflow="ellipsis")
    return [Text(trouble, style=NOW), *found] if trouble else found


def _region(name: str, region: RegionStatus) -> Text:
    line = Text(
        f"{name}: {region.nodes} nodes, {region.engines} engines, {region.adapters} adapters, "
        f"view {age(region.view_age_ms)} old"
    )
    if region.degraded:
        line.append(f", degraded: {', '.join(region.degraded)}", style=SOON)
    return line


def _node(seen: Seen, width: int) -> Iterator[Text]:
    node = seen.view
    line = Text.assemble(
        (node.node, "bold"), " ", (node.liveness, _BY_LIVENESS.get(node.liveness, NOW))
    )
    heard = seen.aged(0.0)
    line.append(", from the cache" if heard is None else f", heard {age(heard)} ago")
    if node.plan is not None:
        line.append(f", plan {node.plan.revision}")
        if not node.plan.accepted:
            line.append(f" refused: {node.plan.reason}", style=NOW)
    if node.host is not None:
        host = node.host
        line.append(
            f", RAM {gib(host.memory_available_bytes)}/{gib(host.memory_total_bytes)} GiB free, "
            f"adapters {gib(host.adapter_cache_bytes)} GiB cached"
        )
    yield line
    yield from (_gpu(gpu) for gpu in node.gpus)
    if not node.gpus:
        yield Text(f"  GPU {UNKNOWN} °C: NVML tells of none")
    for engine in node.engines:
        yield _engine(engine, seen)
        yield from _adapters(engine, seen, width)


def _gpu(gpu: GpuView) -> Text:
    line = Text(f"  GPU {gpu.index}")
    if gpu.lost:
        return line.append(" lost", style=NOW)
    hot = gpu.temperature_c is not None and gpu.temperature_c >= HOT_C
    line.append(f" {number(gpu.temperature_c)} °C", style=SOON if hot else "")
    line.append(
        f" {share(gpu.utilization)}, {number(gpu.power_w)}/{number(gpu.power_limit_w)} W, "
        f"{gib(gpu.memory_used_bytes)}/{gib(gpu.memory_total_bytes)} GiB"
    )
    if slowed := throttles(gpu):
        line.append(f", throttled: {slowed}", style=SOON)
    elif gpu.throttles is None:
        line.append(", throttle ?")
    if gpu.xid is not None:
        line.append(f", XID {gpu.xid} {age(gpu.xid_age_ms)} ago", style=NOW)
    if gpu.ecc_uncorrected:
        line.append(f", {gpu.ecc_uncorrected} ECC errors", style=NOW)
    return line


def _engine(engine: EngineView, seen: Seen) -> Text:
    row = _COLUMNS.format(
        own_name(engine),
        _status(engine),
        engine.in_flight,
        engine.running,
        engine.waiting,
        share(engine.kv_usage),
        _ms(engine.ttft_ms, 0),
        _ms(engine.tpot_ms, 1),
        age(seen.aged(engine.sample_age_ms)),
    )
    line = Text("  " + row)
    style = _BY_STATUS.get(engine.status, NOW) or (SOON if engine.order else "")
    if style:
        line.stylize(style, 17, 29)
    if engine.waiting:
        line.stylize(SOON, 42, 46)
    return line


def _status(engine: EngineView) -> str:
    """What an operator ordered of it stands before what it is."""
    if engine.order is None or engine.status != "ready":
        return engine.status
    return f"{engine.order}, idle" if engine.idle else engine.order


def _ms(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}f} ms"


def _adapters(engine: EngineView, seen: Seen, width: int) -> Iterator[Text]:
    """Residents by where they are, in LRU order; how that is known, and how old it is at most."""
    if not engine.hbm_slots:
        return
    groups: tuple[tuple[str, tuple[str, ...], Callable[[ResidentView], str]], ...] = (
        (f"HBM {{}}/{engine.hbm_slots}", HBM_STATES, in_flight),
        (f"host {{}}/{engine.host_slots}", ("host",), in_flight),
        ("loading {}", COMING_STATES, _coming),
    )
    for title, states, told in groups:
        there = [r for r in engine.residents if r.state in states]
        if not there and states is not HBM_STATES:
            continue
        known = _known(there, seen)
        head = f"{title.format(len(there))}{f' ({known})' if known else ''}: "
        yield from _wrapped(head, [told(r) for r in there] or ["none"], width)
    for failure in engine.failures:
        why = f"{failure.adapter} failed: {failure.reason}"
        yield Text(f"{' ' * ADAPTER_INDENT}{why}, again in {age(failure.retry_in_ms)}", style=NOW)


def _coming(resident: ResidentView) -> str:
    return f"{in_flight(resident)} {resident.state}, {age(resident.remaining_ms)} left"


def _known(residents: Sequence[ResidentView], seen: Seen) -> str:
    """Each source with the oldest that it told."""
    ages: dict[str, float] = {}
    for resident in residents:
        ages[resident.source] = max(ages.get(resident.source, 0.0), resident.age_ms)
    return ", ".join(f"{source} {age(seen.aged(ms))}" for source, ms in sorted(ages.items()))


def _wrapped(head: str, items: Sequence[str], width: int) -> Iterator[Text]:
    """Items after a head, on as many lines as they need."""
    indent = " " * (ADAPTER_INDENT + 2)
    line = " " * ADAPTER_INDENT + head
    for position, item in enumerate(items, start=1):
        part = item if position == len(items) else f"{item}, "
        if line != indent and len(line) + len(part.rstrip()) > width:
            yield Text(line.rstrip())
            line = indent
        line += part
    yield Text(line)
