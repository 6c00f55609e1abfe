"""A real Jaeger: takes spans by OTLP over HTTP, keeps them in memory, reads traces back."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.servers import ChildServer, free_port

from axiom_cli.stack.servers import HOST, ServerKind

QUERY_TIMEOUT_S = 10.0
TRACES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """A span as Jaeger tells of it. `parent` is empty for a root."""

    service: str
    name: str
    span: str
    parent: str
    tags: dict[str, Any]


class Jaeger:
    """One with its files in `folder`; `server` is not started yet."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._otlp_port = 0
        kind = ServerKind(name="jaeger", scheme="http", command=self._command, serving=_answers)
        self.server = ChildServer(kind, folder)

    @property
    def otlp_url(self) -> str:
        """Where spans are sent; valid once started."""
        return f"http://{HOST}:{self._otlp_port}"

    def trace(self, trace: str) -> list[ReadSpan]:
        """All spans of a trace that it has by now."""
        url = f"{self.server.url}/api/traces/{trace}"
        try:
            with urllib.request.urlopen(url, timeout=QUERY_TIMEOUT_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return []
                raise AssertionError(f"{url}: {error.code} {error.read()!r}") from None
        return [
            _span(span, found["processes"]) for found in told["data"] for span in found["spans"]
        ]

    def _command(self, folder: Path, port: int) -> list[str]:
        self._otlp_port = free_port()
        config = folder / "jaeger.yaml"
        config.write_text(yaml.safe_dump(_configuration(self._otlp_port, port)))
        return [str(self._binary), "--config", f"file:{config}"]


def _configuration(otlp_port: int, query_port: int) -> dict[str, Any]:
    """All its listeners are on loopback, which they are not by default."""
    return {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{HOST}:{otlp_port}"}}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
        "extensions": {
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": TRACES_MAX}}}},
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "http": {"endpoint": f"{HOST}:{query_port}"},
                "grpc": {"endpoint": f"{HOST}:0"},
            },
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}
            },
        },
    }


def _span(told: dict[str, Any], processes: dict[str, Any]) -> ReadSpan:
    parents = [of["spanID"] for of in told["references"] if of["refType"] == "CHILD_OF"]
    return ReadSpan(
        service=processes[told["processID"]]["serviceName"],
        name=told["operationName"],
        span=told["spanID"],
        parent=parents[0] if parents else "",
        tags={tag["key"]: tag["value"] for tag in told["tags"]},
    )


def _answers(connection: socket.socket) -> bool:
    connection.sendall(b"GET /api/services HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    return connection.recv(64).startswith(b"HTTP/1.1 200")
