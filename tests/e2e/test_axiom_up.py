"""`axiom up` as people run it: a process with a terminal's signals, asked with plain HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually

from axiom_cli.stack.servers import free_port

AXIOM = (sys.executable, "-m", "axiom_cli")
END_TIMEOUT_S = 30
PROCESSES = 11
"""NATS, Valkey, four engines, two agents, telemetry, scheduler, gateway."""


def axiom(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AXIOM, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


@dataclass
class Up:
    """A running `axiom up` and what it printed."""

    process: subprocess.Popen[str]
    url: str
    curl: str
    stderr: Path


@contextmanager
def running_up(run_dir: Path) -> Iterator[Up]:
    """`axiom up` on a free port, ready; ended at the end where it still runs."""
    stderr = run_dir / "stderr.txt"
    with stderr.open("w") as told:
        process = subprocess.Popen(
            [*AXIOM, "up", "--port", "0", "--dir", str(run_dir)],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield read_welcome(process, stderr)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(END_TIMEOUT_S)


def read_welcome(process: subprocess.Popen[str], stderr: Path) -> Up:
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if "Ctrl-C" in line:
            break
    text = "".join(printed)
    found = re.search(r"^gateway +(http://\S+)", text, re.MULTILINE)
    curl = next((line for line in printed if line.startswith("curl ")), None)
    assert found is not None, text + stderr.read_text()
    assert curl is not None, text
    return Up(process=process, url=found[1], curl=curl.strip(), stderr=stderr)


def end_up(up: Up) -> int:
    up.process.send_signal(signal.SIGINT)
    return up.process.wait(END_TIMEOUT_S)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up")) as running:
        yield running


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def process_named(module: str, among: set[int]) -> int:
    (pid,) = [p for p in among if module in Path(f"/proc/{p}/cmdline").read_text()]
    return pid


def children_of(pid: int) -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.add(int(status.parent.name))
    return found


def test_the_printed_curl_line_streams_an_answer(up: Up) -> None:
    answer = subprocess.run(
        ["sh", "-c", up.curl], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert {chunk["model"] for chunk in chunks} == {"adapter-01"}
    text = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
    assert sum(bool(part) for part in text) >= 2


def test_a_plain_chat_with_the_base_model(up: Up) -> None:
    body = {"model": "sim-8b", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    request = urllib.request.Request(
        f"{up.url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        answer = json.load(response)
    assert answer["model"] == "sim-8b"
    assert answer["choices"][0]["message"]["content"]


def test_status_tells_the_whole_fleet(up: Up) -> None:
    told = axiom("status", "--url", up.url, "--json")
    assert told.returncode == 0, told.stderr
    (region,) = json.loads(told.stdout)["regions"].values()
    assert (region["nodes"], region["engines"], region["adapters"]) == (2, 4, 24)
    assert region["degraded"] == []
    assert "local" in axiom("status", "--url", up.url).stdout


def test_adapters_are_applied_listed_shown_and_deleted(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "adapters.yaml"
    file.write_text("adapters: [{name: acme/sql, base_model: sim-8b, path: /a, rank: 8}]")

    def adapters(*arguments: str) -> dict[str, Any]:
        told = axiom("adapters", *arguments, "--url", up.url, "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        return dict(json.loads(told.stdout))

    (applied,) = adapters("apply", str(file))["applied"]
    assert (applied["name"], applied["result"]) == ("acme/sql", "created")
    (again,) = adapters("apply", str(file))["applied"]
    assert (again["result"], again["revision"]) == ("unchanged", applied["revision"])
    names = [one["name"] for one in adapters("list")["adapters"]]
    assert len(names) == 25
    assert "acme/sql" in names
    assert adapters("show", "acme/sql")["adapter"]["rank"] == 8
    assert adapters("delete", "acme/sql") == {"deleted": "acme/sql"}
    gone = axiom("adapters", "show", "acme/sql", "--url", up.url, "--json")
    assert gone.returncode == 1
    assert json.loads(gone.stdout)["error"]["code"] == "not-found"
    assert "adapter-24" in axiom("adapters", "list", "--url", up.url).stdout


def test_a_wrong_declaration_is_told_with_its_line(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "adapters.yaml"
    file.write_text("adapters:\n  - {name: x, base_model: nobody, path: /a, rank: 8}\n")
    refused = axiom("adapters", "apply", str(file), "--url", up.url)
    assert refused.returncode == 1
    assert f"{file}:2: x: refused" in refused.stdout
    file.write_text("adapters:\n  - {name: x, rank: many}\n")
    wrong = axiom("adapters", "apply", str(file), "--url", up.url)
    assert wrong.returncode == 1
    assert "line 2" in wrong.stderr


def test_doctor_finds_the_running_stack_healthy(up: Up) -> None:
    port = up.url.rpartition(":")[2]
    told = axiom("doctor", "--url", up.url, "--port", port, "--json")
    assert told.returncode == 0, told.stdout
    checks = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert checks["gateway"]["verdict"] == "ok"
    engines = [check for name, check in checks.items() if name.startswith("engine ")]
    assert [check["verdict"] for check in engines] == ["ok"] * 4


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        dead = f"127.0.0.1:{free_port()}"
        told = axiom(
            *("doctor", "--json", "--port", str(port), "--url", f"http://127.0.0.1:{port}"),
            *("--nats-url", f"nats://{dead}", "--redis-url", f"redis://{dead}"),
            *("--engine", f"http://{dead}"),
        )
    assert told.returncode == 1
    answer = json.loads(told.stdout)
    assert answer["healthy"] is False
    by_name = {check["name"]: check for check in answer["checks"]}
    broken = {name for name, check in by_name.items() if check["verdict"] == "broken"}
    assert broken == {"nats", "redis", f"port {port}", f"engine http://{dead}"}
    assert all(by_name[name]["advice"] for name in broken)


def test_a_gateway_that_is_not_there_is_one_clear_line() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    told = axiom("status", "--url", url)
    assert told.returncode == 1
    assert told.stdout == ""
    assert told.stderr.count("\n") == 1
    assert "axiom up" in told.stderr
    as_json = axiom("status", "--url", url, "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["error"]["code"] == "unavailable"


def test_a_taken_port_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = axiom("up", "--port", str(port))
    assert told.returncode == 1
    (line,) = [line for line in told.stderr.splitlines() if line.startswith("error")]
    assert str(port) in line
    assert "--port" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--port", "70000"),
        ("up", "--nats-url", "http://127.0.0.1:4222"),
        ("up", "--redis-url", "not a url"),
        ("demo", "--seconds", "0"),
        ("up", "--nonsense"),
    ],
)
def test_wrong_settings_end_with_two(arguments: tuple[str, ...]) -> None:
    told = axiom(*arguments)
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr


@pytest.mark.parametrize(
    "command",
    [(), ("up",), ("demo",), ("status",), ("doctor",), ("adapters",), ("version",)],
)
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    told = axiom(*command, "--help")
    assert told.returncode == 0
    assert "Usage" in told.stdout


async def test_a_service_killed_from_outside_is_told_of_and_comes_back(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        before = children_of(up.process.pid)
        telemetry = process_named("axiom_telemetry", before)
        os.kill(telemetry, signal.SIGKILL)
        await eventually(lambda: "telemetry died (exit -9)" in up.stderr.read_text(), within_s=10)
        await eventually(lambda: len(children_of(up.process.pid)) == len(before), within_s=10)
        assert telemetry not in children_of(up.process.pid)


async def test_ctrl_c_ends_it_cleanly_and_keeps_the_directory_that_was_asked_for(
    tmp_path: Path,
) -> None:
    with running_up(tmp_path) as up:
        children = children_of(up.process.pid)
        assert len(children) >= PROCESSES
        assert end_up(up) == 0
    assert [pid for pid in children if alive(pid)] == []
    assert (tmp_path / "config" / "gateway.yaml").is_file()
    assert (tmp_path / "logs" / "gateway.log").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
async def test_no_process_outlives_a_killed_axiom_up(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        children = children_of(up.process.pid)
        assert len(children) >= PROCESSES
        up.process.kill()
        await eventually(lambda: not any(alive(pid) for pid in children), within_s=10)
