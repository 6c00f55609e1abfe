"""The GPUs of this host."""

from __future__ import annotations

from typing import Protocol

from axiom_common.model.engine import GpuState


class Gpus(Protocol):
    """Reads the GPUs. A missing library, device or field is unknown and never an error."""

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index; empty when there is no NVML."""
        ...
