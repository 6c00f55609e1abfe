"""The GPUs of this host."""

from __future__ import annotations

from typing import Protocol

from axiom_common.model.engine import GpuState


class Gpus(Protocol):
    """Reads the GPUs. A missing library, device or field is unknown and never an error."""

    async def run(self) -> None:
        """Keep reading, off the loop where a read takes long, until cancelled. Never raises."""
        ...

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index as last read; never blocks. Empty before the first read, and when there
        is no NVML."""
        ...
