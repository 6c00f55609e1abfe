"""One suite for the `Gpus` port: the fake, and NVML on a stand-in for the driver's library."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.nvml_host import NvmlHost, install
from tests.owner import task_owner

from axiom_common.drivers.nvml_gpus import NvmlGpus
from axiom_common.drivers.nvml_reader import NvmlReader
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.engine import GpuState, MigSlice
from axiom_common.ports.gpu import Gpus, urgent
from axiom_common.testing.gpus import FakeGpus

FIRST = GpuState(
    index=0,
    uuid="GPU-1",
    name="NVIDIA H200",
    memory_used_bytes=1024,
    memory_total_bytes=4096,
    utilization=0.5,
    memory_utilization=0.25,
    temperature_c=61.0,
    power_w=500.0,
    power_limit_w=700.0,
    sm_clock_mhz=1500,
    sm_clock_max_mhz=1980,
    memory_clock_mhz=2619,
    throttle=8,
    ecc_corrected=1,
    ecc_uncorrected=0,
    xid=31,
    mig=(MigSlice("MIG-1", 10, 20),),
)
SECOND = GpuState(index=1, uuid="GPU-2", name="Another", temperature_c=40.0)
TIMED = {"throttled_ms", "xid_age_ms"} | {
    f"{link}_{way}_bytes_per_s" for link in ("pcie", "nvlink") for way in ("rx", "tx")
}
"""What depends on the time between looks: tests/integration/test_agent_nvml.py."""


class Host:
    """A host whose GPUs are what `show` was told last; `lose` takes one off the bus."""

    def __init__(self, gpus: Gpus, nvml: NvmlHost | None) -> None:
        self.gpus = gpus
        self._nvml = nvml
        self._shown: tuple[GpuState, ...] = ()
        self.told: tuple[GpuState, ...] | None = None

    def changed(self) -> None:
        self.told = self.gpus.read()

    def show(self, *gpus: GpuState) -> None:
        self._shown = gpus
        if self._nvml is not None:
            self._nvml.show(*gpus)
        else:
            assert isinstance(self.gpus, FakeGpus)
            self.gpus.show(*gpus)

    def lose(self, index: int) -> None:
        if self._nvml is not None:
            self._nvml.show(*self._shown, also=f"{index}.fail 15\n")
        else:
            assert isinstance(self.gpus, FakeGpus)
            self.gpus.lose(index)

    async def reads(self, *expected: GpuState) -> None:
        """Wait until these are read, times apart."""

        def untimed() -> list[GpuState]:
            return [replace(gpu, throttled_ms=(), xid_age_ms=None) for gpu in self.gpus.read()]

        await eventually(lambda: untimed() == list(expected), within_s=20.0)


@pytest.fixture(params=["fake", "nvml"])
async def host(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Host]:
    nvml = install(monkeypatch, tmp_path) if request.param == "nvml" else None
    gpus: Gpus = FakeGpus()
    if nvml is not None:
        gpus = NvmlGpus(SystemClock(), NvmlReader(nvml.kernel_list))
    async with task_owner() as owner:
        host = Host(gpus, nvml)
        running = owner.create_task(gpus.run(host.changed), name="gpus")
        yield host
        running.cancel()
    await eventually(lambda: "nvml" not in {thread.name for thread in threading.enumerate()})


async def test_all_gpus_come_by_index_with_what_is_known_of_them(host: Host) -> None:
    host.show(FIRST, SECOND)
    await host.reads(FIRST, SECOND)


async def test_a_host_without_gpus(host: Host) -> None:
    await host.reads()


async def test_of_a_lost_gpu_the_name_is_left_and_the_others_go_on(host: Host) -> None:
    host.show(FIRST, SECOND)
    await host.reads(FIRST, SECOND)
    host.lose(1)
    await host.reads(FIRST, GpuState(index=1, uuid="GPU-2", name="Another", lost=True))


async def test_an_unplugged_gpu_is_lost_and_comes_back_under_its_index(host: Host) -> None:
    third = GpuState(index=2, uuid="GPU-3", temperature_c=30.0)
    host.show(replace(FIRST, xid=None), SECOND, third)
    await host.reads(replace(FIRST, xid=None), SECOND, third)
    host.show(SECOND, third)
    lost = GpuState(index=0, uuid="GPU-1", name="NVIDIA H200", lost=True)
    await host.reads(lost, SECOND, third)
    host.show(SECOND, third, replace(FIRST, xid=None))
    await host.reads(replace(FIRST, xid=None), SECOND, third)


async def test_what_is_read_is_the_same_object_until_something_changed(host: Host) -> None:
    host.show(SECOND)
    await eventually(lambda: host.gpus.read(), within_s=20.0)
    read = host.gpus.read()
    assert host.gpus.read() is read
    host.show(replace(SECOND, throttle=64))
    await eventually(lambda: host.gpus.read() is not read, within_s=20.0)
    assert host.gpus.read()[0].throttle == 64
    await eventually(lambda: host.told is host.gpus.read())


@pytest.mark.parametrize(
    ("change", "is_urgent"),
    [
        (lambda gpu: replace(gpu, throttle=8 | 64), True),
        (lambda gpu: replace(gpu, throttle=0), True),
        (lambda gpu: replace(gpu, throttled_ms=((8, 250.0),)), True),
        (lambda gpu: replace(gpu, xid=79), True),
        (lambda gpu: replace(gpu, lost=True), True),
        (lambda gpu: replace(gpu, throttle=8 | 1 | 4), False),
        (lambda gpu: replace(gpu, throttled_ms=((8, 249.0), (1, 9e9))), False),
        (lambda gpu: replace(gpu, temperature_c=90.0, power_w=1.0), False),
    ],
)
def test_what_is_urgent(change: Callable[[GpuState], GpuState], is_urgent: bool) -> None:
    assert (urgent(change(FIRST)) != urgent(FIRST)) is is_urgent


def test_every_field_takes_part() -> None:
    bare = GpuState(index=0)
    told = {f.name for f in fields(GpuState) if getattr(FIRST, f.name) != getattr(bare, f.name)}
    assert told | TIMED | {"index", "lost"} == {field.name for field in fields(GpuState)}
