"""Memory, page cache and disk of this host, read in a thread of its own, as is what is read ahead.

A file system that hangs (a network mount) holds up these two threads and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from axiom_common.drivers import adapter_files
from axiom_common.drivers.background_reads import BackgroundReads
from axiom_common.model.engine import HostState
from axiom_common.ports.clock import Clock

READ_EVERY_MS = 10_000.0
STALE_MS = 35_000.0
PATHS_MAX = 4096
READ_AHEADS_MAX = 16
"""Those that wait. More than that is no reading ahead any more."""


class HostFacts:
    """Implements `Host`. `adapter_dirs`: where adapters lie on this host, whether or not any engine
    answers to one yet."""

    def __init__(
        self,
        clock: Clock,
        *,
        adapter_dirs: Sequence[str] = (),
        meminfo: Path = Path("/proc/meminfo"),
    ) -> None:
        self._clock = clock
        self._dirs = tuple(adapter_dirs)
        self._meminfo = meminfo
        self._paths: tuple[str, ...] = ()
        self._reads = BackgroundReads(
            "host facts", self._look, lambda: None, clock, every_ms=READ_EVERY_MS
        )
        self._asked: queue.Queue[Callable[[], None]] = queue.Queue(READ_AHEADS_MAX)
        self._reader: threading.Thread | None = None

    async def run(self, adapter_paths: Callable[[], Iterable[str]]) -> None:
        """Keep looking."""
        self._paths = tuple(islice(adapter_paths(), PATHS_MAX))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reads.run(lambda: None), name="host facts")
            while True:
                await self._clock.sleep_ms(READ_EVERY_MS)
                self._paths = tuple(islice(adapter_paths(), PATHS_MAX))

    def read(self) -> HostState | None:
        """The host as last seen."""
        if self._reads.latest is None:
            return None
        state, looked_ms = self._reads.latest
        return state if self._clock.now_ms() - looked_ms < STALE_MS else None

    async def read_ahead(self, path: str, bytes_max: int) -> int | None:
        """Read the adapter's files, after those that others asked for before."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int | None] = loop.create_future()

        def work() -> None:
            read = None
            if not done.cancelled():
                read = adapter_files.read_ahead(path, bytes_max, lambda: not done.cancelled())
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, done, read)

        if self._reader is None:
            self._reader = threading.Thread(target=self._work, name="read ahead", daemon=True)
            self._reader.start()
        try:
            self._asked.put_nowait(work)
        except queue.Full:
            return None
        return await done

    def _work(self) -> None:
        while True:
            self._asked.get()()

    def _look(self) -> HostState:
        memory = _memory(self._meminfo)
        total, free = _disk((*self._dirs, *self._paths))
        cached, shared = memory.get("Cached"), memory.get("Shmem", 0)
        return HostState(
            memory_total_bytes=memory.get("MemTotal"),
            memory_available_bytes=memory.get("MemAvailable"),
            # Files in RAM alone (tmpfs) are counted as cached too, but no disk holds them.
            page_cache_bytes=None if cached is None else max(0, cached - shared),
            adapter_cache_bytes=adapter_files.cached_bytes(self._paths),
            adapter_disk_total_bytes=total,
            adapter_disk_free_bytes=free,
        )


def _resolve(done: asyncio.Future[int | None], read: int | None) -> None:
    if not done.done():
        done.set_result(read)


def _memory(meminfo: Path) -> dict[str, int]:
    """The lines `Name: N kB`, in bytes; none where the system has no such file."""
    try:
        lines = meminfo.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    fields = (line.split() for line in lines)
    return {
        f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if f[2:] == ["kB"] and f[1].isdigit()
    }


def _disk(paths: Iterable[str]) -> tuple[int | None, int | None]:
    """(total, free for others than root) of the file system under these paths that has the least
    room; unknown where none of them is here."""
    seen: dict[int, tuple[int, int]] = {}
    for path in paths:
        if not path.startswith("/"):
            continue
        try:
            device = Path(path).stat().st_dev
            if device not in seen:
                disk = os.statvfs(path)
                seen[device] = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
        except (OSError, ValueError):
            continue
    free, total = min(seen.values(), default=(None, None))
    return total, free
