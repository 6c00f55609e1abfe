"""GPUs as a test wants them."""

from __future__ import annotations

import asyncio

from axiom_common.model.engine import GpuState


class FakeGpus:
    """Answers with what it was given; `lose` makes one GPU silent, as when it falls off the bus."""

    def __init__(self, *gpus: GpuState) -> None:
        self._gpus = {gpu.index: gpu for gpu in gpus}

    async def run(self) -> None:
        """They are as they were given."""
        await asyncio.Event().wait()

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index."""
        return tuple(self._gpus[index] for index in sorted(self._gpus))

    def lose(self, index: int) -> None:
        """All that is left of a lost GPU is its index."""
        self._gpus[index] = GpuState(index=index, lost=True)
