"""One suite for the `Gpus` port: the fake, and NVML on a stand-in for the driver's library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from tests.integration.nvml_reads import nvml_reads

from axiom_common.model.engine import GpuState
from axiom_common.testing.gpus import FakeGpus

Reads = Callable[..., tuple[tuple[GpuState, ...], tuple[GpuState, ...]]]
"""Gets the GPUs of a host and the index of one that is lost then; reads before and after."""

FIRST = GpuState(
    index=0,
    uuid="GPU-1",
    name="NVIDIA H200",
    memory_used_bytes=1024,
    memory_total_bytes=4096,
    temperature_c=61.0,
    throttle=8,
)
SECOND = GpuState(index=1, name="Another", temperature_c=40.0)
_STUB_FIELDS = {
    "uuid": "uuid",
    "name": "name",
    "used": "memory_used_bytes",
    "total": "memory_total_bytes",
    "temp": "temperature_c",
    "throttle": "throttle",
}


@pytest.fixture(params=["fake", "nvml"])
def reads(request: pytest.FixtureRequest, tmp_path: Path) -> Reads:
    if request.param == "fake":
        return _fake_reads
    return lambda *gpus, lost: _nvml_reads(tmp_path, gpus, lost)


def _fake_reads(*gpus: GpuState, lost: int) -> tuple[tuple[GpuState, ...], tuple[GpuState, ...]]:
    fake = FakeGpus(*gpus)
    before = fake.read()
    if gpus:
        fake.lose(lost)
    return before, fake.read()


def _nvml_reads(
    folder: Path, gpus: tuple[GpuState, ...], lost: int
) -> tuple[tuple[GpuState, ...], tuple[GpuState, ...]]:
    lines = [f"count {len(gpus)}"]
    for gpu in gpus:
        for stub_field, field in _STUB_FIELDS.items():
            value = getattr(gpu, field)
            if value is not None:
                lines.append(f"{gpu.index}.{stub_field} {value}")
    before = "\n".join(lines) + "\n"
    first, second = nvml_reads(folder, before, before + f"{lost}.fail 15\n")
    return tuple(GpuState(**g) for g in first), tuple(GpuState(**g) for g in second)


def test_all_gpus_come_by_index_with_what_is_known_of_them(reads: Reads) -> None:
    before, _ = reads(SECOND, FIRST, lost=0)
    assert before == (FIRST, SECOND)


def test_of_a_lost_gpu_only_the_index_is_left(reads: Reads) -> None:
    _, after = reads(FIRST, SECOND, lost=0)
    assert after == (GpuState(index=0), SECOND)


def test_a_host_without_gpus(reads: Reads) -> None:
    assert reads(lost=0) == ((), ())


def test_every_field_takes_part() -> None:
    assert {"index", *_STUB_FIELDS.values()} == {field.name for field in fields(GpuState)}
