"""What the NVML driver reads from a compiled stand-in for the driver's library.

Each call runs in its own process: the bindings load the library once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_name("nvml_stub.c")
_READ = """
import dataclasses, json, os, pathlib, sys
from axiom_common.drivers.nvml_gpus import NvmlGpus

gpus = NvmlGpus()
for step in sys.argv[1:]:
    pathlib.Path(os.environ["NVML_STUB"]).write_text(step)
    print(json.dumps([dataclasses.asdict(gpu) for gpu in gpus.read()]))
"""


def nvml_reads(
    folder: Path, *steps: str, flags: tuple[str, ...] = (), stub: bool = True
) -> list[list[dict[str, Any]]]:
    """What one driver reads, the library's answers changing from step to step."""
    compiler = shutil.which("cc")
    assert compiler, "these tests need a C compiler (cc)"
    if stub:
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(
            [compiler, "-shared", "-fPIC", *flags, "-o", str(library), str(_STUB)], check=True
        )
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(folder),
        "NVML_STUB": str(folder / "answers"),
    }
    run = subprocess.run(
        [sys.executable, "-c", _READ, *steps],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]
