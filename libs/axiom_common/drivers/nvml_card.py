"""What is known of one GPU over time: since when its throttle reasons stand, its rates, its XID."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from axiom_common.drivers.nvml_device import Device, LinkCounters
from axiom_common.model.engine import GpuState

FACTS_EVERY_MS = 1_000.0
PCIE_EVERY_MS = 2_000.0


@dataclass(slots=True)
class Card:
    """One GPU under the index that it was given. `device` is None while NVML does not show it.

    `facts` holds what the last whole look told. `pcie_due_ms` is when its PCIe throughput is to be
    measured, None where counters tell it or nothing does.
    """

    index: int
    facts: GpuState
    device: Device | None = None
    lost: bool = False
    facts_due_ms: float = 0.0
    pcie_due_ms: float | None = None
    xid: int | None = None
    _xid_ms: float = 0.0
    _mask: int | None = None
    _glanced_ms: float = 0.0
    _since_ms: dict[int, float] = field(default_factory=dict)
    _counters: tuple[LinkCounters, float] | None = None
    _pcie_asked_rx: bool = False

    def attach(self, device: Device, nvml_uuid: str | None) -> None:
        """NVML shows the GPU, for the first time or again."""
        self.device = device
        self.lost = False
        self.facts_due_ms = 0.0
        self.pcie_due_ms = None
        self._counters = None
        if nvml_uuid is not None:
            self.facts = replace(self.facts, uuid=nvml_uuid)

    def detach(self, *, lost: bool) -> None:
        """NVML shows it no more: all but its name is unknown."""
        self.device = None
        self.lost = lost
        self._mask = None
        self._since_ms = {}
        self.facts = _nameplate(self.facts)

    def glance(self, now_ms: float) -> None:
        """Look at the throttle reasons alone."""
        if self.device is None:
            return
        self._mask = self.device.throttle()
        self._glanced_ms = now_ms
        standing = (1 << n for n in range((self._mask or 0).bit_length()))
        self._since_ms = {
            bit: self._since_ms.get(bit, now_ms) for bit in standing if (self._mask or 0) & bit
        }
        if self.device.lost:
            self.detach(lost=True)

    def look(self, now_ms: float) -> None:
        """Look at everything that does not take long."""
        self.facts_due_ms = now_ms + FACTS_EVERY_MS
        if self.device is None:
            return
        told, counters = self.device.facts(), self.device.counters()
        known = {name: getattr(self.facts, name) for name in ("uuid", "name")}
        told |= {name: value for name, value in known.items() if told[name] is None}
        told |= self._rates(counters, now_ms)
        self.facts = replace(self.facts, **told)
        if self.device.lost:
            self.detach(lost=True)

    def measure_pcie(self, now_ms: float) -> None:
        """Measure one direction where no counter tells it; takes 20 ms."""
        if self.device is None:
            return
        self._pcie_asked_rx = received = not self._pcie_asked_rx
        rate = self.device.pcie_bytes_per_s(received=received)
        self.pcie_due_ms = None if rate is None else now_ms + PCIE_EVERY_MS / 2
        name = "pcie_rx_bytes_per_s" if received else "pcie_tx_bytes_per_s"
        told: dict[str, Any] = {name: rate}
        self.facts = replace(self.facts, **told)

    def saw_xid(self, xid: int, now_ms: float) -> None:
        """The driver told of an error."""
        self.xid, self._xid_ms = xid, now_ms

    def state(self, now_ms: float) -> GpuState:
        """The GPU as it is told."""
        return replace(
            self.facts,
            throttle=self._mask,
            throttled_ms=tuple(
                (bit, self._glanced_ms - since_ms) for bit, since_ms in self._since_ms.items()
            ),
            xid=self.xid,
            xid_age_ms=None if self.xid is None else now_ms - self._xid_ms,
            lost=self.lost,
        )

    def _rates(self, counters: LinkCounters, now_ms: float) -> dict[str, float | None]:
        before, self._counters = self._counters, (counters, now_ms)
        rates: dict[str, float | None] = {
            f"{name}_bytes_per_s": _rate(name, before, counters, now_ms)
            for name in LinkCounters._fields
        }
        if counters.pcie_rx is None and counters.pcie_tx is None:
            # These two are measured, not counted, and stand from one measurement to the next.
            if before is None:
                self.pcie_due_ms = now_ms
            rates = {name: rate for name, rate in rates.items() if name.startswith("nvlink")}
        return rates


def unknown(gpu: GpuState) -> GpuState:
    """The GPU when nobody has looked at it for long."""
    return replace(_nameplate(gpu), lost=gpu.lost)


def _nameplate(gpu: GpuState) -> GpuState:
    return GpuState(index=gpu.index, uuid=gpu.uuid, name=gpu.name)


def _rate(
    name: str, before: tuple[LinkCounters, float] | None, counters: LinkCounters, now_ms: float
) -> float | None:
    """Bytes a second since the look before; None at the first look and when it was set back."""
    if before is None or now_ms <= before[1]:
        return None
    then, now = getattr(before[0], name), getattr(counters, name)
    if then is None or now is None or now < then:
        return None
    return float(round((now - then) / (now_ms - before[1]) * 1e3))
