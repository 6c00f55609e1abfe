"""A simulated engine as a child process, for tests that need one on a port."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.servers import ChildServer

from axiom_cli.stack.servers import HOST, ServerKind

LIKE_THE_REAL_ONE = (
    *("--served-model-name", "tiny", "--profile", "tiny", "--max-model-len", "1024"),
    *("--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", "8", "--check-paths"),
    *("--max-num-queued-reqs", "24", "--block-size", "32"),
    *("--enable-prompt-tokens-details", "--enable-request-id-headers"),
)
"""As the engine stage starts vLLM on its tiny model: one suite holds for both."""


def simulated_engine(data_dir: Path, *flags: str) -> ChildServer:
    """An engine with these flags beside `LIKE_THE_REAL_ONE`; not started yet."""

    def command(_: Path, port: int) -> list[str]:
        own = [sys.executable, "-m", "axiom_sim.engine", "--port", str(port)]
        return [*own, *LIKE_THE_REAL_ONE, *flags]

    kind = ServerKind(name="sim-engine", scheme="http", command=command, serving=_healthy)
    return ChildServer(kind, data_dir)


def simulated_sglang(data_dir: Path, *flags: str) -> ChildServer:
    """An SGLang with the same memory for adapters: its base model has a slot of its own."""
    return simulated_engine(data_dir, "--kind", "sglang", "--max-loras", "3", *flags)


def adapter_folders(root: Path, names: Iterable[str], *, rank: int = 8) -> Path:
    """Folders that a check of paths takes for adapters."""
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return root


def _healthy(connection: socket.socket) -> bool:
    connection.sendall(
        f"GET /health HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode()
    )
    return connection.recv(64).startswith(b"HTTP/1.1 200")
