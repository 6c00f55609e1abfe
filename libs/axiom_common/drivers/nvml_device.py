"""One GPU behind its NVML handle: each question gets its answer, or None. Nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from axiom_common.model.engine import MigSlice
from axiom_common.wire.bounds import MIG_MAX

ALL_LINKS = 0xFFFFFFFF
"""As the scope of an NVLink field: the sum over all links."""
_GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
"""The driver was unloaded, or another version of it loaded."""
_64_BITS = (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)


def ask(call: Callable[..., Any], *args: Any) -> Any | None:
    """The answer, or None for anything NVML does not give: no library, no driver, a function that
    an old driver lacks, a field that a card has not. A damaged name is no name either."""
    try:
        return call(*args)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


class LinkCounters(NamedTuple):
    """Bytes moved so far, by counters that only grow."""

    pcie_rx: int | None = None
    pcie_tx: int | None = None
    nvlink_rx: int | None = None
    nvlink_tx: int | None = None


class Device:
    """The GPU at a place of NVML's list; `handle` is None where NVML gives none, and it is mute.

    `lost`: it fell off the bus, and is asked no more. `gone`: its driver is no longer there.
    """

    def __init__(self, place: int) -> None:
        self.handle: Any | None = None
        self.lost = False
        self.gone = False
        self.handle = self._answer(pynvml.nvmlDeviceGetHandleByIndex, place)

    def ask(self, call: Callable[..., Any], *args: Any) -> Any | None:
        """The GPU's answer, or None."""
        if self.lost or self.handle is None:
            return None
        return self._answer(call, self.handle, *args)

    def throttle(self) -> int | None:
        """The reasons bit mask: older drivers know the question by its older name only."""
        reasons = self.ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:
            reasons = self.ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if reasons is None else int(reasons)

    def facts(self) -> dict[str, Any]:
        """The fields of `GpuState` that one look tells."""
        memory = self.ask(pynvml.nvmlDeviceGetMemoryInfo)
        busy = self.ask(pynvml.nvmlDeviceGetUtilizationRates)
        temperature = self.ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
        if temperature is None:
            # Newer drivers are to drop the older question.
            temperature = self.ask(pynvml.nvmlDeviceGetTemperatureV, pynvml.NVML_TEMPERATURE_GPU)
        return {
            "uuid": self.ask(pynvml.nvmlDeviceGetUUID),
            "name": self.ask(pynvml.nvmlDeviceGetName),
            "memory_used_bytes": None if memory is None else int(memory.used),
            "memory_total_bytes": None if memory is None else int(memory.total),
            "utilization": None if busy is None else busy.gpu / 100,
            "memory_utilization": None if busy is None else busy.memory / 100,
            "temperature_c": None if temperature is None else float(temperature),
            "power_w": _watts(self.ask(pynvml.nvmlDeviceGetPowerUsage)),
            "power_limit_w": _watts(self.ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
            "sm_clock_mhz": self.ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "sm_clock_max_mhz": self.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self.ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "ecc_corrected": self._ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": self._ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "mig": self._mig(),
        }

    def counters(self) -> LinkCounters:
        """What the links moved so far. A counter of 32 bits may wrap between two looks and tells
        nothing."""
        fields = (
            (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
            (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        )
        answers = self.ask(pynvml.nvmlDeviceGetFieldValues, fields)
        if answers is None:
            return LinkCounters()
        pcie_rx, pcie_tx, nvlink_rx_kib, nvlink_tx_kib = (
            int(answer.value.ullVal)
            if answer.nvmlReturn == pynvml.NVML_SUCCESS and answer.valueType in _64_BITS
            else None
            for answer in answers
        )
        return LinkCounters(pcie_rx, pcie_tx, _kib(nvlink_rx_kib), _kib(nvlink_tx_kib))

    def pcie_bytes_per_s(self, *, received: bool) -> float | None:
        """The PCIe throughput now. The call takes 20 ms: the driver counts for so long."""
        direction = pynvml.NVML_PCIE_UTIL_RX_BYTES if received else pynvml.NVML_PCIE_UTIL_TX_BYTES
        kilobytes = self.ask(pynvml.nvmlDeviceGetPcieThroughput, direction)
        return None if kilobytes is None else kilobytes * 1e3

    def _answer(self, call: Callable[..., Any], *args: Any) -> Any | None:
        try:
            return call(*args)
        except pynvml.NVMLError as error:
            self.lost = error.value == pynvml.NVML_ERROR_GPU_IS_LOST
            self.gone = self.gone or error.value in _GONE
        except UnicodeDecodeError:
            pass
        return None

    def _ecc(self, kind: int) -> int | None:
        count = self.ask(pynvml.nvmlDeviceGetTotalEccErrors, kind, pynvml.NVML_VOLATILE_ECC)
        return None if count is None else int(count)

    def _mig(self) -> tuple[MigSlice, ...]:
        mode = self.ask(pynvml.nvmlDeviceGetMigMode)
        if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return ()
        most = self.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
        slices = []
        for place in range(min(most, MIG_MAX)):
            handle = self.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, place)
            uuid = None if handle is None else ask(pynvml.nvmlDeviceGetUUID, handle)
            if uuid is None:
                continue
            memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
            used = None if memory is None else int(memory.used)
            slices.append(MigSlice(uuid, used, None if memory is None else int(memory.total)))
        return tuple(slices)


def _watts(milliwatts: int | None) -> float | None:
    """Whole watts: what flickers below that is nobody's news."""
    return None if milliwatts is None else float(round(milliwatts / 1e3))


def _kib(count: int | None) -> int | None:
    return None if count is None else count * 1024
