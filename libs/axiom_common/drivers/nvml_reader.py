"""The GPUs of a host through NVML, one look after the other. Blocks; nothing here ever raises.

A host without the library or the driver, a GPU that fell off the bus, a function that an old driver
lacks and a field that a card has not all look the same to a caller: unknown. NVML makes its list of
GPUs when it is set up, so it is set up anew when the kernel's list or the count changed, when the
driver came back, and from time to time while a GPU is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from axiom_common.drivers.nvml_card import Card
from axiom_common.drivers.nvml_device import Device, ask
from axiom_common.model.engine import GpuState
from axiom_common.ports.gpu import urgent
from axiom_common.wire.bounds import GPUS_MAX

KERNEL_LIST = Path("/proc/driver/nvidia/gpus")
"""One entry a GPU, kept by the driver."""
REOPEN_MS = 2_000.0
LOST_REOPEN_MS = 30_000.0
TELL_EVERY_MS = 1_000.0
CARDS_A_LOOK = 8
"""A look asks one GPU in so many for all that it knows."""
EVENTS_MAX = 16


class NvmlReader:
    """`gpus` is what the last look told. Call `look` at least twice a beat, with the time in ms."""

    def __init__(self, kernel_list: Path = KERNEL_LIST) -> None:
        self.gpus: tuple[GpuState, ...] = ()
        self._kernel_list = kernel_list
        self._cards: dict[int, Card] = {}
        self._is_open = False
        self._open_due_ms = float("-inf")
        self._opened_ms = 0.0
        self._listed: list[str] = []
        self._count: int | None = None
        self._events: Any | None = None
        self._told_ms = float("-inf")

    def look(self, now_ms: float) -> tuple[GpuState, ...]:
        """Look at what is due; all GPUs by index."""
        is_due = now_ms - self._told_ms >= TELL_EVERY_MS
        if self._is_open and is_due and self._list_changed(now_ms):
            self._closed(open_due_ms=now_ms)
        if not self._is_open and now_ms >= self._open_due_ms:
            self._open(now_ms)
        if self._is_open:
            self._look_at_cards(now_ms)
            if any(device.gone for device in self._devices()):
                self._closed(open_due_ms=now_ms + REOPEN_MS)
        gpus = tuple(self._cards[index].state(now_ms) for index in sorted(self._cards))
        if is_due:
            self._told_ms = now_ms
        if is_due or [urgent(gpu) for gpu in gpus] != [urgent(gpu) for gpu in self.gpus]:
            self.gpus = self.gpus if gpus == self.gpus else gpus
        return self.gpus

    def close(self) -> None:
        """NVML is needed no more."""
        if self._is_open:
            self._is_open = False
            self._free()

    def _look_at_cards(self, now_ms: float) -> None:
        self._drain_events(now_ms)
        for card in self._cards.values():
            card.glance(now_ms)
        due = [c for c in self._cards.values() if c.device and now_ms >= c.facts_due_ms]
        due.sort(key=lambda card: card.facts_due_ms)
        new = sum(card.facts_due_ms <= 0.0 for card in due)
        for card in due[: max(new, -(-len(self._cards) // CARDS_A_LOOK))]:
            card.look(now_ms)
        measured = (c for c in self._cards.values() if c.pcie_due_ms is not None)
        next_one = min(measured, key=lambda card: card.pcie_due_ms or 0.0, default=None)
        if next_one is not None and now_ms >= (next_one.pcie_due_ms or 0.0):
            next_one.measure_pcie(now_ms)

    def _open(self, now_ms: float) -> None:
        self._open_due_ms = now_ms + REOPEN_MS
        # First, so that what comes while NVML makes its list is a change.
        self._listed = self._list()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._is_open = True
        self._opened_ms = now_ms
        self._count = ask(pynvml.nvmlDeviceGetCount)
        self._find_cards()
        self._events = ask(pynvml.nvmlEventSetCreate)
        if self._events is not None:
            xid = pynvml.nvmlEventTypeXidCriticalError
            for device in self._devices():
                device.ask(pynvml.nvmlDeviceRegisterEvents, xid, self._events)

    def _closed(self, *, open_due_ms: float) -> None:
        """Set up anew from then on. Nothing is known until then; what was lost stays so."""
        self._is_open = False
        self._open_due_ms = open_due_ms
        self._free()
        for card in self._cards.values():
            card.detach(lost=card.lost)

    def _free(self) -> None:
        if self._events is not None:
            ask(pynvml.nvmlEventSetFree, self._events)
            self._events = None
        ask(pynvml.nvmlShutdown)

    def _list(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self._kernel_list.iterdir())
        except OSError:
            return []

    def _list_changed(self, now_ms: float) -> bool:
        if self._list() != self._listed or ask(pynvml.nvmlDeviceGetCount) != self._count:
            return True
        is_lost = any(card.lost for card in self._cards.values())
        return is_lost and now_ms - self._opened_ms >= LOST_REOPEN_MS

    def _find_cards(self) -> None:
        """Give each GPU that NVML shows to its card: by its UUID, wherever it lies now; a new one
        to the card of its place if that is nobody's, or to the first free place."""
        by_uuid = {c.facts.uuid: c for c in self._cards.values() if c.facts.uuid is not None}
        for card in self._cards.values():
            card.detach(lost=True)
        strangers = []
        for place in range(min(self._count or 0, GPUS_MAX)):
            device = Device(place)
            uuid = device.ask(pynvml.nvmlDeviceGetUUID)
            if not device.lost and uuid in by_uuid:
                by_uuid[uuid].attach(device, uuid)
            else:
                strangers.append((place, device, uuid))
        for place, device, uuid in strangers:
            self._place(place, device, uuid)

    def _place(self, place: int, device: Device, uuid: str | None) -> None:
        known = self._cards.get(place)
        if device.lost and known is not None and known.device is None:
            return  # It does not answer, and may well be the one that was here.
        free = [n for n in range(GPUS_MAX) if n not in self._cards or not self._cards[n].device]
        if free:
            unused = [n for n in free if n not in self._cards]
            index = place if place in free else (unused or free)[0]
            self._cards[index] = Card(index=index, facts=GpuState(index=index))
            self._cards[index].attach(device, uuid)

    def _drain_events(self, now_ms: float) -> None:
        """Take the errors that the driver has to tell, without waiting for one."""
        for _ in range(EVENTS_MAX if self._events is not None else 0):
            event = ask(pynvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                return
            uuid = ask(pynvml.nvmlDeviceGetUUID, event.device)
            for card in self._cards.values():
                if uuid is not None and card.facts.uuid == uuid:
                    card.saw_xid(int(event.eventData), now_ms)

    def _devices(self) -> Iterator[Device]:
        return (card.device for card in self._cards.values() if card.device is not None)
