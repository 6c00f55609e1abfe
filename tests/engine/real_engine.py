"""A real vLLM on the CPU as a child process: started, waited for, and ended with all its own.

Ending needs care: a server killed alone leaves its core and worker running, and one told to end
while it starts may not listen. It gets a process group of its own and is killed as a group when
asking has not helped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import free_port

from axiom_cli.stack.servers import HOST, die_with_parent

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.2
LOG_LINES_SHOWN = 25
_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Else it listens for its own processes on the machine's outer address.
    "VLLM_HOST_IP": HOST,
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "PYTHONPATH": f"{_HERE / 'plugin'}{os.pathsep}{_HERE.parents[1] / 'libs'}",
}
_UNWANTED = ("VLLM_CPU_KVCACHE_SPACE", "PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST")


def _flags(model: Path, port: int) -> list[str]:
    return [
        *("--model", str(model / "base"), "--served-model-name", "tiny"),
        *("--host", HOST, "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", "1024", "--block-size", "32"),
        *("--enforce-eager", "--max-num-seqs", "16", "--max-num-queued-reqs", "24"),
        *("--kv-cache-memory-bytes", str(64 << 20), "--num-gpu-blocks-override", "512"),
        *("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", "8"),
        *("--enable-prompt-tokens-details", "--enable-request-id-headers"),
        *("--enable-prefix-caching", "--enable-server-load-tracking"),
        *("--worker-extension-cls", "probed_extension.WorkerExtension"),
        *("--middleware", "residency_probe.Middleware"),
        *("--middleware", "probed_extension.Middleware"),
    ]


@dataclass(frozen=True)
class RealEngine:
    """An engine that is up, the folder with its model and adapters, and the socket where Axiom's
    extension in it looks for an agent. What it tells goes to `tap` as well, whoever listens."""

    url: str
    model: Path
    process: subprocess.Popen[bytes]
    agent_socket: Path
    tap: Path

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def real_engine(
    python: Path,
    model: Path,
    *,
    port: int = 0,
    sockets: Path | None = None,
    flags: Sequence[str] = (),
) -> Iterator[RealEngine]:
    """An engine that serves `model` by the vLLM of `python`: on `port`, 0: a free one; its agent
    and tap listen in the folder `sockets`, or in its own. `flags` win over the usual ones."""
    with tempfile.TemporaryDirectory(prefix="vllm", ignore_cleanup_errors=True) as folder:
        port = port or free_port()
        log_path = Path(folder, "log")
        agent_socket = (sockets or Path(folder)) / "agent.sock"
        tap = (sockets or Path(folder)) / "tap.sock"
        kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [python, "-m", "vllm.entrypoints.openai.api_server", *_flags(model, port), *flags],
                env={
                    **kept,
                    **_ENVIRONMENT,
                    "TMPDIR": folder,
                    "AXIOM_AGENT_SOCKET": str(agent_socket),
                    "TEST_TAP_SOCKET": str(tap),
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        try:
            url = f"http://{HOST}:{port}"
            _wait(process, url, log_path)
            yield RealEngine(url, model, process, agent_socket, tap)
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
            return
        time.sleep(POLL_S)
    lines = log_path.read_text(errors="replace").splitlines()
    # The cause of a failed start stands far above the end of the log.
    causes = [line for line in lines if "Error" in line]
    shown = "\n".join([*causes[:LOG_LINES_SHOWN], "...", *lines[-LOG_LINES_SHOWN:]])
    raise RuntimeError(f"the engine did not start (exit code {process.poll()}):\n{shown}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT_S)
