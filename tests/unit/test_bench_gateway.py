"""What the figures of `axiom bench gateway` are made of, and how they get into a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_cli.bench.document import SECTION, section, write_section
from axiom_cli.bench.gateway import Measured, Round, figures_of
from axiom_cli.bench.telemetry_cost import in_turns
from axiom_cli.bench.tools import LoadResult
from axiom_common.errors import InvalidInputError


def measured(cpu_s: float, done: int = 100, p50_ms: float = 1.0, first_ms: float = 6.0) -> Measured:
    load = LoadResult(
        done=done,
        bad=0,
        late=0,
        events=1000,
        seconds=1.0,
        first_byte_ms_p50=first_ms,
        first_byte_ms_p99=first_ms,
        p50_ms=p50_ms,
        p99_ms=2 * p50_ms,
    )
    return Measured(load, cpu_s)


def one_round(cpu_s: float, p50_ms: float, direct_ms: float, **more: Measured) -> Round:
    steps = dict.fromkeys(["small", "streams", "stream", "32kB", "128kB"], measured(cpu_s))
    paced = {"paced": measured(cpu_s, p50_ms=p50_ms)}
    return {
        "router": steps | paced | more,
        "direct": {"paced": measured(0.0, p50_ms=direct_ms)},
    }


def test_cpu_is_the_least_of_the_rounds_and_latency_the_median_of_what_is_added() -> None:
    rounds = [one_round(0.2, 3.0, 1.0), one_round(0.1, 9.0, 1.0), one_round(0.3, 5.0, 4.0)]
    found = figures_of("router", rounds)
    assert found["cpu_us_small"] == found["cpu_us_128kB"] == 1000.0
    assert found["cpu_us_chunk"] == 100.0
    # 2, 8 and 1 ms more than directly in the same round
    assert (found["added_ms_p50"], found["added_ms_p99"]) == (2.0, 4.0)
    assert found["first_byte_ms"] == found["first_byte_ms_64"] == 6.0
    assert "cpu_us_small_adapter" not in found


def test_requests_for_adapters_are_told_where_they_were_measured() -> None:
    rounds = [one_round(0.2, 3.0, 1.0, **{"small-adapter": measured(0.4)})]
    assert figures_of("router", rounds)["cpu_us_small_adapter"] == 4000.0


def test_the_cost_of_telling_is_what_is_left_between_the_best_turns_of_two_gateways() -> None:
    rounds = [
        one_round(0.2, 3.0, 1.0, told=measured(told), untold=measured(untold))
        for told, untold in ((0.25, 0.19), (0.2, 0.18), (0.22, 0.2))
    ]
    found = figures_of("router", rounds)
    assert found["cpu_us_small_without_telemetry"] == 1800.0
    assert found["telemetry_share"] == 0.1
    assert "telemetry_share" not in figures_of("router", [one_round(0.2, 3.0, 1.0)])


async def test_turns_change_who_begins_and_the_cheapest_of_each_counts() -> None:
    order: list[str] = []
    costs = {"told": [4.0, 3.0, 5.0, 6.0], "untold": [2.0, 9.0, 1.0, 8.0]}

    async def turn(name: str) -> float:
        order.append(name)
        return costs[name][order.count(name) - 1]

    best = await in_turns(lambda: turn("told"), lambda: turn("untold"), cost=lambda cost: cost)
    assert best == (3.0, 1.0)
    assert order == ["told", "untold", "untold", "told"] * 2


TOLD = {
    "peers": {"nginx": {"cpu_us_small": 10.0}, "axiom": {"cpu_us_small": 150.0}},
    "engines": 4,
    "adapters": 8,
    "machine": {"cpu": "A CPU", "cores": 2, "python": "3.11.7"},
    "commit": "abc",
    "seconds": 2.0,
    "repeats": 3,
}


def test_a_document_gets_the_figures_between_its_marks_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    begin, end = f"<!-- {SECTION}: begin -->", f"<!-- {SECTION}: end -->"
    path.write_text(f"# Before\n{begin}\nold\n{end}\nafter\n")
    write_section(path, SECTION, section(TOLD, "axiom bench gateway"))
    text = path.read_text()
    assert text.startswith("# Before\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "old" not in text
    assert "| nginx | 10 |" in text
    assert "Lost: a small request costs Axiom 15.0 times nginx's." in text
    write_section(path, SECTION, section(TOLD, "axiom bench gateway"))
    assert path.read_text() == text


def test_a_document_without_marks_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text("nothing")
    with pytest.raises(InvalidInputError):
        write_section(path, SECTION, section(TOLD, "axiom bench gateway"))
    assert path.read_text() == "nothing"
