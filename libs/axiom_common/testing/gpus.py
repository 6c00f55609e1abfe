"""GPUs as a test wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from axiom_common.model.engine import GpuState


class FakeGpus:
    """Answers with what it was given. As with real ones, who was there once is lost, not gone."""

    def __init__(self, *gpus: GpuState) -> None:
        self._gpus: tuple[GpuState, ...] = ()
        self._on_change: Callable[[], None] | None = None
        self.show(*gpus)

    async def run(self, on_change: Callable[[], None]) -> None:
        """They are as they were given."""
        self._on_change = on_change
        on_change()
        await asyncio.Event().wait()

    def read(self) -> tuple[GpuState, ...]:
        """All GPUs by index."""
        return self._gpus

    def show(self, *gpus: GpuState) -> None:
        """From now on these are there."""
        there = {gpu.index: gpu for gpu in self._gpus}
        for gpu in self._gpus:
            there[gpu.index] = GpuState(index=gpu.index, uuid=gpu.uuid, name=gpu.name, lost=True)
        there |= {gpu.index: gpu for gpu in gpus}
        gpus = tuple(there[index] for index in sorted(there))
        if gpus != self._gpus:
            self._gpus = gpus
            if self._on_change is not None:
                self._on_change()

    def lose(self, index: int) -> None:
        """One falls off the bus."""
        self.show(*(gpu for gpu in self._gpus if gpu.index != index))
