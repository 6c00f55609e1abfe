"""NVML through the real bindings and a compiled stand-in for the driver's library."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.nvml_reads import nvml_reads

_ONE = """count 1
0.name NVIDIA H200
0.uuid GPU-1
0.used 1024
0.total 4096
0.temp 61
0.throttle 0x28
"""


def test_every_field_is_read(tmp_path: Path) -> None:
    [[gpu]] = nvml_reads(tmp_path, _ONE)
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
    [[gpu]] = nvml_reads(tmp_path, "count 1\n0.name Card\n0.temp 40\n0.total 10\n")
    assert gpu["name"] == "Card"
    assert gpu["temperature_c"] == 40.0
    assert gpu["memory_used_bytes"] is None
    assert gpu["memory_total_bytes"] is None
    assert gpu["throttle"] is None
    assert gpu["uuid"] is None


@pytest.mark.parametrize(("flag", "throttle"), [("-DOLD_NAMES", 0x28), ("-DNO_THROTTLE", None)])
def test_old_drivers(tmp_path: Path, flag: str, throttle: int | None) -> None:
    [[gpu]] = nvml_reads(tmp_path, _ONE, flags=(flag,))
    assert gpu["throttle"] == throttle
    assert gpu["temperature_c"] == 61.0


def test_a_lost_gpu_keeps_its_place_and_the_others_their_fields(tmp_path: Path) -> None:
    both = _ONE.replace("count 1", "count 2") + "1.name Second\n1.temp 50\n"
    before, after = nvml_reads(tmp_path, both, both + "0.fail 15\n")
    assert [gpu["temperature_c"] for gpu in before] == [61.0, 50.0]
    assert [gpu["index"] for gpu in after] == [0, 1]
    assert after[0] == dict.fromkeys(before[0], None) | {"index": 0}
    assert after[1] == before[1]


def test_a_driver_that_comes_late_goes_away_and_comes_back(tmp_path: Path) -> None:
    counts = [len(read) for read in nvml_reads(tmp_path, "init 9\n", _ONE, "init 9\n", _ONE)]
    assert counts == [0, 1, 0, 1]


def test_no_library_means_no_gpus(tmp_path: Path) -> None:
    assert nvml_reads(tmp_path, _ONE, stub=False) == [[]]
