"""Servers as child processes of the tests, to kill, pause and restart.

A server keeps its data and its log in a directory of its own, and ends with its parent. A restart
uses the same port and data, so clients find it again. Everything here blocks, for some tens of ms:
start it from the main thread, as Linux ends such a child when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from axiom_cli.stack.servers import HOST, NATS, VALKEY, ServerKind, die_with_parent
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError

START_TIMEOUT_MS = 10_000.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
START_ATTEMPTS_MAX = 3
_CLOCK = SystemClock()


class ChildServer:
    """One server process. `port` 0 takes a free one at the first start and keeps it."""

    def __init__(self, kind: ServerKind, data_dir: Path, *, port: int = 0) -> None:
        self._kind = kind
        self._data_dir = data_dir
        self._port_given = port != 0
        self.port = port
        self.log_path = data_dir / f"{kind.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect; valid once started."""
        return self._kind.url(self.port)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start and wait until it serves; UnavailableError with the end of its log otherwise."""
        if self.pid is not None:
            return
        self._data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            # Between finding a free port and using it, another process may take it.
            if not self.port:
                self.port = free_port()
            try:
                self._start_once()
            except UnavailableError:
                self.stop()
                if self._port_given or attempt == START_ATTEMPTS_MAX:
                    raise
                self.port = 0
            else:
                self._port_given = True
                return

    def stop(self) -> None:
        """SIGTERM, wait, SIGKILL when that does not help. Stopping a stopped one does nothing."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash; data stays where it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def wipe(self) -> None:
        """Remove its data, as a disk that was lost; it must be down."""
        for path in self._data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers, once this returns: a thread of the
        server that runs on another core stops some time after the signal."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while not _is_stopped(self._process.pid):
                assert time.monotonic() < deadline, "it does not stop"
                time.sleep(POLL_S / 10)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _start_once(self) -> None:
        command = self._kind.command(self._data_dir, self.port)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A terminal's Ctrl-C must reach the parent alone: it stops its children in order.
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        deadline_ms = _CLOCK.now_ms() + START_TIMEOUT_MS
        while not self._kind.serves(self.port):
            if self._process.poll() is not None:
                raise UnavailableError(f"{self._kind.name} ended at start: {self._log_end()}")
            if _CLOCK.now_ms() > deadline_ms:
                raise UnavailableError(f"{self._kind.name} does not serve: {self._log_end()}")
            time.sleep(POLL_S)

    def _log_end(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:]) or "no log"


def nats_server(data_dir: Path, *, port: int = 0) -> ChildServer:
    """A NATS server with JetStream that syncs each write to disk; not started yet."""
    return ChildServer(NATS, data_dir, port=port)


def valkey_server(data_dir: Path, *, port: int = 0) -> ChildServer:
    """A Valkey (or Redis) server that keeps nothing on disk; not started yet."""
    return ChildServer(VALKEY, data_dir, port=port)


@contextlib.contextmanager
def running(server: ChildServer) -> Iterator[ChildServer]:
    """Start on entry, stop on exit."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """A TCP port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_stopped(pid: int) -> bool:
    """Whether each thread of a process is; one that ends meanwhile counts as such."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name before it may hold blanks and brackets.
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state in "TtZX" for state in states)
