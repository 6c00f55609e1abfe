"""Tasks over processes: each once, the same results however many, and nobody left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from axiom_common.errors import InvalidInputError, UnavailableError
from axiom_sim.exam.workers import carry_out_all


@dataclass(frozen=True)
class Sum:
    """Adds the numbers below `below`; or does what else `instead` says."""

    below: int
    group: str = "one"
    instead: str = ""

    @property
    def name(self) -> str:
        return f"the sum below {self.below}"

    @property
    def cost(self) -> float:
        return float(self.below)


@dataclass
class Heard:
    """A listener that keeps all."""

    begun: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    results: dict[int, int] = field(default_factory=dict)

    def began(self, task: int) -> None:
        self.begun.append(task)

    def told(self, task: int, share: float) -> None:
        self.shares.append(share)

    def done(self, task: int, result: int) -> None:
        assert task not in self.results
        self.results[task] = result


def add(task: Sum, told: Callable[[float], None]) -> int:
    if task.instead == "refuse":
        raise InvalidInputError("not this one")
    if task.instead == "break":
        raise ZeroDivisionError
    if task.instead == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    told(0.5)
    told(0.5001)
    return sum(range(task.below))


def done(tasks: list[Sum], processes: int) -> Heard:
    heard = Heard()
    carry_out_all(tasks, add, processes=processes, listener=heard)
    return heard


@pytest.mark.parametrize("processes", [1, 2])
def test_each_task_is_carried_out_once(processes: int) -> None:
    tasks = [Sum(below, group=str(below % 3)) for below in range(8)]
    heard = done(tasks, processes)
    assert heard.results == {n: sum(range(n)) for n in range(8)}
    assert sorted(heard.begun) == list(range(8))
    assert set(heard.shares) <= {0.5, 0.5001}
    assert not multiprocessing.active_children()


def test_the_dearest_group_comes_first_and_its_dearest_task() -> None:
    tasks = [Sum(5, "small"), Sum(4, "large"), Sum(3, "large"), Sum(1, "small")]
    assert done(tasks, 1).begun == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("instead", "error", "told"),
    [
        ("refuse", UnavailableError, "the sum below 3: not this one"),
        ("break", RuntimeError, "ZeroDivisionError"),
        ("die", UnavailableError, "ended with -9"),
    ],
)
def test_an_error_ends_all(instead: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        done([Sum(3, instead=instead), Sum(1), Sum(2)], 2)
    assert not multiprocessing.active_children()


def test_no_task_is_no_work() -> None:
    assert done([], 2).results == {}
