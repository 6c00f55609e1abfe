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
from tests.servers import free_port
from typer.testing import CliRunner, Result

from axiom_cli.__main__ import app
from axiom_cli.declarations import parse_declarations

AXIOM = (sys.executable, "-m", "axiom_cli")
END_TIMEOUT_S = 30
PROCESSES = 11
"""NATS, Valkey, four engines, two agents, telemetry, scheduler, gateway."""


def axiom(*arguments: str) -> Result:
    """A command that asks and ends, run in this process."""
    return CliRunner().invoke(app, arguments)


@dataclass
class Up:
    """A running `axiom up` and what it printed."""

    process: subprocess.Popen[str]
    url: str
    curl: str
    run_dir: Path
    welcome: str

    @property
    def stderr(self) -> Path:
        """Where its remarks go."""
        return self.run_dir / "stderr.txt"


@contextmanager
def running_up(run_dir: Path) -> Iterator[Up]:
    """`axiom up` on a free port, ready; ended at the end where it still runs."""
    with (run_dir / "stderr.txt").open("w") as told:
        process = subprocess.Popen(
            [*AXIOM, "up", "--port", "0", "--dir", str(run_dir)],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield read_welcome(process, run_dir)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(END_TIMEOUT_S)


def read_welcome(process: subprocess.Popen[str], run_dir: Path) -> Up:
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if "Ctrl-C" in line:
            break
    text = "".join(printed)
    found = re.search(r"^gateway +(http://\S+)", text, re.MULTILINE)
    curl = next((line for line in printed if line.startswith("curl ")), None)
    assert found is not None, text + (run_dir / "stderr.txt").read_text()
    assert curl is not None, text
    return Up(process=process, url=found[1], curl=curl.strip(), run_dir=run_dir, welcome=text)


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
    assert told.exit_code == 0, told.stderr
    (region,) = json.loads(told.stdout)["regions"].values()
    assert (region["nodes"], region["engines"], region["adapters"]) == (2, 4, 24)
    assert region["degraded"] == []
    assert "local" in axiom("status", "--url", up.url).stdout


def test_adapters_are_applied_listed_shown_and_deleted(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "adapters.yaml"
    file.write_text("adapters: [{name: acme/sql, base_model: sim-8b, path: /a, rank: 8}]")

    def adapters(*arguments: str) -> dict[str, Any]:
        told = axiom("adapters", *arguments, "--url", up.url, "--json")
        assert told.exit_code == 0, told.stdout + told.stderr
        return dict(json.loads(told.stdout))

    would = adapters("apply", str(file), "--dry-run")
    assert (would["dry_run"], would["applied"][0]["result"]) == (True, "created")
    assert len(adapters("list")["adapters"]) == 24
    (applied,) = adapters("apply", str(file))["applied"]
    assert (applied["name"], applied["result"]) == ("acme/sql", "created")
    (again,) = adapters("apply", str(file))["applied"]
    assert (again["result"], again["revision"]) == ("unchanged", applied["revision"])
    names = [one["name"] for one in adapters("list")["adapters"]]
    assert len(names) == 25
    assert "acme/sql" in names
    assert adapters("show", "acme/sql")["adapter"]["rank"] == 8
    there = adapters("show", "adapter-01")["engines"]
    assert {one["adapter"] for one in there} == {"adapter-01~1"}
    few = adapters("list", "--filter", "name~acme", "--filter", "rank<9")["adapters"]
    assert [one["name"] for one in few] == ["acme/sql"]
    backwards = [one["name"] for one in adapters("list", "--sort", "-name")["adapters"]]
    assert backwards == sorted(names, reverse=True)
    assert adapters("delete", "acme/sql", "--dry-run") == {"deleted": "acme/sql", "dry_run": True}
    assert adapters("delete", "acme/sql") == {"deleted": "acme/sql", "dry_run": False}
    gone = axiom("adapters", "show", "acme/sql", "--url", up.url, "--json")
    assert gone.exit_code == 1
    assert json.loads(gone.stdout)["error"]["code"] == "not-found"
    assert "adapter-24" in axiom("adapters", "list", "--url", up.url).stdout


def test_what_runs_is_a_context_in_use(up: Up) -> None:
    known = json.loads(axiom("contexts", "list", "--json").stdout)
    (local,) = [one for one in known["contexts"] if one["url"] == up.url]
    assert local["in_use"]
    assert local["key_file"] == str(up.run_dir / "admin.key")
    assert axiom("status").exit_code == 0
    assert axiom("status", "--context", local["name"]).exit_code == 0
    assert f"status --context {local['name']}" in up.welcome
    assert str(up.run_dir / "admin.key") in up.welcome


def test_models_plans_and_settings_are_shown(up: Up) -> None:
    def told(*arguments: str) -> dict[str, Any]:
        answer = axiom(*arguments, "--json")
        assert answer.exit_code == 0, answer.stdout + answer.stderr
        people = axiom(*arguments)
        assert (people.exit_code, people.stdout.strip() != "") == (0, True)
        return dict(json.loads(answer.stdout))

    models = told("models", "list")
    assert [one["name"] for one in models["base_models"]] == ["sim-8b"]
    # What lists tell can be applied again.
    assert [put.name for put in parse_declarations(json.dumps(models))] == ["sim-8b"]
    plans = told("plan")["plans"]
    assert [one["node"] for one in plans] == ["node-1", "node-2"]
    homes = [home for plan in plans for engine in plan["engines"] for home in engine["homes"]]
    assert "adapter-01~1" in homes
    assert told("plan", "node-2")["plans"] == [plans[1]]
    settings = told("config")["settings"]
    assert settings["region"] == "local"
    profiles = {one["name"]: one for one in told("profiles", "list")["profiles"]}
    assert profiles["axiom"]["built_in"]
    assert told("profiles", "show", "axiom") == profiles["axiom"]


def test_keys_are_made_used_given_other_roles_and_withdrawn(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "viewer.key"

    def keys(*arguments: str, code: int = 0) -> dict[str, Any]:
        told = axiom("keys", *arguments, "--url", up.url, "--json")
        assert told.exit_code == code, told.stdout + told.stderr
        return dict(json.loads(told.stdout))

    would = keys("create", "ann", "--role", "viewer", "--dry-run")
    assert (would["name"], would["dry_run"]) == ("ann", True)
    assert keys("list")["keys"] == []
    made = keys("create", "ann", "--role", "viewer", "--tenant", "acme", "--out", str(file))
    assert (made["role"], made["tenant"], made["file"]) == ("viewer", "acme", str(file))
    assert "secret" not in made
    assert file.stat().st_mode & 0o777 == 0o600
    with_it = ("--url", up.url, "--key-file", str(file))
    assert axiom("status", *with_it).exit_code == 0
    refused = axiom("adapters", "delete", "adapter-01", *with_it)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "axiom keys set-role" in refused.stderr
    assert (
        keys("create", "ann", "--role", "admin", code=1)["error"]["code"] == "precondition-failed"
    )
    other = tmp_path / "other.key"
    keys("create", "ann", "--role", "admin", "--out", str(other), code=1)
    assert not other.exists()
    wrong = keys("create", "eve", "--role", "client", "--tenant", "a b", code=1)
    assert wrong["error"]["path"] == "tenant"
    changed = keys("set-role", "ann", "operator")
    assert (changed["role"], changed["tenant"]) == ("operator", "acme")
    assert axiom("adapters", "delete", "adapter-01", "--dry-run", *with_it).exit_code == 0
    secret = keys("rotate", "ann")["secret"]
    assert secret not in axiom("keys", "list").stdout + axiom("keys", "show", "ann").stdout
    gone = axiom("status", *with_it, "--json")
    assert json.loads(gone.stdout)["error"]["code"] == "unauthenticated"
    file.write_text(secret)
    assert axiom("status", *with_it).exit_code == 0
    assert keys("delete", "ann")["deleted"] == "ann"
    assert axiom("status", *with_it).exit_code == 1
    assert keys("show", "ann", code=1)["error"]["code"] == "not-found"


def test_a_secret_is_printed_alone_for_the_shell(up: Up) -> None:
    told = axiom("keys", "create", "bob", "--role", "client")
    assert told.exit_code == 0, told.stderr
    assert re.fullmatch(r"axk-[A-Za-z0-9_-]{43}\n", told.stdout)
    assert "bob: client" in told.stderr
    assert axiom("keys", "delete", "bob").exit_code == 0


def test_a_gateway_that_wants_a_key_says_how_to_give_one(up: Up, tmp_path: Path) -> None:
    port = up.url.rpartition(":")[2]
    told = axiom("status", "--url", f"http://localhost:{port}")
    assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert "--key-file" in told.stderr
    file = tmp_path / "key"
    assert axiom("keys", "new", str(file)).exit_code == 0
    secret = file.read_text()
    assert (axiom("keys", "new", str(file)).exit_code, file.read_text()) == (1, secret)
    told = axiom("status", "--url", up.url, "--key-file", str(file))
    assert "axiom keys list" in told.stderr


def test_a_wrong_declaration_is_told_with_its_line(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "adapters.yaml"
    file.write_text("adapters:\n  - {name: sim-8b, base_model: sim-8b, path: /a, rank: 8}\n")
    refused = axiom("adapters", "apply", str(file), "--url", up.url)
    assert refused.exit_code == 1
    assert f"{file}:2: sim-8b: refused" in refused.stdout
    file.write_text("adapters:\n  - {name: x, rank: many}\n")
    wrong = axiom("adapters", "apply", str(file), "--url", up.url)
    assert wrong.exit_code == 1
    assert "line 2" in wrong.stderr


def test_doctor_finds_the_running_stack_healthy(up: Up) -> None:
    port = up.url.rpartition(":")[2]
    told = axiom("doctor", "--url", up.url, "--port", port, "--json")
    assert told.exit_code == 0, told.stdout
    checks = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert checks["gateway"]["verdict"] == "ok"
    engines = [check for name, check in checks.items() if name.startswith("engine ")]
    assert [check["verdict"] for check in engines] == ["ok"] * 4


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        dead = f"127.0.0.1:{free_port()}"
        told = axiom(
            *("doctor", "--json", "--port", str(port), "--url", f"http://{dead}"),
            *("--nats-url", f"nats://{dead}", "--redis-url", f"redis://{dead}"),
            *("--engine", f"http://{dead}"),
        )
    assert told.exit_code == 1
    answer = json.loads(told.stdout)
    assert answer["healthy"] is False
    by_name = {check["name"]: check for check in answer["checks"]}
    broken = {name for name, check in by_name.items() if check["verdict"] == "broken"}
    assert broken == {"nats", "redis", f"port {port}", f"engine http://{dead}"}
    assert all(by_name[name]["advice"] for name in broken)


def test_a_gateway_that_is_not_there_is_one_clear_line() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    told = axiom("status", "--url", url)
    assert told.exit_code == 1
    assert told.stdout == ""
    assert told.stderr.count("\n") == 1
    assert "axiom up" in told.stderr
    as_json = axiom("status", "--url", url, "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["error"]["code"] == "unavailable"


def test_a_taken_port_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = axiom("up", "--port", str(port))
    assert told.exit_code == 1
    (line,) = [line for line in told.stderr.splitlines() if line.startswith("error")]
    assert str(port) in line
    assert "--port" in line


async def test_a_service_killed_from_outside_is_told_of_and_comes_back(up: Up) -> None:
    before = children_of(up.process.pid)
    assert len(before) == PROCESSES
    telemetry = process_named("axiom_telemetry", before)
    os.kill(telemetry, signal.SIGKILL)
    await eventually(lambda: "telemetry died (exit -9)" in up.stderr.read_text(), within_s=10)
    await eventually(lambda: len(children_of(up.process.pid)) == PROCESSES, within_s=10)
    assert telemetry not in children_of(up.process.pid)


def test_ctrl_c_ends_it_cleanly_and_keeps_the_directory_that_was_asked_for(up: Up) -> None:
    """Last of those that share one stack: it ends it."""
    children = children_of(up.process.pid)
    assert len(children) == PROCESSES
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(END_TIMEOUT_S) == 0
    assert [pid for pid in children if alive(pid)] == []
    assert (up.run_dir / "config" / "gateway.yaml").is_file()
    assert (up.run_dir / "logs" / "gateway.log").is_file()
    assert json.loads(axiom("contexts", "list", "--json").stdout)["contexts"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
async def test_no_process_outlives_a_killed_axiom_up(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        children = children_of(up.process.pid)
        assert len(children) == PROCESSES
        up.process.kill()
        await eventually(lambda: not any(alive(pid) for pid in children), within_s=10)
