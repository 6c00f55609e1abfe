"""`axiom bench gateway` in small: what it prints, of Axiom alone."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

KEYS = {
    "cpu_us_small",
    "cpu_us_small_adapter",
    "cpu_us_chunk",
    "cpu_us_32kB",
    "cpu_us_128kB",
    "added_ms_p50",
    "added_ms_p99",
    "first_byte_ms",
    "first_byte_ms_64",
    "cpu_us_small_without_telemetry",
    "telemetry_share",
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="the load is a C program")
async def test_the_figures_of_a_short_run(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "axiom_cli", "bench", "gateway", "--json"),
        *("--rounds", "1", "--seconds", "0.5", "--engines", "2", "--adapters", "4"),
        *("--peers", "litellm,axiom", "--dir", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    found = json.loads(out)
    assert {"machine", "commit", "seconds", "repeats"} <= set(found)
    # What is not installed is absent, never invented.
    assert set(found["peers"]) == {"axiom"}
    figures = found["peers"]["axiom"]
    assert set(figures) == KEYS
    assert all(figures[key] > 0 for key in KEYS if key.startswith("cpu_us"))
    # How much it is says a longer run, on a machine that does nothing else.
    assert figures["telemetry_share"] < 1
    # The engine itself takes 5 ms to its first byte.
    assert figures["first_byte_ms"] > 5
