"""What is shown of simulated runs: the best of each column, Axiom's losses, bounds, the page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from tests.exam_parts import policy_figures, timeline, variant_result

from axiom_cli.sim.document import exam_section
from axiom_cli.sim.report import Drawn, sim_report
from axiom_cli.sim.tables import (
    HEAD,
    best_baseline,
    bound_lines,
    overview_rows,
    policy_rows,
    verdict_lines,
)


def cell(rows: list[tuple[str, ...]], policy: str, head: str) -> str:
    return next(row for row in rows if row[0] == policy)[HEAD.index(head)]


def test_the_best_of_each_column_is_marked_and_equals_are_not() -> None:
    rows = policy_rows(variant_result())
    assert cell(rows, "axiom", "goodput") == "96.0 % *"
    assert cell(rows, "aff", "adapter loads") == "40 *"
    assert cell(rows, "axiom", "adapter loads") == "55"
    assert cell(rows, "aff", "failed") == "0"
    assert [row[0] for row in rows] == ["round-robin", "aff", "axiom", "clairvoyant", "fresh-state"]
    assert cell(rows, "fresh-state", "adapter loads") == "–"


def test_an_interval_stands_beside_its_mean_and_unknown_is_told_as_such() -> None:
    figures = policy_figures(0.5, None, 800.0, 12.5, goodput_ci95=0.012, adapter_loads_ci95=1.5)
    rows = policy_rows(variant_result(axiom=figures))
    assert cell(rows, "axiom", "goodput") == "50.0 % ± 1.2"
    assert cell(rows, "axiom", "adapter loads") == "12.5 ± 1.5"
    assert cell(rows, "axiom", "TTFT p50, ms") == "–"


def test_axiom_is_told_beside_the_best_baseline_with_its_losses_and_the_split() -> None:
    lines = verdict_lines(variant_result())
    assert lines == [
        "Axiom beside aff, the best baseline: goodput 96.0 % to 93.0 %, TTFT p99 0.93 times, "
        "loads 1.38 times.",
        "Lost: adapter loads to aff (40); unsafe evictions to round-robin (0).",
        "Foresight, fresh-state to clairvoyant: goodput +0.5 points, TTFT p99 -20 ms.",
        "Staleness, axiom to fresh-state: goodput +1.0 points, TTFT p99 -30 ms.",
    ]
    assert bound_lines(variant_result()) == [
        "Bounds: no policy loads fewer than 16 (Belady, one pool); 30 with true rates and no "
        "foresight, one pool; TTFT p99 at least 210 ms; goodput at most 99.0 %."
    ]


def test_without_axiom_or_bounds_less_is_said() -> None:
    alone = {"utilisation": 0.5, "policies": {"aff": policy_figures(1.0, 50.0, 60.0, 4)}}
    assert verdict_lines(alone) == []
    assert bound_lines(alone) == []
    assert best_baseline({"axiom": policy_figures(1.0, 1.0, 1.0, 1)}) is None


def test_of_equal_goodput_the_lower_p99_is_the_best_baseline() -> None:
    slow, fast = policy_figures(0.9, 50.0, 900.0, 4), policy_figures(0.9, 50.0, 700.0, 4)
    never = policy_figures(0.9, None, None, 4)
    assert best_baseline({"slow": slow, "fast": fast, "never": never}) == "fast"


def test_an_overview_has_a_column_a_variant_and_marks_its_best() -> None:
    one = variant_result(aff=policy_figures(0.9, 1.0, 2.0, 3))
    head, rows = overview_rows({"a16": variant_result(), "a32": one})
    assert head == ("policy", "a16", "a32")
    assert rows == [
        ("(utilisation)", "82.0 %", "82.0 %"),
        ("round-robin", "20.0 %", "–"),
        ("aff", "93.0 %", "90.0 %"),
        ("axiom", "96.0 % *", "–"),
    ]


@pytest.mark.parametrize("with_bounds", [True, False])
def test_the_page_is_whole_and_needs_nothing_from_outside(with_bounds: bool) -> None:
    results = {"a<16": variant_result(), "a32": variant_result()}
    if not with_bounds:
        for result in results.values():
            del result["bounds"]
    drawn = {
        "a<16": Drawn(ttft_ms_p90={"axiom": 100.0, "aff": None}, timeline=timeline()),
        "a32": Drawn(ttft_ms_p90={}, timeline=None),
    }
    html = sim_report("cliff", "the cliff & more", results, drawn, facts={"seeds": "1"})
    body = html[html.index("<main>") : html.index("</main>") + len("</main>")]
    page: Any = ElementTree.fromstring(body)
    assert len(page.findall(".//figure")) == 4 + 3
    assert [h.text for h in page.findall(".//h2")] == ["Goodput", "a<16", "a32"]
    for word in ("http:", "https:", "<script", "src="):
        assert word not in html


def test_the_exam_as_a_section_tells_losses_and_everybody() -> None:
    told = {
        "scenarios": {"cliff": {"a16": variant_result()}},
        "seeds": 1,
        "seconds": 3600.0,
        "commit": "abc",
        "machine": {"cpu": "CPU", "cores": 2, "python": "3.11", "native_kernel": True},
    }
    section = exam_section(told, "axiom sim exam --seeds 1")
    assert "| cliff, a16 | 82.0 % | 96.0 | 93.0 aff | 97.0 | 97.5 | 99.0 | 650 | 700 |" in section
    assert "- cliff, a16: loads 55 to aff's 40" in section
    assert "| cliff, a16 | 20.0 | 93.0 | 96.0 |" in section
    assert "60 minutes" in section
