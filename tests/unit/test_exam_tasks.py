"""The tasks of an exam: which there are, what they say together, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_common.errors import InvalidInputError
from axiom_sim.exam.expected import expected_requests
from axiom_sim.exam.kept import Kept
from axiom_sim.exam.outcome import Outcome
from axiom_sim.exam.tasks import BOUNDS, ExamTask, exam_tasks, results_of
from axiom_sim.scenario.library import find_scenario
from axiom_sim.workload.make import make_workload


def variant(scenario: str, name: str) -> ExamTask:
    (task,) = exam_tasks([find_scenario(scenario)[name]], ["aff"], [1], bounds=False)
    return task


def outcome(goodput: float) -> Outcome:
    figures = {
        "goodput": goodput,
        "ttft_ms_p99": 10.0 * goodput,
        "adapter_loads": 4,
        "belady_loads": 2,
    }
    return Outcome(figures=figures, utilisation=0.8, seconds=1.0)


def test_there_is_a_task_for_each_policy_bound_and_oracle() -> None:
    cliff = find_scenario("cliff")
    tasks = exam_tasks([cliff["a8"], cliff["a16"]], ["aff", "axiom"], [1, 2], timeline="axiom")
    assert len(tasks) == 2 * 2 * 5
    assert [task.run for task in tasks[:5]] == [
        "aff",
        "axiom",
        BOUNDS,
        "clairvoyant",
        "fresh-state",
    ]
    assert len({task.group for task in tasks}) == 4
    assert [task.name for task in tasks if task.timeline] == [
        "cliff a8, seed 1: axiom",
        "cliff a16, seed 1: axiom",
    ]


def test_without_bounds_the_oracles_are_left_out_as_well() -> None:
    tasks = exam_tasks([find_scenario("cliff")["a8"]], ["aff"], [1], bounds=False)
    assert [task.run for task in tasks] == ["aff"]
    assert list(results_of(tasks, [outcome(0.5)])["cliff"]["a8"]) == ["utilisation", "policies"]


def test_results_are_means_over_seeds_by_scenario_and_variant() -> None:
    tasks = exam_tasks([find_scenario("cliff")["a8"]], ["aff"], [1, 2])
    results = results_of(tasks, [outcome(0.1 * (n + 1)) for n in range(len(tasks))])
    told = results["cliff"]["a8"]
    assert list(told) == ["utilisation", "utilisation_ci95", "policies", "bounds"]
    # The first seed's tasks come first: 0.1 to 0.4, then 0.5 to 0.8.
    assert told["policies"]["aff"]["goodput"] == pytest.approx(0.3)
    assert told["bounds"]["belady_loads"] == 2
    assert told["bounds"]["clairvoyant"]["goodput"] == pytest.approx(0.5)
    assert "adapter_loads" not in told["bounds"]["fresh_state"]
    assert told["bounds"]["fresh_state"]["ttft_ms_p99_ci95"] > 0


@pytest.mark.parametrize(
    ("scenario", "name"),
    [("cliff", "a64"), ("mooncake-hour", "default"), ("sick-engines", "default")],
)
def test_the_expected_number_of_requests_is_about_right(scenario: str, name: str) -> None:
    resolved = find_scenario(scenario)[name]
    drawn = len(make_workload(resolved, 1).requests)
    assert expected_requests(resolved) == pytest.approx(drawn, rel=0.1)


def test_a_run_that_is_cut_is_expected_to_be() -> None:
    assert expected_requests(find_scenario("sixteen-regions")["default"]) == 200_000
    assert expected_requests(find_scenario("servegen-day")["slots-16-busy"]) == 400_000


def test_outcomes_are_kept_for_the_next_time(tmp_path: Path) -> None:
    first, other = variant("cliff", "a8"), variant("cliff", "a16")
    Kept(tmp_path).add(first, outcome(0.5))
    again = Kept(tmp_path)
    assert again.get(first) == outcome(0.5)
    assert again.get(other) is None
    again.add(other, outcome(0.6))
    assert Kept(tmp_path).get(other) == outcome(0.6)


def test_a_line_that_was_cut_is_left_out_and_what_follows_is_read(tmp_path: Path) -> None:
    first, other = variant("cliff", "a8"), variant("cliff", "a16")
    Kept(tmp_path).add(first, outcome(0.5))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b'{"task":"half')
    kept = Kept(tmp_path)
    kept.add(other, outcome(0.6))
    again = Kept(tmp_path)
    assert again.get(first) == outcome(0.5)
    assert again.get(other) == outcome(0.6)


def test_outcomes_of_other_code_are_forgotten(tmp_path: Path) -> None:
    task = variant("cliff", "a8")
    Kept(tmp_path).add(task, outcome(0.5))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b'{"code":"', b'{"code":"other'))
    assert Kept(tmp_path).get(task) is None


def test_a_folder_that_cant_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="can't keep outcomes"):
        Kept(tmp_path / "file")
