"""`axiom bench telemetry` on a small region: what it prints, and that it leaves nothing running."""

from __future__ import annotations

import asyncio
import json
import sys


async def test_the_figures_of_a_small_region() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "axiom_cli", "bench", "telemetry", "--json"),
        *("--nodes", "6", "--agents", "1", "--seconds", "2"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    found = json.loads(out)
    assert (found["nodes"], found["agents"], found["source"]) == (6, 1, "extension")
    for measured in (found["change_to_view_ms"], found["publish_to_view_ms"]):
        assert 0 < measured["p50"] <= measured["p99"]
        assert measured["samples"] >= 5
    parts = {"agent", "telemetry", "gateway", "nats", "redis", "publisher", "engines", "client"}
    assert found["cpu_cores"].keys() == parts
    assert 0 < found["cpu_cores_all"] <= found["cores_given"]
    # Five published nodes beat four times a second.
    assert found["messages_per_s"] > 15
    assert found["requests_per_s"] > 0
    assert {"machine", "commit", "seconds", "repeats", "changes_per_s", "bytes_per_s"} <= set(found)
