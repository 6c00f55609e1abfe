"""Any service of Axiom as a child process, with the settings that a test gives it."""

from __future__ import annotations

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.servers import ChildServer

from axiom_cli.stack.servers import ServerKind


def service_process(service: str, folder: Path, settings: Mapping[str, Any]) -> ChildServer:
    """`axiom_<service>` on a port of its own, a gateway's health on a free one; not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "settings.yaml"
    own_ports = {"ops_port": 0} if service == "gateway" else {}
    config.write_text(yaml.safe_dump(own_ports | dict(settings)))

    def command(_: Path, port: int) -> list[str]:
        own = [sys.executable, "-m", f"axiom_{service}"]
        return [*own, "--config", str(config), "--port", str(port)]

    kind = ServerKind(name=service, scheme="http", command=command, serving=_answers)
    return ChildServer(kind, folder)


def readiness(server: ChildServer) -> dict[str, Any]:
    """What a service says of itself, whether it is ready or not."""
    try:
        with urllib.request.urlopen(f"{ops_url(server)}/readyz", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as not_ready:
        with not_ready:
            return dict(json.load(not_ready))


def ops_url(server: ChildServer) -> str:
    """Where health and metrics are: a gateway's log says on which port, others have but one."""
    told = [line["ops_port"] for line in log_lines(server) if "ops_port" in line]
    return f"http://127.0.0.1:{told[-1]}" if told else server.url


def log_lines(server: ChildServer) -> list[dict[str, Any]]:
    """What a service logged."""
    lines = server.log_path.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _answers(connection: socket.socket) -> bool:
    """Whatever it says: a gateway's health has a port of its own."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    return connection.recv(64).startswith(b"HTTP/1.1 ")
