"""Tasks carried out by processes: no task waits for another, and the results do not depend on how
many processes there are.

Tasks of one group share something costly that a process makes once and keeps until it gets a task
of another group. So a process stays with its group while there is work in it, and then takes the
one that has the most left: the longest come first, and in the end all help with the last.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar, cast

from axiom_common.errors import AxiomError, UnavailableError

T = TypeVar("T", bound="Task")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
_LEAST_SHARE = 0.01
"""Progress of a task is told in steps of this size."""


class Task(Protocol):
    """What is sent to a process; pickled. `cost` is a guess of its time in a unit of any size."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def group(self) -> str:
        """Which tasks share what is made once."""
        ...

    @property
    def cost(self) -> float:
        """Expected time."""
        ...


class Listener(Protocol[R_contra]):
    """Who hears what goes on. Tasks are told by their place in what was given."""

    def began(self, task: int) -> None:
        """A process took it."""
        ...

    def told(self, task: int, share: float) -> None:
        """So much of it is done, 0 to 1."""
        ...

    def done(self, task: int, result: R_contra) -> None:
        """Its result."""
        ...


CarryOut = Callable[[T, Callable[[float], None]], R]
"""Carries out a task, telling how much of it is done; a module's function, for it is pickled."""


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def carry_out_all(
    tasks: Sequence[T], carry_out: CarryOut[T, R], *, processes: int, listener: Listener[R]
) -> None:
    """Carry out all tasks; with one process, in this one. The first error ends all: one of Axiom's
    as UnavailableError, another with its trace. Whatever ends it, no process is left."""
    left = _Left(tasks)
    if min(processes, len(tasks)) <= 1:
        group: str | None = None
        while (index := left.take(group)) is not None:
            group = tasks[index].group
            listener.began(index)
            listener.done(index, carry_out(tasks[index], _told(listener, index)))
        return
    workers: list[_Worker] = []
    try:
        for _ in range(min(processes, len(tasks))):
            workers.append(_Worker(carry_out))
        _drive(workers, left, tasks, listener)
    finally:
        for worker in workers:
            worker.end()


def _told(listener: Listener[Any], index: int) -> Callable[[float], None]:
    return lambda share: listener.told(index, share)


class _Left(Generic[T]):
    """The tasks that nobody took yet."""

    def __init__(self, tasks: Sequence[T]) -> None:
        self._cost: dict[str, float] = {}
        self._of: dict[str, list[int]] = {}
        self._started: set[str] = set()
        for index in sorted(range(len(tasks)), key=lambda i: tasks[i].cost):
            group = tasks[index].group
            self._of.setdefault(group, []).append(index)
            self._cost[group] = self._cost.get(group, 0.0) + tasks[index].cost
        self._tasks = tasks

    def take(self, group: str | None) -> int | None:
        """The dearest task of the group, else of the one that a process should begin with."""
        if not self._of:
            return None
        if group is None or group not in self._of:
            # What nobody works at comes first, so that few processes make the same.
            group = max(self._of, key=lambda name: (name not in self._started, self._cost[name]))
        self._started.add(group)
        index = self._of[group].pop()
        self._cost[group] -= self._tasks[index].cost
        if not self._of[group]:
            del self._of[group]
        return index


def _drive(
    workers: Sequence[_Worker], left: _Left[T], tasks: Sequence[T], listener: Listener[Any]
) -> None:
    """Give each process one task after another, and hear of them."""
    by_pipe: dict[Any, _Worker] = {}
    for worker in workers:
        if worker.take(left, tasks, listener):
            by_pipe[worker.pipe] = worker
    while by_pipe:
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]
            said, payload = worker.heard()
            if said == "told":
                listener.told(worker.task, payload)
            elif said == "done":
                listener.done(worker.task, payload)
                if not worker.take(left, tasks, listener):
                    del by_pipe[pipe]
            elif isinstance(payload, AxiomError):
                raise UnavailableError(f"{tasks[worker.task].name}: {payload}") from payload
            elif said == "failed":
                raise RuntimeError(f"{tasks[worker.task].name} failed:\n{payload}")
            else:
                raise UnavailableError(
                    f"the process of {tasks[worker.task].name} ended with {payload}; killed by the "
                    "system, it had no memory left: run fewer at once"
                )


class _Worker:
    """A process, and the task that it has."""

    def __init__(self, carry_out: CarryOut[Any, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.task = -1
        self._group: str | None = None
        self._process = context.Process(target=_work, args=(theirs, carry_out), daemon=True)
        self._process.start()
        theirs.close()

    def take(self, left: _Left[T], tasks: Sequence[T], listener: Listener[Any]) -> bool:
        """Give it a task; False when none is left."""
        index = left.take(self._group)
        if index is None:
            return False
        self.task, self._group = index, tasks[index].group
        with contextlib.suppress(BrokenPipeError):  # it has ended: its end is heard
            self.pipe.send(tasks[index])
        listener.began(index)
        return True

    def heard(self) -> tuple[str, Any]:
        """What it says, in a word, and with what; `ended` when it can't say any more."""
        try:
            return cast("tuple[str, Any]", self.pipe.recv())
        except (EOFError, OSError):
            self._process.join()
            return "ended", self._process.exitcode

    def end(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()


def _work(pipe: Connection, carry_out: CarryOut[Any, Any]) -> None:
    """What a process does: one task after another, until the pipe ends or its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        last = 0.0

        def told(share: float) -> None:
            nonlocal last
            if share - last >= _LEAST_SHARE:
                last = share
                pipe.send(("told", share))

        try:
            pipe.send(("done", carry_out(task, told)))
        except AxiomError as error:
            pipe.send(("failed", UnavailableError(str(error))))
        except Exception:  # noqa: BLE001 - told to the parent, which raises
            pipe.send(("failed", traceback.format_exc()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
