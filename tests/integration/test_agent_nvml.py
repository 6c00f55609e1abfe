"""NVML through the real bindings and a compiled stand-in for the driver's library.

Each case runs in its own process: the bindings load the library once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_STUB = Path(__file__).with_name("nvml_stub.c")
_READ = """
import dataclasses, json, os, pathlib, sys
from axiom_common.drivers.nvml_gpus import NvmlGpus

gpus = NvmlGpus()
for step in sys.argv[1:]:
    pathlib.Path(os.environ["NVML_STUB"]).write_text(step)
    print(json.dumps([dataclasses.asdict(gpu) for gpu in gpus.read()]))
"""
_ONE = """count 1
0.name NVIDIA H200
0.uuid GPU-1
0.used 1024
0.total 4096
0.temp 61
0.throttle 0x28
"""


def _reads(folder: Path, *steps: str, flags: tuple[str, ...] = (), stub: bool = True) -> list[list]:
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


def test_every_field_is_read(tmp_path: Path) -> None:
    [[gpu]] = _reads(tmp_path, _ONE)
    assert gpu == {
        "index": 0,
        "uuid": "GPU-1",
        "name": "NVIDIA H200",
        "memory_used_bytes": 1024,
        "memory_total_bytes": 4096,
        "temperature_c": 61.0,
        "throttle": 0x28,
    }


def test_a_field_that_the_card_lacks_is_unknown_and_the_rest_stays(tmp_path: Path) -> None:
    [[gpu]] = _reads(tmp_path, "count 1\n0.name Card\n0.temp 40\n0.total 10\n")
    assert gpu["name"] == "Card"
    assert gpu["temperature_c"] == 40.0
    assert gpu["memory_used_bytes"] is None
    assert gpu["memory_total_bytes"] is None
    assert gpu["throttle"] is None
    assert gpu["uuid"] is None


@pytest.mark.parametrize(("flag", "throttle"), [("-DOLD_NAMES", 0x28), ("-DNO_THROTTLE", None)])
def test_old_drivers(tmp_path: Path, flag: str, throttle: int | None) -> None:
    [[gpu]] = _reads(tmp_path, _ONE, flags=(flag,))
    assert gpu["throttle"] == throttle
    assert gpu["temperature_c"] == 61.0


def test_a_lost_gpu_keeps_its_place_and_the_others_their_fields(tmp_path: Path) -> None:
    both = _ONE.replace("count 1", "count 2") + "1.name Second\n1.temp 50\n"
    before, after = _reads(tmp_path, both, both + "0.fail 15\n")
    assert [gpu["temperature_c"] for gpu in before] == [61.0, 50.0]
    assert [gpu["index"] for gpu in after] == [0, 1]
    assert after[0] == dict.fromkeys(before[0], None) | {"index": 0}
    assert after[1] == before[1]


def test_a_driver_that_comes_late_goes_away_and_comes_back(tmp_path: Path) -> None:
    counts = [len(read) for read in _reads(tmp_path, "init 9\n", _ONE, "init 9\n", _ONE)]
    assert counts == [0, 1, 0, 1]


def test_no_library_means_no_gpus(tmp_path: Path) -> None:
    assert _reads(tmp_path, _ONE, stub=False) == [[]]
