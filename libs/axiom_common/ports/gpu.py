"""The GPUs of this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from axiom_common.model.engine import GpuState
from axiom_common.policy.scorers.thermal_safety import COUNTING_BITS, sustained_bits


class Gpus(Protocol):
    """Reads the GPUs. A missing library, device or field is unknown and never an error."""

    async def run(self, on_change: Callable[[], None]) -> None:
        """Keep reading, off the loop, until cancelled; `on_change` is called when `read` has
        something else to give. Never raises."""
        ...

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index as last read; never blocks. Empty before the first read, and as long as
        there was no NVML.

        The same objects until something changed that matters: what is `urgent` at once, the rest
        about once a second. A GPU that was seen once stays: `lost` when it fell off the bus or was
        unplugged, all but its name unknown while nobody can tell. Its index is its own while the
        process lives, also when others come and go.
        """
        ...


def urgent(gpu: GpuState) -> object:
    """What of a GPU is news at once when it changes; all else can wait for the next whole look."""
    return (gpu.lost, gpu.xid, (gpu.throttle or 0) & COUNTING_BITS, sustained_bits(gpu))
