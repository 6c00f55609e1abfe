"""What docker-compose.yml describes, as processes of this host: each service with the command, the
environment and the health check of its container.

A container has an address of its own; here that is one of loopback's, so ports stay as they are
written. Translated are, in arguments, environment and mounted files, only: names of services before
a port, and `0.0.0.0` and `127.0.0.1`, into addresses; paths that are mounted into folders. What is
mounted read-only is a copy. The network, users, rights and images themselves are Docker's affair.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from axiom_cli.stack.servers import die_with_parent, nats_binary, valkey_binary

ROOT = Path(__file__).parents[1]
BINARIES = Path(sys.executable).parent
IMAGE_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
UP_WITHIN_S = 240.0
CHECK_EVERY_S = 0.4
CHECK_TIMEOUT_S = 20.0
"""A loaded machine may take long to start a check; how long Docker waits is not what is tested."""
STOP_WITHIN_S = 60.0
VALKEY_CLI = """#!{python} -IS
import socket, sys
flag, host, errors, *command = sys.argv[1:]
assert (flag, errors) == ("-h", "-e")
with socket.create_connection((host, 6379), timeout=5) as connection:
    connection.sendall(" ".join(command).encode() + b"\\r\\n")
    answer = connection.recv(4096).decode()
sys.exit(answer if not answer.startswith("+") else 0)
"""
"""Where there is no valkey-cli: as much of it as the health check uses."""


def compose_project() -> dict[str, Any]:
    """docker-compose.yml with all its profiles, as Compose understands it."""
    command = [str(BINARIES / "docker-compose"), "--profile", "*", "config", "--format", "json"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return dict(json.loads(told.stdout))


class ComposeHost:
    """The services of a project, but those of `without`, which nobody may depend on."""

    def __init__(self, project: Mapping[str, Any], folder: Path, *, without: set[str]) -> None:
        self.services: dict[str, Any] = {
            name: service for name, service in project["services"].items() if name not in without
        }
        # Others may run such a test at the same time.
        block = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(255)}"
        self.addresses = {name: f"{block}.{n}" for n, name in enumerate(self.services, start=1)}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.healthy: set[str] = set()
        self.completed: set[str] = set()
        self._folder = folder
        self._path = f"{self._shims()}:{BINARIES}:{os.environ['PATH']}"
        self._mounts: dict[str, dict[str, Path]] = {}

    def up(self) -> None:
        """Start everything in the order that the project asks for; AssertionError when some of it
        does not come up."""
        deadline = time.monotonic() + UP_WITHIN_S
        while waiting := set(self.services) - self.healthy - self.completed:
            for name in sorted(waiting - set(self.processes)):
                if self._may_start(name):
                    self._start(name)
            for name in sorted(waiting & set(self.processes)):
                self._look_at(name)
            assert time.monotonic() < deadline, f"not up: {sorted(waiting)}{self._logs(waiting)}"
            time.sleep(CHECK_EVERY_S)

    def move(self, names: Iterable[str]) -> None:
        """End some services, and start them with new addresses and what they had kept."""
        for name in names:
            self.processes[name].terminate()
        for name in names:
            self.processes[name].wait(STOP_WITHIN_S)
            block, _, number = self.addresses[name].rpartition(".")
            self.addresses[name] = f"{block}.{int(number) + len(self.services)}"
        for name in names:
            self._start(name)

    def stop(self) -> dict[str, int]:
        """SIGTERM to all that still run, those first that nobody depends on, as Compose does. Their
        exit codes; -9 where one had to be killed."""
        running = {n: p for n, p in self.processes.items() if p.poll() is None}
        left = dict(running)
        deadline = time.monotonic() + STOP_WITHIN_S
        while left:
            needed = {need for name in left for need in self.services[name].get("depends_on", {})}
            ending = {name: left.pop(name) for name in set(left) - needed}
            for process in ending.values():
                process.terminate()
            for process in ending.values():
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        return {name: process.returncode for name, process in running.items()}

    def log(self, name: str) -> str:
        """What a service has written."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def kept(self, volume: str, path: str) -> str:
        """What stands in a file of a volume."""
        (folder,) = (self._folder / "volumes").glob(f"*{volume}")
        return (folder / path).read_text().strip()

    def check(self, name: str) -> bool:
        """Whether a service's health check, run once, finds it healthy."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        try:
            told = subprocess.run(
                [self._translated(name, word) for word in command],
                env=self._environment(name),
                capture_output=True,
                timeout=CHECK_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return told.returncode == 0

    def _may_start(self, name: str) -> bool:
        reached = {
            "service_healthy": self.healthy,
            "service_completed_successfully": self.completed,
        }
        needs = self.services[name].get("depends_on", {})
        return all(other in reached[need["condition"]] for other, need in needs.items())

    def _start(self, name: str) -> None:
        service = self.services[name]
        self._mount(name)
        argv = [*(service.get("entrypoint") or []), *(service.get("command") or [])]
        if argv[0] == "valkey-server":
            # Its peers know it by where its connections come from: a container's own address.
            argv += ["--bind-source-addr", self.addresses[name]]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self._translated(name, word) for word in argv],
                env=self._environment(name),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def _look_at(self, name: str) -> None:
        code = self.processes[name].poll()
        if code is not None:
            assert code == 0, f"{name} ended with {code}{self._logs({name})}"
            assert "healthcheck" not in self.services[name], f"{name} ended{self._logs({name})}"
            self.completed.add(name)
        elif "healthcheck" in self.services[name] and self.check(name):
            self.healthy.add(name)

    def _environment(self, name: str) -> dict[str, str]:
        given = self.services[name].get("environment", {})
        translated = {key: self._translated(name, value) for key, value in given.items()}
        return IMAGE_ENVIRONMENT | {"PATH": self._path} | translated

    def _mount(self, name: str) -> None:
        """Find where each mounted path of a service lies, and copy what is mounted read-only."""
        mounts = self._mounts[name] = {}
        copies: list[Path] = []
        shutil.rmtree(self._folder / "mounts" / name, ignore_errors=True)
        for volume in self.services[name].get("volumes", []):
            place = self._source(volume)
            if volume.get("read_only"):
                assert place.exists(), f"{name} mounts {place}, which is not there"
                copy = self._folder / "mounts" / name / str(len(copies)) / place.name
                copy.parent.mkdir(parents=True)
                if place.is_dir():
                    shutil.copytree(place, copy)
                else:
                    shutil.copy(place, copy)
                copies += [path for path in (copy, *copy.rglob("*")) if path.is_file()]
                place = copy
            mounts[volume["target"]] = place
        for path in copies:
            path.write_text(self._translated(name, path.read_text()))

    def _source(self, volume: Mapping[str, Any]) -> Path:
        if volume["type"] == "bind":
            return Path(volume["source"])
        assert volume["type"] == "volume"
        kept = self._folder / "volumes" / volume["source"]
        kept.mkdir(parents=True, exist_ok=True)
        return kept / volume.get("volume", {}).get("subpath", "")

    def _translated(self, name: str, text: str) -> str:
        for target, place in sorted(self._mounts[name].items(), reverse=True):
            text = re.sub(rf"(?<![\w./-]){re.escape(target)}(?![\w-])", str(place), text)
        text = re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1)\b", self.addresses[name], text)
        names = "|".join(sorted(map(re.escape, self.addresses), key=len, reverse=True))
        return re.sub(rf"(?<![\w.-])({names})(?=:\d)", lambda m: self.addresses[m[1]], text)

    def _shims(self) -> Path:
        shims = self._folder / "bin"
        shims.mkdir()
        (shims / "nats-server").symlink_to(nats_binary())
        (shims / "valkey-server").symlink_to(valkey_binary())
        (shims / "axiom-healthy").symlink_to(ROOT / "deploy" / "docker" / "axiom-healthy")
        if shutil.which("valkey-cli") is None:
            (shims / "valkey-cli").write_text(VALKEY_CLI.format(python=sys.executable))
            (shims / "valkey-cli").chmod(0o755)
        return shims

    def _logs(self, names: set[str]) -> str:
        started = sorted(names & set(self.processes))
        return "".join(f"\n--- {name}\n{self.log(name)[-1500:]}" for name in started)
