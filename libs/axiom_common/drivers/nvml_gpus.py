"""The GPUs of this host as the agent tells them: NVML read in a thread, and what the age allows."""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.drivers.background_reads import BackgroundReads
from axiom_common.drivers.nvml_card import unknown
from axiom_common.drivers.nvml_reader import NvmlReader
from axiom_common.model.engine import GpuState
from axiom_common.ports.clock import Clock

LOOK_MS = 100.0
"""A flag is seen within one look, has stood a beat three later, and is told within two beats."""
STALE_MS = 5_000.0
"""A look that takes so long hangs in the driver: nothing is known any more."""


class NvmlGpus:
    """Implements `Gpus`."""

    def __init__(self, clock: Clock, reader: NvmlReader | None = None) -> None:
        self._clock = clock
        reader = reader or NvmlReader()
        self._looks = BackgroundReads(
            "nvml", lambda: reader.look(clock.now_ms()), reader.close, clock, every_ms=LOOK_MS
        )
        self._gone_stale: tuple[GpuState, ...] | None = None

    async def run(self, on_change: Callable[[], None]) -> None:
        """Keep looking."""
        await self._looks.run(on_change)

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index, as last seen."""
        if self._looks.latest is None:
            return ()
        gpus, looked_ms = self._looks.latest
        if self._clock.now_ms() - looked_ms < STALE_MS:
            self._gone_stale = None
            return gpus
        if self._gone_stale is None:
            self._gone_stale = tuple(unknown(gpu) for gpu in gpus)
        return self._gone_stale
