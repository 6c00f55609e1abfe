"""What the extension's half in the worker says, over stand-ins of vLLM's managers."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from tests.vllm_stand_ins import Request, Worker, WorkerManager, play

from axiom_vllm.control import AdapterControl
from axiom_vllm.known import numbers_in_use, worker_problem
from axiom_vllm.messages import Message
from axiom_vllm.watch import AdapterWatch


class Watched:
    """A worker with the extension on it, and all that it said."""

    def __init__(self, **sizes: int) -> None:
        self.worker = Worker(WorkerManager(**sizes))
        self.said: list[Message] = []
        self.failures: list[Exception] = []
        self.due = False
        self.watch = AdapterWatch(self.worker.manager, {}, self.said.append, lambda: self.due)
        self.watch.attach(self.failures.append)

    @property
    def control(self) -> AdapterControl:
        return AdapterControl(
            self.watch,
            self.worker.model_runner,
            lambda number, name, path: Request(name, number, path),
        )

    def load(self, *numbers: int) -> None:
        for number in numbers:
            self.worker.manager.add_adapter(Request(f"n{number}", number))

    def step(self, *numbers: int) -> None:
        self.worker.manager.set_active_adapters([Request(f"n{n}", n) for n in numbers])

    def held(self) -> tuple[list[int | None], list[int], list[int]]:
        adapters = self.worker.manager._adapter_manager
        return (
            adapters.lora_index_to_id,
            list(adapters._active_adapters.order),
            list(adapters._registered_adapters.order),
        )


def ops(message: Message) -> list[tuple[Any, ...]]:
    return [(e["op"], e["id"]) for e in message["events"]]


def test_a_load_says_what_came_and_what_left() -> None:
    watched = Watched()
    watched.load(1, 2, 3)
    last = watched.said[-1]
    assert (last["slots"], last["hbm"], last["host"]) == ([3, 2], [2, 3], [1, 2, 3])
    assert ops(last) == [("freed", 1), ("loaded", 3), ("activated", 3)]
    assert last["names"] == {"3": "n3"}
    assert (last["hbm_slots"], last["host_slots"]) == (2, 4)
    watched.load(4, 5)
    assert ops(watched.said[-1]) == [
        ("freed", 3),
        ("dropped", 1),
        ("loaded", 5),
        ("activated", 5),
    ]


def test_a_step_speaks_only_when_the_order_changed() -> None:
    watched = Watched()
    watched.load(1, 2)
    before = len(watched.said)
    for _ in range(5):
        watched.step(1, 2)
    assert len(watched.said) == before
    watched.step(1)
    assert len(watched.said) == before + 1
    assert (watched.said[-1]["hbm"], watched.said[-1]["events"]) == ([2, 1], [])
    watched.due = True
    watched.step(1)
    assert len(watched.said) == before + 2


def test_a_step_with_several_loads_is_one_message() -> None:
    watched = Watched()
    watched.step(1, 2)
    [message] = watched.said
    assert ops(message) == [("loaded", 1), ("loaded", 2), ("activated", 1), ("activated", 2)]


def test_a_load_in_place_is_a_load() -> None:
    watched = Watched()
    watched.load(1)
    watched.worker.manager.add_adapter(Request("n1", 1, load_inplace=True))
    assert ops(watched.said[-1]) == [("loaded", 1), ("activated", 1)]


def test_a_failed_load_passes_its_error_on_and_says_nothing() -> None:
    watched = Watched()
    watched.worker.manager.broken.add("/bad")
    with pytest.raises(ValueError, match="/bad"):
        watched.worker.manager.add_adapter(Request("bad", 9, "/bad"))
    assert watched.said == []


@pytest.mark.parametrize("seed", range(20))
def test_what_was_said_last_is_what_is_held(seed: int) -> None:
    plain, watched = WorkerManager(), Watched()
    story = play(watched.worker.manager, Request, seed=seed, steps=80)
    # `play` frees slots behind the worker manager's back; the next change through it tells.
    watched.step(1, 2)
    assert story == play(plain, Request, seed=seed, steps=80)
    last = watched.said[-1]
    assert (last["slots"], last["hbm"], last["host"]) == watched.held()
    replayed: set[int] = set()
    for message in watched.said:
        for event in message["events"]:
            if event["op"] == "loaded":
                replayed.add(event["id"])
            elif event["op"] == "dropped":
                replayed.remove(event["id"])
    assert replayed == set(last["host"])


def test_an_error_of_its_own_turns_it_off_and_never_reaches_the_engine() -> None:
    watched = Watched()
    watched.load(1)
    kept = watched.worker.manager._adapter_manager._registered_adapters
    watched.watch._on_change = lambda message: 1 / 0
    watched.load(2)
    assert [type(failure) for failure in watched.failures] == [ZeroDivisionError]
    said = len(watched.said)
    watched.load(3)
    assert list(kept.order) == [1, 2, 3]
    assert len(watched.said) == said
    assert "_apply_adapters" not in vars(watched.worker.manager)


def test_whole_names_everything() -> None:
    worker = Worker()
    worker.manager.add_adapter(Request("old", 7))
    watch = AdapterWatch(worker.manager, {7: "old", 8: "gone"}, print, bool)
    whole = watch.whole()
    assert (whole["whole"], whole["names"], whole["host"]) == (True, {"7": "old"}, [7])


class TestControl:
    def test_a_load_to_host_takes_no_slot(self) -> None:
        watched = Watched()
        watched.load(1, 2)
        slots = list(watched.held()[0])
        assert watched.control.load_to_host(3, "n3", "/p") == {
            "v": 1,
            "done": True,
            "changed": True,
        }
        assert watched.held()[0] == slots
        assert ops(watched.said[-1]) == [("loaded", 3)]
        assert watched.control.load_to_host(3, "n3", "/p")["changed"] is False

    def test_where_host_is_full_the_oldest_idle_copy_leaves(self) -> None:
        watched = Watched()
        watched.load(1, 2, 3, 4)
        assert watched.control.load_to_host(5, "n5", "/p")["done"]
        assert watched.held()[2] == [2, 3, 4, 5]

    def test_a_copy_in_use_stays(self) -> None:
        watched = Watched(slots=2, capacity=2)
        watched.load(1, 2)
        watched.worker.running = [Request("n1", 1), None]
        answer = watched.control.load_to_host(5, "n5", "/p")
        assert (answer["done"], answer["reason"]) == (False, "no-room")
        assert watched.held()[2] == [1, 2]
        assert watched.control.free_slot(1)["reason"] == "in-use"
        assert watched.control.drop(1)["reason"] == "in-use"

    def test_a_broken_adapter_pushes_nothing_out(self) -> None:
        watched = Watched()
        watched.load(1, 2, 3, 4)
        watched.worker.manager.broken.add("/bad")
        answer = watched.control.load_to_host(5, "n5", "/bad")
        assert (answer["reason"], answer["detail"]) == ("load-failed", "nothing at /bad")
        assert watched.held()[2] == [1, 2, 3, 4]

    def test_a_slot_is_freed_and_both_copies_dropped(self) -> None:
        watched = Watched()
        watched.load(1, 2)
        assert watched.control.free_slot(1)["changed"] is True
        assert watched.held() == ([None, 2], [2], [1, 2])
        assert ops(watched.said[-1]) == [("freed", 1)]
        assert watched.control.free_slot(1)["changed"] is False
        assert watched.control.drop(2)["changed"] is True
        assert ops(watched.said[-1]) == [("freed", 2), ("dropped", 2)]
        assert watched.control.drop(2)["changed"] is False

    def test_pins_are_told_and_refused_for_reasons(self) -> None:
        watched = Watched()
        watched.load(1, 2, 3, 4)
        assert watched.control.pin(9)["reason"] == "not-held"
        for number in (1, 2, 3):
            assert watched.control.pin(number)["changed"] is True
        assert watched.said[-1]["pinned"] == [1, 2, 3]
        assert watched.control.pin(4)["reason"] == "no-room"
        assert watched.control.pin(3)["changed"] is False
        assert watched.control.free_slot(3)["reason"] == "pinned"
        assert watched.control.unpin(3)["changed"] is True
        assert watched.said[-1]["pinned"] == [1, 2]

    @pytest.mark.parametrize("seed", range(10))
    def test_what_is_pinned_stays_whatever_single_adapters_run(self, seed: int) -> None:
        chance = random.Random(seed)
        watched = Watched()
        watched.load(1)
        watched.control.pin(1)
        for _ in range(60):
            chance.choice([watched.load, watched.step])(chance.randrange(2, 9))
            slots, _, host = watched.held()
            assert 1 in slots
            assert 1 in host

    def test_a_batch_that_needs_every_slot_gets_it(self) -> None:
        watched = Watched()
        watched.load(1)
        watched.control.pin(1)
        watched.step(2, 3)
        assert set(watched.held()[0]) == {2, 3}
        assert 1 in watched.held()[2]

    def test_a_copy_that_left_is_pinned_no_more(self) -> None:
        watched = Watched()
        watched.load(1)
        watched.control.pin(1)
        watched.worker.manager.remove_all_adapters()
        assert watched.said[-1]["pinned"] == []


class TestKnown:
    def test_versions(self) -> None:
        assert worker_problem(Worker(), "0.32.1") is None
        assert worker_problem(Worker(), "0.33.0") == ("unknown-version", "0.33.0")
        assert worker_problem(Worker(), "0.320.0") == ("unknown-version", "0.320.0")

    def test_each_missing_part_is_named(self) -> None:
        worker = Worker()
        del worker.manager._adapter_manager.lora_index_to_id
        problem = worker_problem(worker, "0.32.0")
        assert problem == ("unknown-internals", "_adapter_manager.lora_index_to_id")

    def test_an_engine_without_adapters(self) -> None:
        class Bare:
            class model_runner:  # noqa: N801 - as vLLM's attribute
                lora_config = None

        problem = worker_problem(Bare(), "0.32.0")
        assert problem is not None
        assert problem[0] == "no-lora"

    def test_both_model_runners_tell_their_requests(self) -> None:
        class State:
            def __init__(self) -> None:
                self.lora_requests = {"a": Request("n4", 4)}

        class Newer:
            lora_state = State()

        assert numbers_in_use(Newer()) == {4}
        worker = Worker(running=[Request("n5", 5), None])
        assert numbers_in_use(worker.model_runner) == {5}


UNKNOWN = """
import sys, types
vllm = types.ModuleType("vllm")
vllm.__version__ = "{version}"
sys.modules["vllm"] = vllm
from axiom_vllm.worker import WorkerExtension
from tests.vllm_stand_ins import Request, Worker
class Extended(Worker, WorkerExtension):
    pass
worker = Extended()
answer = worker.axiom_attach({{}})
worker.manager.add_adapter(Request("n1", 1))
print(answer.get("supported"), answer.get("reason"), sorted(vars(worker.manager)))
print(worker.axiom_control("pin", [1])["reason"])
"""


@pytest.mark.parametrize(
    ("version", "socket_path", "reason"),
    [("9.9.0", "/nowhere/agent.sock", "unknown-version"), ("0.32.0", "", "not-enabled")],
)
def test_where_it_is_off_the_engine_is_untouched(
    version: str, socket_path: str, reason: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNKNOWN.format(version=version)],
        env={"AXIOM_AGENT_SOCKET": socket_path, "PYTHONPATH": "."},
        check=True,
        capture_output=True,
        text=True,
    )
    untouched = "['_adapter_manager', 'broken']"
    assert ran.stdout.splitlines() == [f"False {reason} {untouched}", "failed"]
    assert ran.stderr == "", "the server's half logs the one line"
