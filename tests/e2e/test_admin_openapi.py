"""The whole admin API of a running stack, asked by schemathesis from nothing but its description.

It sends what the description allows and what it forbids, and follows what it was told. Every answer
must be one that is described: status, content type, headers and shape.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from axiom_cli.stack.stack import Stack, running_stack
from axiom_cli.stack.topology import GATEWAY, StackOptions

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

CASES_AN_OPERATION = 8
SEED = 1
CONFIG = """
[[operations]]
include-path = "/watch"
request-timeout = 0.3

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 412, 415, 422, 428, "5xx"]
"""
"""A stream is over when so much of it was read. Of two faults either is told: 412 comes before what
is wrong in a patch, which needs the object to be seen."""
# What is valid by its form may still be stale, unknown or of another list (412, 428, 400).
NOT_CHECKED = "positive_data_acceptance"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    folder = tmp_path_factory.mktemp("openapi")
    options = StackOptions(run_dir=folder, engines_per_node=1, adapters=4)
    async with running_stack(options) as stack:
        yield stack


async def test_every_answer_is_one_that_is_described(stack: Stack, tmp_path: Path) -> None:
    url = f"{stack.gateway.url}/admin/v1"
    async with aiohttp.ClientSession(headers=stack.gateway.headers) as session:
        async with session.get(f"{url}/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        operations = sum(len(path) for path in paths.values())
        assert operations > 30

        config, report = tmp_path / "schemathesis.toml", tmp_path / "report.json"
        config.write_text(CONFIG)
        tester = Path(sys.executable).with_name("schemathesis")
        ((_, key),) = stack.gateway.headers.items()
        command = [str(tester), "--config-file", str(config), "run", f"{url}/openapi.json"]
        command += ["--header", f"Authorization: {key}", "--exclude-checks", NOT_CHECKED]
        command += ["--max-examples", str(CASES_AN_OPERATION), "--seed", str(SEED)]
        command += ["--generation-deterministic", "--request-timeout", "20", "--no-color"]
        command += ["--report-json-path", str(report)]
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
        told = json.loads(report.read_text())
        assert f"Tested: {operations}" in done.stdout, told.keys()

        async with session.get(f"{url}/status") as answer:
            (region,) = (await answer.json())["regions"].values()
        assert (region["nodes"], region["engines"]) == (2, 2)
    log = (stack.options.run_dir / "logs" / f"{GATEWAY}.log").read_text()
    assert "Traceback" not in log
