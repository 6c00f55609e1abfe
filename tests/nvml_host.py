"""A host with NVML: the real bindings on a compiled stand-in for the driver's library."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest

from axiom_common.model.engine import GpuState

_STUB = Path(__file__).with_name("integration") / "nvml_stub.c"
_KEYS = {
    "uuid": "uuid",
    "name": "name",
    "memory_used_bytes": "used",
    "memory_total_bytes": "total",
    "temperature_c": "temp",
    "sm_clock_mhz": "sm_clock",
    "sm_clock_max_mhz": "sm_clock_max",
    "memory_clock_mhz": "memory_clock",
    "throttle": "throttle",
    "ecc_corrected": "ecc_corrected",
    "ecc_uncorrected": "ecc_uncorrected",
    "xid": "xid",
}
_FACTORS = {
    "utilization": ("util", 100),
    "memory_utilization": ("memutil", 100),
    "power_w": ("power", 1000),
    "power_limit_w": ("power_limit", 1000),
}


def build_library(folder: Path, *flags: str) -> Path:
    """Compile the stand-in into `folder`, under the name that the bindings look for."""
    compiler = shutil.which("cc")
    assert compiler, "these tests need a C compiler (cc)"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", *flags, "-o", str(library), str(_STUB)], check=True
    )
    return library


class NvmlHost:
    """What the stand-in answers, as text or as GPUs, and the kernel's list of them."""

    def __init__(self, folder: Path) -> None:
        self.answers = folder / "answers"
        self.kernel_list = folder / "gpus"
        self.write("count 0\n")

    def write(self, text: str) -> None:
        """From now on answer so."""
        whole = self.answers.with_suffix(".new")
        whole.write_text(text)
        whole.replace(self.answers)
        shutil.rmtree(self.kernel_list, ignore_errors=True)
        for line in text.splitlines():
            if ".uuid " in line:
                (self.kernel_list / line.partition(" ")[2]).mkdir(parents=True)

    def show(self, *gpus: GpuState, also: str = "") -> None:
        """Answer with these GPUs, in this order."""
        lines = [f"count {len(gpus)}"]
        for place, gpu in enumerate(gpus):
            told = {key: getattr(gpu, field) for field, key in _KEYS.items()}
            for field, (key, factor) in _FACTORS.items():
                value = getattr(gpu, field)
                told[key] = None if value is None else round(value * factor)
            lines += [
                f"{place}.{key} {int(value) if isinstance(value, float) else value}"
                for key, value in told.items()
                if value is not None
            ]
            lines += [f"{place}.mig {len(gpu.mig)}"] if gpu.mig else []
            for number, part in enumerate(gpu.mig):
                lines.append(f"{place}.mig{number}.uuid {part.uuid}")
                lines.append(f"{place}.mig{number}.used {part.memory_used_bytes}")
                lines.append(f"{place}.mig{number}.total {part.memory_total_bytes}")
        self.write("\n".join(lines) + "\n" + also)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: str) -> NvmlHost:
    """Let the bindings of this process use a stand-in of its own until the test ends."""
    host = NvmlHost(folder)
    library = ctypes.CDLL(str(build_library(folder, *flags)))
    monkeypatch.setitem(os.environ, "NVML_STUB", str(host.answers))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return host
