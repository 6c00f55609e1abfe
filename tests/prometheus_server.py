"""A real Prometheus and its promtool: of the PATH, else what `make test` unpacks."""

from __future__ import annotations

import json
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import ChildServer

from axiom_cli.stack.servers import ServerKind

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy" / "prometheus" / "rules"
UNPACKED = ROOT / ".cache" / "prometheus" / "usr" / "bin"
QUERY_TIMEOUT_S = 30.0


def binary(name: str) -> Path:
    """`prometheus` or `promtool`; the test fails where there is none: it proves nothing then."""
    found = shutil.which(name)
    path = Path(found) if found else UNPACKED / name
    if not path.is_file():
        pytest.fail(
            f"no {name} here: `make .cache/prometheus/.ready` unpacks Debian's package; "
            "elsewhere put prometheus and promtool on the PATH"
        )
    return path


def prometheus_server(folder: Path, config: Mapping[str, Any]) -> ChildServer:
    """A Prometheus with this configuration and its data in `folder`; not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(dict(config)))

    def command(data_dir: Path, port: int) -> list[str]:
        return [
            str(binary("prometheus")),
            f"--config.file={file}",
            f"--storage.tsdb.path={data_dir / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]

    kind = ServerKind(name="prometheus", scheme="http", command=command, serving=_ready)
    return ChildServer(kind, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of an answer: its labels, and its values by their time in s."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


class Prometheus:
    """Questions to a running one. AssertionError with its own words where it refuses one."""

    def __init__(self, url: str) -> None:
        self._url = url

    def now(self, query: str) -> list[Series]:
        """The query at this moment."""
        told = self._ask("query", query=query)
        if told["resultType"] == "scalar":
            return [Series(labels={}, values=(_point(told["result"]),))]
        return [
            Series(labels=one["metric"], values=(_point(one["value"]),)) for one in told["result"]
        ]

    def between(self, query: str, *, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The query over time, as a graph asks it."""
        told = self._ask("query_range", query=query, start=start_s, end=end_s, step=step_s)
        return [
            Series(labels=one["metric"], values=tuple(map(_point, one["values"])))
            for one in told["result"]
        ]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, with how that goes."""
        return list(self._ask("targets", state="active")["activeTargets"])

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with how their evaluation goes."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, what: str, **parameters: Any) -> dict[str, Any]:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=QUERY_TIMEOUT_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        assert told["status"] == "success", told
        return dict(told["data"])


def _point(told: list[Any]) -> tuple[float, float]:
    return float(told[0]), float(told[1])


def _ready(connection: socket.socket) -> bool:
    connection.sendall(b"GET /-/ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    return connection.recv(64).startswith(b"HTTP/1.1 200")
