"""`axiom bench decide`: what its parts print, and how rounds become figures."""

from __future__ import annotations

from axiom_cli.bench import rendering_work
from axiom_cli.bench.decide import NATIVE, RENDERING, TWIN, DecideBenchOptions, figures_of
from axiom_cli.bench.decide_work import measure
from axiom_common.runtime.native import is_native

OPTIONS = DecideBenchOptions(engines=30, adapters=200, chunks=12_000, rounds=2, as_json=True)


def test_the_work_is_done_and_measured() -> None:
    kinds = (NATIVE, TWIN) if is_native() else (TWIN,)
    works = {kind: measure(kind, 30, 200, 12_000, timed=20) for kind in kinds}
    works[RENDERING] = rendering_work.measure(timed=3)
    figures = figures_of(OPTIONS, works, seconds=1.5)
    assert figures["fleet"] == {"engines": 30, "adapters": 200, "chunks": works[TWIN]["chunks"]}
    assert 10_000 <= works[TWIN]["chunks"] <= 12_000
    assert {works[kind]["chunks"] for kind in kinds} == {works[TWIN]["chunks"]}
    assert 0.0 < figures["text_us_chat_128kB"]["p50"] <= figures["text_us_chat_128kB"]["p99"]
    assert 0.0 < figures["decide_us"]["p50"] <= figures["decide_us"]["p99"]
    assert figures["small_us"] > 0.0


def test_without_the_compiled_part_the_twin_stands_alone() -> None:
    times = {"p50": 1.0, "p99": 2.0}
    twin = {"chunks": 5, "small_us": 9.0, "release_us": 8.0}
    twin |= {"decide_us": times, "decide_us_no_prompt": times}
    native = twin | {"small_us": 1.0}
    text = {RENDERING: {"chat_10kB": times}}
    assert figures_of(OPTIONS, {TWIN: twin} | text, seconds=1.0)["small_us"] == 9.0
    both = figures_of(OPTIONS, {NATIVE: native, TWIN: twin} | text, seconds=1.0)
    assert both["text_us_chat_10kB"] == times
    assert (both["small_us"], both["small_us_python"]) == (1.0, 9.0)
