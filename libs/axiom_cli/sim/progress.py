"""Progress of an exam on standard error: a bar for people, a line now and then for logs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from axiom_cli.output import progress_console
from axiom_sim.exam.outcome import Outcome
from axiom_sim.exam.tasks import ExamTask

_LOG_SHARE = 0.05
_SPEED_PERIOD_S = 600.0
"""Tasks differ, so the time left is told from what was done in so long."""


Keep = Callable[[ExamTask, Outcome], None]


class Watched:
    """Hears of tasks, keeps their outcomes, and shows how far all is."""

    def __init__(self, tasks: Sequence[ExamTask], keep: Keep | None, console: Console) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._tasks = tasks
        self._keep = keep
        self._console = console
        self._running: dict[int, float] = {}
        self._done_cost = 0.0
        self._all_cost = sum(task.cost for task in tasks) or 1.0
        self._logged = 0.0
        self._bar = Progress(
            TextColumn("{task.description}", style="dim"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=_SPEED_PERIOD_S,
        )
        self._line = self._bar.add_task("", total=self._all_cost)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self._bar.stop()

    def began(self, task: int) -> None:
        """A process took it."""
        self._running[task] = 0.0
        self._show()

    def told(self, task: int, share: float) -> None:
        """So much of it is done."""
        self._running[task] = share
        self._show()

    def done(self, task: int, result: Outcome) -> None:
        """Keep its outcome."""
        del self._running[task]
        self.outcomes[task] = result
        if self._keep is not None:
            self._keep(self._tasks[task], result)
        self._done_cost += self._tasks[task].cost
        self._show()

    def _show(self) -> None:
        under_way = sum(share * self._tasks[task].cost for task, share in self._running.items())
        cost = self._done_cost + under_way
        names = " | ".join(self._tasks[task].name for task in self._running)
        self._bar.update(self._line, completed=cost, description=names)
        if not self._console.is_terminal and cost / self._all_cost >= self._logged + _LOG_SHARE:
            self._logged = cost / self._all_cost
            told = f"{self._logged:.0%}, {len(self.outcomes)} of {len(self._tasks)} runs: {names}"
            self._console.print(told, soft_wrap=True, markup=False)


@contextlib.contextmanager
def watched(tasks: Sequence[ExamTask], keep: Keep | None) -> Iterator[Watched]:
    """Show the progress of these tasks until the end of the block; `keep` hears of each outcome."""
    with Watched(tasks, keep, progress_console()) as watching:
        yield watching
