"""A host as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from axiom_common.model.engine import HostState


class FakeHost:
    """Holds adapters of these sizes, by path. `ahead` is what was read ahead, in that order."""

    def __init__(self, files: Mapping[str, int] | None = None) -> None:
        self.files = dict(files or {})
        self.ahead: list[str] = []
        self._paths: Callable[[], Iterable[str]] | None = None

    async def run(self, adapter_paths: Callable[[], Iterable[str]]) -> None:
        """From now on it is read."""
        self._paths = adapter_paths
        await asyncio.Event().wait()

    def read(self) -> HostState | None:
        """Only what was read ahead is cached."""
        if self._paths is None:
            return None
        cached = sum(self.files.get(p, 0) for p in set(self._paths()) & set(self.ahead))
        return HostState(memory_total_bytes=1 << 40, adapter_cache_bytes=cached)

    async def read_ahead(self, path: str, bytes_max: int) -> int | None:
        """Done at once."""
        if path not in self.files:
            return None
        self.ahead.append(path)
        return min(bytes_max, self.files[path])
