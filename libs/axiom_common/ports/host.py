"""The host beside its GPUs: memory, page cache and disk for adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from axiom_common.model.engine import HostState


class Host(Protocol):
    """Reads the host. What the system does not say is unknown and never an error."""

    async def run(self, adapter_paths: Callable[[], Iterable[str]]) -> None:
        """Keep reading, off the loop, until cancelled. Never raises.

        `adapter_paths` is called in this loop and names where the adapters lie that engines answer
        to: a directory of files or one file each. What is no absolute path here does not count.
        """
        ...

    def read(self) -> HostState | None:
        """The host as last read; never blocks. None before the first read and when the last one is
        too old: reading may hang with a file system."""
        ...

    async def read_ahead(self, path: str, bytes_max: int) -> int | None:
        """Bring an adapter's files into the page cache, largest first, so that a load that follows
        waits for no disk. Returns the bytes that lie there then, at most `bytes_max`; None when
        nothing could be read: no such path here, or too many asked before. Cancelled, it soon stops
        reading.
        """
        ...
