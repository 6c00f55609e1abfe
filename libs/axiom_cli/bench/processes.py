"""Processes that are measured: started on cores of their own, their CPU read, ended.

A figure is of the whole process tree of a router, as the system counts it (ticks of 10 ms). With
two cores or more the router has one to itself, and everything else shares another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from axiom_cli.stack.servers import die_with_parent
from axiom_common.errors import UnavailableError

STOP_TIMEOUT_S = 8.0
LOG_CHARS_SHOWN = 300
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the router, and the core of engines, load and servers."""

    router: int
    others: int


def take_cores() -> Cores:
    """Move this process, and so its children to come, to the core of the others."""
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {mine[0]})
    return Cores(router=mine[-1], others=mine[0])


class Running:
    """A process that runs, on the core that it was started on."""

    def __init__(self, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def check(self) -> None:
        """UnavailableError with the end of its log when it has ended."""
        if self._process.returncode is not None:
            log = " ".join(self._log_path.read_text(errors="replace").split())
            raise UnavailableError(f"{self._log_path.stem} ended: {log[-LOG_CHARS_SHOWN:]}")

    def cpu_s(self) -> float:
        """User and system time so far, of the process and its children."""
        return sum(_ticks(pid) for pid in _tree(self._process.pid)) / _TICKS_PER_S

    def rss_bytes(self) -> int:
        """Memory resident now, of the process and its children."""
        return sum(_resident_pages(pid) for pid in _tree(self._process.pid)) * _PAGE_BYTES


@contextlib.asynccontextmanager
async def running(
    argv: Sequence[str | Path],
    *,
    log_path: Path,
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """Start on a core (None: on those of this process), give it, end it and what it started."""
    die = die_with_parent()

    def in_child() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        if die is not None:
            die()

    inherited = os.environ  # noqa: TID251 - handed on to children, not read
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**inherited, **(environment or {})},
            start_new_session=True,
            preexec_fn=in_child,
        )
    try:
        yield Running(process, log_path)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    children = _tree(process.pid)[1:]
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    for pid in children:
        # Most have ended with their parent.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def _tree(root: int) -> list[int]:
    """A process and all that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def _ticks(pid: int) -> int:
    """User and system ticks; 0 for a process that has ended meanwhile."""
    try:
        fields = _stat(pid)
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _resident_pages(pid: int) -> int:
    """0 for a process that has ended meanwhile."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold anything; state first, then the parent."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
