"""Supervision of real children: restart, backoff, hold, order, and death with the parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from axiom_cli.stack.processes import ProcessDied, ProcessSpec, SupervisedProcess
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError

SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    "time.sleep(60)",
)


async def until(condition: Callable[[], bool], *, timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@asynccontextmanager
async def supervised(
    argv: tuple[str, ...], tmp_path: Path
) -> AsyncIterator[tuple[SupervisedProcess, list[ProcessDied]]]:
    died: list[ProcessDied] = []
    process = SupervisedProcess(
        ProcessSpec(name="child", argv=argv),
        log_path=tmp_path / "child.log",
        environment={"PATH": os.environ["PATH"]},
        clock=SystemClock(),
        on_death=died.append,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(process.run(), name="child")
        try:
            yield process, died
        finally:
            await process.stop()


async def test_a_killed_process_is_told_of_and_comes_back(tmp_path: Path) -> None:
    async with supervised(SLEEPER, tmp_path) as (process, died):
        await process.started()
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: process.pid not in (None, first))
        assert [(d.name, d.exit_code) for d in died] == [("child", -signal.SIGKILL)]
        assert process.deaths == 1
        last = process.pid
    assert last is not None
    assert gone(last)


async def test_a_process_killed_on_purpose_stays_down_until_it_is_restarted(
    tmp_path: Path,
) -> None:
    async with supervised(SLEEPER, tmp_path) as (process, died):
        await process.started()
        first = process.pid
        await process.kill()
        assert process.pid is None
        await asyncio.sleep(0.5)  # longer than the first backoff: it must not come back by itself
        assert process.pid is None
        await process.restart()
        assert process.pid not in (None, first)
        second = process.pid
        await process.restart()
        assert process.pid not in (None, second)
        assert died == []


async def test_a_process_that_can_not_live_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiom_cli.stack.processes.BACKOFF_MS", 1.0)
    argv = (sys.executable, "-S", "-c", "print('no such engine'); raise SystemExit(3)")
    process = SupervisedProcess(
        ProcessSpec(name="child", argv=argv),
        log_path=tmp_path / "child.log",
        environment={},
        clock=SystemClock(),
        on_death=lambda died: None,
    )
    with pytest.raises(UnavailableError, match="no such engine"):
        async with asyncio.timeout(20):
            await process.run()
    assert process.pid is None


async def test_a_process_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiom_cli.stack.processes.STOP_TIMEOUT_MS", 200.0)
    async with supervised(STUBBORN, tmp_path) as (process, _):
        await process.started()
        pid = process.pid
        await until(lambda: "up" in process.log_end())
    assert pid is not None
    assert gone(pid)


async def test_a_paused_process_ends_as_well(tmp_path: Path) -> None:
    async with supervised(SLEEPER, tmp_path) as (process, _):
        await process.started()
        pid = process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    assert gone(pid)


PARENT = """
import asyncio, sys
import uvloop
from pathlib import Path
from axiom_cli.stack.processes import ProcessSpec, SupervisedProcess
from axiom_common.drivers.system_clock import SystemClock

async def main():
    process = SupervisedProcess(
        ProcessSpec(name="child", argv=(sys.executable, "-S", "-c", "import time; time.sleep(60)")),
        log_path=Path(sys.argv[1]), environment={}, clock=SystemClock(), on_death=print)
    async with asyncio.TaskGroup() as group:
        group.create_task(process.run(), name="child")
        await process.started()
        print(process.pid, flush=True)

uvloop.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "child.log")], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    assert not gone(child)
    parent.kill()
    parent.wait()
    await until(lambda: gone(child))
