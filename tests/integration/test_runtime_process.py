"""A process of ours: serves, drains on SIGTERM, and says what killed it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest

SERVICE = """
import asyncio, sys
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.ops import Readiness, ops_routes

async def slow(request):
    async def chunks():
        for n in range(4):
            yield b"%d" % n
            await asyncio.sleep(0.05)
    return StreamingResponse(chunks())

async def fails():
    await asyncio.sleep(0)
    raise RuntimeError("no more")

async def main(group, stop):
    ready = Readiness(ready=sys.argv[1] == "ready", degraded=("redis-away",), facts={"age_ms": 5})
    app = Starlette(routes=[Route("/slow", slow), *ops_routes(CollectorRegistry(), lambda: ready)])
    port = int(sys.argv[2])
    server = HttpServer(app, host="127.0.0.1", port=port, drain_s=5)
    serving = group.create_task(server.serve(), name="http")
    print(server.port, flush=True)
    if sys.argv[1] == "fails":
        group.create_task(fails(), name="fails")
    group.create_task(asyncio.sleep(3600), name="works for ever")
    await stop.wait()
    server.stop()
    await serving

run_process(main)
"""


@pytest.fixture
def start(tmp_path: Path):
    script = tmp_path / "service.py"
    script.write_text(textwrap.dedent(SERVICE))
    started: list[subprocess.Popen[str]] = []

    def run(mode: str, port: int = 0) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, str(script), mode, str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"

    yield run
    for process in started:
        process.kill()
        process.communicate()


def fetch(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_ops_routes_answer(start) -> None:
    _, url = start("ready")
    assert fetch(f"{url}/healthz") == (200, b"ok\n")
    status, body = fetch(f"{url}/readyz")
    assert status == 200
    assert json.loads(body) == {"ready": True, "degraded": ["redis-away"], "age_ms": 5}
    assert fetch(f"{url}/metrics")[0] == 200


def test_not_ready_is_503(start) -> None:
    _, url = start("not-ready")
    assert fetch(f"{url}/readyz")[0] == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_responses_end_before_the_process(start, number: signal.Signals) -> None:
    process, url = start("ready")
    with urllib.request.urlopen(f"{url}/slow", timeout=5) as answer:
        assert answer.read(1) == b"0"
        process.send_signal(number)
        assert answer.read() == b"123"
    assert process.wait(5) == 0


def test_a_failed_task_ends_the_process_and_names_the_cause(start) -> None:
    process, _ = start("fails")
    assert process.wait(5) == 1
    assert process.stderr is not None
    assert "RuntimeError: no more" in process.stderr.read()


def test_a_taken_port_is_one_clear_line_and_exit_code_two(start) -> None:
    _, url = start("ready")
    port = int(url.rpartition(":")[2])
    process, _ = start("ready", port)
    assert process.wait(5) == 2
    assert process.stderr is not None
    (line,) = process.stderr.read().splitlines()
    assert line == f"settings: port: can't listen on 127.0.0.1:{port}: Address already in use"
