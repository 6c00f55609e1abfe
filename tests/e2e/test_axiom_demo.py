"""`axiom demo`, short: the shape of its figures, not their quality, and a report of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

POLICIES = ["round-robin", "least-loaded", "axiom"]
FIGURES = {
    "requests": int,
    "failed": int,
    "interrupted": int,
    "adapter_loads": int,
    "ttft_ms_p50": float,
    "ttft_ms_p99": float,
    "tokens_per_s": float,
    "prefix_hit_tokens_share": float,
}


@pytest.mark.timeout(180)
def test_a_short_demo_prints_its_figures_and_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "made" / "report.html"
    told = subprocess.run(
        [
            *(sys.executable, "-m", "axiom_cli", "demo", "--json"),
            *("--seconds", "6", "--seed", "3", "--report", str(report)),
        ],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert told.returncode == 0, told.stderr + told.stdout
    assert told.stdout.count("\n") == 1
    figures = json.loads(told.stdout)
    assert list(figures["policies"]) == POLICIES
    for policy in figures["policies"].values():
        assert {name: type(value) for name, value in policy.items()} == FIGURES
        assert policy["requests"] > 30
        assert policy["failed"] == 0, told.stderr
        assert policy["adapter_loads"] > 0
        assert 0 < policy["ttft_ms_p50"] <= policy["ttft_ms_p99"]
        assert policy["tokens_per_s"] > 0
    # The same requests for all.
    assert len({policy["requests"] for policy in figures["policies"].values()}) == 1
    assert set(figures["machine"]) == {"cpu", "cores", "python", "native_kernel"}
    assert figures["seconds"] == 6
    assert figures["repeats"] == 1
    assert "commit" in figures
    assert figures["report"] == str(report)
    html = report.read_text()
    assert html.count('<svg class="chart"') == 4
    assert not re.search(r"https?:|<script|<link|@import|url\(", html)
    assert all(policy in html for policy in POLICIES)


def test_a_report_that_can_not_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = subprocess.run(
        [
            *(sys.executable, "-m", "axiom_cli", "demo", "--json"),
            *("--report", str(tmp_path / "file" / "report.html")),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert told.returncode == 1
    assert json.loads(told.stdout)["error"]["code"] == "invalid-input"
