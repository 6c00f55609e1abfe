"""What every measured figure is told with: the machine and the commit."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

GIT_TIMEOUT_S = 5.0
DISTRIBUTION = "axiom"


def version() -> str:
    """The installed version of Axiom."""
    return metadata.version(DISTRIBUTION)


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, Python, and whether the native kernel is here."""
    return {
        "cpu": _cpu(Path("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "python": platform.python_version(),
        "native_kernel": _has_native_kernel(),
    }


def commit() -> str | None:
    """The commit of the checkout that Axiom runs from, `-dirty` with changes; None elsewhere."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _has_native_kernel() -> bool:
    spec = importlib.util.find_spec("axiom_native")
    # Its source folder, unbuilt, looks like a package without an origin.
    return spec is not None and spec.origin is not None


def _cpu(cpuinfo: Path) -> str:
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
