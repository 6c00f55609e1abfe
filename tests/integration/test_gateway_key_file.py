"""The process of a gateway and its keys: the file with an admin's, the first key on standard error,
health and metrics on a port of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers import ChildServer, free_port
from tests.service_process import log_lines, ops_url, service_process

from axiom_cli.key_files import make_key_file
from axiom_cli.stack.servers import HOST, ServerKind

NOWHERE = "127.0.0.1:9"
NO_WAIT = (
    "from axiom_gateway import __main__, everywhere, first_key\n"
    "first_key.RESTORE_MS = everywhere.LISTENED_MS = 100.0\n"
    "__main__.main()\n"
)
OPS = ("/healthz", "/readyz", "/metrics")


def settings(**more: Any) -> dict[str, Any]:
    away = {"nats_url": f"nats://{NOWHERE}", "redis_url": f"redis://{NOWHERE}"}
    return away | {"region": "r", "gateway": "gw", "start_ms": 1, "drain_ms": 1} | more


@contextmanager
def running(server: ChildServer) -> Iterator[ChildServer]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def asked(url: str, secret: str | None = None) -> tuple[int, str]:
    """Status and body."""
    headers = {"authorization": f"Bearer {secret}"} if secret is not None else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=9) as it:
            return it.status, it.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(("mode", "warned"), [(0o640, False), (0o644, True)])
def test_the_file_opens_the_admin_api_and_is_shown_nowhere(
    tmp_path: Path, mode: int, warned: bool
) -> None:
    path = tmp_path / "admin.key"
    secret = make_key_file(path)
    path.chmod(mode)
    with running(
        service_process("gateway", tmp_path, settings(admin_key_file=str(path)))
    ) as gateway:
        status = f"{gateway.url}/admin/v1/status"
        assert asked(status)[0] == 401
        assert asked(status, secret[:-1] + "_")[0] == 503  # NATS is away
        assert asked(status, secret)[0] == 200
        code, config = asked(f"{gateway.url}/admin/v1/config", secret)
        assert (code, json.loads(config)["settings"]["admin_key_file"]) == (200, str(path))
        assert secret not in config
        for route in OPS:
            # It may have to wait for NATS before it is ready.
            assert asked(ops_url(gateway) + route)[0] in {200, 503 if route == "/readyz" else 200}
            assert asked(gateway.url + route)[0] == 404
            assert asked(gateway.url + route, secret)[0] == 404
        assert asked(f"{ops_url(gateway)}/admin/v1/status", secret)[0] == 404
        told = [line for line in log_lines(gateway) if "can read" in line["event"]]
        assert bool(told) == warned
    assert secret not in gateway.log_path.read_text()


@pytest.mark.parametrize(
    "content", [None, b"", b"short\n", b"two words " + b"x" * 40, b"\xff" * 40, b"x" * 300]
)
def test_a_file_without_a_secret_is_one_line_and_no_start(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "admin.key"
    if content is not None:
        path.write_bytes(content)
    command = [sys.executable, "-m", "axiom_gateway", "--admin-key-file", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("settings: ")
    assert len(run.stderr.splitlines()) == 1
    assert str(path) in run.stderr
    assert "x" * 40 not in run.stderr


def test_without_a_file_the_first_key_is_shown_once_on_standard_error(
    module_nats: ChildServer, tmp_path: Path
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(json.dumps(settings(nats_url=module_nats.url, ops_port=0)))

    def command(_: Path, port: int) -> list[str]:
        return [sys.executable, "-c", NO_WAIT, "--config", str(config), "--port", str(port)]

    kind = ServerKind(name="gateway", scheme="http", command=command, serving=lambda _: True)
    gateway = ChildServer(kind, tmp_path)
    for _ in range(2):
        with running(gateway):
            until(lambda: any("in force" in line for line in told(gateway)))
            (secret,) = [line.split()[-1] for line in told(gateway) if "axk-" in line]
            until_opened(f"{gateway.url}/admin/v1/keys", secret)
    # The second start made none.
    assert len(told(gateway)) == 2


def until(condition: Callable[[], bool]) -> None:
    """Wait; the test's own timeout bounds it."""
    while not condition():
        time.sleep(0.05)


def until_opened(url: str, secret: str) -> None:
    """Wait until the gateway knows of keys, and takes this one."""
    until(lambda: asked(url, secret)[0] != 503)
    assert asked(url, secret)[0] == 200


def told(gateway: ChildServer) -> list[str]:
    """What it wrote that is no log line."""
    return [line for line in gateway.log_path.read_text().splitlines() if line[:1] not in "{"]


def test_a_port_that_is_taken_is_one_line_too(tmp_path: Path) -> None:
    with running(service_process("gateway", tmp_path / "one", settings())) as one:
        taken = int(ops_url(one).rpartition(":")[2])
        more = ["--region", "r", "--nats-url", f"nats://{NOWHERE}", "--port", str(free_port())]
        command = [sys.executable, "-m", "axiom_gateway", *more, "--ops-port", str(taken)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last.startswith("settings: ")
    assert f"{HOST}:{taken}" in last
