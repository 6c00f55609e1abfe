"""`axiom bench index`: what its parts print, and how rounds become figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_cli.bench.index import (
    AXIOM,
    BESIDE,
    CRATE,
    MIRROR,
    TWIN,
    IndexBenchOptions,
    figures_of,
)
from axiom_cli.bench.index_work import measure
from axiom_cli.bench.mirror import text
from axiom_cli.bench.mirror_work import measure as measure_mirror
from axiom_common.runtime.native import is_native

OPTIONS = IndexBenchOptions(chunks=1_000_000, rounds=2, peers_dir=Path(".peers"), as_json=True)
WORK = dict.fromkeys(
    [
        *("lookup_us", "lookup_us_half", "lookup_us_miss", "lookup_us_1024_engines"),
        *("store_ns_32", "store_ns_512", "store_ns_further", "withdraw_ns"),
        *("bytes_per_first_holder", "bytes_per_further_holder", "rss_after_all_left_share"),
    ],
    1.5,
)
MIRRORED = {"stored_us_block_16_prompts": 25.0, "stored_us_block_16_answers": 32.0}


def test_the_work_is_done_and_measured() -> None:
    work = measure("native" if is_native() else "python", 52_000)
    figures = figures_of(OPTIONS, {TWIN: work, MIRROR: MIRRORED}, seconds=1.5)
    assert figures["seconds"] == 1.5
    assert figures["lookup_512_us"].keys() == {TWIN}
    assert figures["store_ns"].keys() == {"axiom_python_32", "axiom_python_512"}
    measured = [work[key] for key in work if key.endswith(("_us", "_ns", "_32", "_512", "_miss"))]
    assert min(measured) > 0
    assert figures["lookup_512_us_1024_engines"].keys() == {"all", "staircase"}
    assert "lookup_us_under_writes" not in figures


def test_peers_stand_beside_axiom() -> None:
    beside = {"quiet": {"p50": 0.2}, "writing": {"p50": 0.3}, "messages_per_s": 100_000}
    crate = {"lookup_us": 2.0, "store_ns": 117.0}
    parts = {AXIOM: WORK, TWIN: WORK, CRATE: crate, BESIDE: beside, MIRROR: MIRRORED}
    figures = figures_of(OPTIONS, parts, seconds=1.0)
    assert figures["lookup_512_us"] == {AXIOM: 1.5, TWIN: 1.5, CRATE: 2.0}
    assert figures["lookup_512_of_peer"] == {CRATE: 0.75}
    assert figures["store_ns"][CRATE] == 117.0
    assert figures["lookup_us_under_writes"]["writing"] == {"p50": 0.3}
    assert figures["lookup_under_writes_of_quiet"] == pytest.approx(1.5)
    assert figures["messages_per_s"] == 100_000


def test_of_the_agents_blocks_the_dearer_kind_counts() -> None:
    mirrored = measure_mirror(text()[:100_000], blocks=250)
    figures = figures_of(OPTIONS, {TWIN: WORK, MIRROR: mirrored}, seconds=1.0)
    dearer = max(mirrored[f"stored_us_block_16_{kind}"] for kind in ("prompts", "answers"))
    assert figures["agent_us_per_block"] == {"python": dearer, "native": None}
    assert dearer > 0
