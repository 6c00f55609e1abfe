"""GPUs through NVML. What the driver does not say is unknown: nothing here ever raises.

A host without the library or the driver, a GPU that fell off the bus, a function that an old driver
lacks and a field that a card has not all look the same to a caller: an empty tuple or a None.
A call costs about 15 us, so a read of a whole host may run on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pynvml

from axiom_common.model.engine import GpuState
from axiom_common.wire.bounds import GPUS_MAX


class NvmlGpus:
    """Reads all GPUs of this host. Sets NVML up at the first read that can."""

    def __init__(self) -> None:
        self._ready = False

    async def run(self) -> None:
        """Each read asks anew."""
        await asyncio.Event().wait()

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index; empty when there is no NVML."""
        if not self._ready:
            self._ready = _set_up()
        if not self._ready:
            return ()
        count = _ask(pynvml.nvmlDeviceGetCount)
        if count is None:
            # The driver went away (unloaded, upgraded): the next read sets up anew.
            self._ready = False
            return ()
        return tuple(_read_gpu(index) for index in range(min(count, GPUS_MAX)))


def _set_up() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _read_gpu(index: int) -> GpuState:
    handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return GpuState(index=index)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    temperature = _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    return GpuState(
        index=index,
        uuid=_ask(pynvml.nvmlDeviceGetUUID, handle),
        name=_ask(pynvml.nvmlDeviceGetName, handle),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_c=None if temperature is None else float(temperature),
        throttle=_throttle(handle),
    )


def _throttle(handle: Any) -> int | None:
    """The reasons bit mask: older drivers know the question by its older name only."""
    reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:
        reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return None if reasons is None else int(reasons)


def _ask(call: Callable[..., Any], *args: Any) -> Any | None:
    """The answer, or None for anything NVML does not give. A damaged name is no name either."""
    try:
        return call(*args)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
