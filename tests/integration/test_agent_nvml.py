"""NVML through the real bindings and a compiled stand-in for the driver's library."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.nvml_host import NvmlHost, build_library, install
from tests.owner import task_owner

from axiom_common.drivers.background_reads import CHECK_MS
from axiom_common.drivers.nvml_card import FACTS_EVERY_MS, PCIE_EVERY_MS
from axiom_common.drivers.nvml_gpus import STALE_MS, NvmlGpus
from axiom_common.drivers.nvml_reader import LOST_REOPEN_MS, REOPEN_MS, TELL_EVERY_MS, NvmlReader
from axiom_common.model.engine import GpuState, MigSlice
from axiom_common.testing.clock import FakeClock

WHOLE = """count 1
0.name NVIDIA H200
0.uuid GPU-a
0.used 1024
0.total 4096
0.util 97
0.memutil 41
0.temp 61
0.power 651700
0.power_limit 700000
0.sm_clock 1980
0.sm_clock_max 1981
0.memory_clock 2619
0.throttle 0x28
0.ecc_corrected 3
0.ecc_uncorrected 1
0.xid 79
0.mig 1
0.mig0.uuid MIG-a
0.mig0.used 100
0.mig0.total 200
0.pcie_rx_bytes 1000
0.pcie_tx_bytes 2000
0.nvlink_rx_kib 10
0.nvlink_tx_kib 20
"""
TWO = "count 2\n0.uuid GPU-a\n0.temp 61\n1.uuid GPU-b\n1.temp 50\n"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NvmlHost:
    return install(monkeypatch, tmp_path)


@pytest.fixture
def reader(host: NvmlHost) -> NvmlReader:
    return NvmlReader(host.kernel_list)


def temperatures(gpus: tuple[GpuState, ...]) -> list[float | None]:
    return [gpu.temperature_c for gpu in gpus]


def test_every_field_is_read(host: NvmlHost, reader: NvmlReader) -> None:
    host.write(WHOLE)
    reader.look(0.0)
    moved = {"pcie_rx_bytes 1000": "pcie_rx_bytes 6000", "pcie_tx_bytes 2000": "pcie_tx_bytes 3000"}
    moved |= {"nvlink_rx_kib 10": "nvlink_rx_kib 12", "nvlink_tx_kib 20": "nvlink_tx_kib 20"}
    text = WHOLE
    for before, after in moved.items():
        text = text.replace(before, after)
    host.write(text)
    [gpu] = reader.look(2_000.0)
    assert gpu == GpuState(
        index=0,
        uuid="GPU-a",
        name="NVIDIA H200",
        memory_used_bytes=1024,
        memory_total_bytes=4096,
        utilization=0.97,
        memory_utilization=0.41,
        temperature_c=61.0,
        power_w=652.0,
        power_limit_w=700.0,
        sm_clock_mhz=1980,
        sm_clock_max_mhz=1981,
        memory_clock_mhz=2619,
        throttle=0x28,
        throttled_ms=((8, 2_000.0), (32, 2_000.0)),
        ecc_corrected=3,
        ecc_uncorrected=1,
        xid=79,
        xid_age_ms=2_000.0,
        pcie_rx_bytes_per_s=2500.0,
        pcie_tx_bytes_per_s=500.0,
        nvlink_rx_bytes_per_s=1024.0,
        nvlink_tx_bytes_per_s=0.0,
        mig=(MigSlice("MIG-a", 100, 200),),
    )
    unset = {f.name for f in fields(GpuState) if getattr(gpu, f.name) in (None, ())}
    assert unset == set(), "a field that no test reads"


def test_a_field_that_the_card_lacks_is_unknown_and_the_rest_stays(
    host: NvmlHost, reader: NvmlReader
) -> None:
    host.write("count 1\n0.name Card\n0.temp 40\n0.total 10\n")
    assert reader.look(0.0) == (GpuState(index=0, name="Card", temperature_c=40.0),)


@pytest.mark.parametrize(
    ("flags", "throttle"),
    [(["-DOLD_NAMES"], 0x28), (["-DNO_THROTTLE"], None), (["-DOLD_DRIVER"], 0x28)],
)
def test_old_drivers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str], throttle: int | None
) -> None:
    install(monkeypatch, tmp_path, *flags).write(WHOLE)
    reader = NvmlReader()
    reader.look(0.0)
    [gpu] = reader.look(1_000.0)
    assert (gpu.throttle, gpu.temperature_c) == (throttle, 61.0)
    if flags == ["-DOLD_DRIVER"]:
        known = GpuState(
            index=0,
            uuid="GPU-a",
            name="NVIDIA H200",
            memory_used_bytes=1024,
            memory_total_bytes=4096,
            temperature_c=61.0,
            throttle=0x28,
            throttled_ms=((8, 1_000.0), (32, 1_000.0)),
        )
        assert gpu == known


def test_a_reason_counts_its_time_over_looks_and_anew_after_a_break(
    host: NvmlHost, reader: NvmlReader
) -> None:
    def look(throttle: int, now_ms: float) -> tuple[tuple[int, float], ...]:
        host.write(f"count 1\n0.throttle {throttle}\n")
        return reader.look(now_ms)[0].throttled_ms

    assert look(8, 0.0) == ((8, 0.0),)
    assert look(8, 100.0) == ((8, 0.0),)  # no news yet
    assert look(8, 300.0) == ((8, 300.0),)  # stood a beat: news at once
    assert look(8 | 64, 400.0) == ((8, 400.0), (64, 0.0))
    assert look(64, 500.0) == ((64, 100.0),)
    assert look(8 | 64, 600.0) == ((8, 0.0), (64, 200.0))


def test_what_does_not_matter_now_waits_for_the_next_whole_look(
    host: NvmlHost, reader: NvmlReader
) -> None:
    host.write("count 1\n0.temp 40\n0.throttle 0\n")
    first = reader.look(0.0)
    host.write("count 1\n0.temp 41\n0.throttle 1\n")
    assert reader.look(FACTS_EVERY_MS - 1.0) is first
    [gpu] = reader.look(FACTS_EVERY_MS)
    assert (gpu.temperature_c, gpu.throttle) == (41.0, 1)


def test_counters_that_were_set_back_tell_nothing(host: NvmlHost, reader: NvmlReader) -> None:
    rates = []
    for second, moved in enumerate([500, 700, 100, 200]):
        host.write(f"count 1\n0.pcie_rx_bytes {moved}\n0.pcie_tx_bytes 0\n")
        rates.append(reader.look(second * 1e3)[0].pcie_rx_bytes_per_s)
    assert rates == [None, 200.0, None, 100.0]


def test_pcie_is_measured_where_nothing_counts_it(host: NvmlHost, reader: NvmlReader) -> None:
    host.write("count 1\n0.pcie_rx 7\n0.pcie_tx 9\n")
    for look in range(int(PCIE_EVERY_MS // 100) + 2):
        [gpu] = reader.look(look * 100.0)
    assert (gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s) == (7e3, 9e3)


def test_an_xid_is_told_at_once_and_grows_old(host: NvmlHost, reader: NvmlReader) -> None:
    reader.look(0.0)
    host.write(TWO)
    reader.look(1_000.0)
    host.write(TWO + "1.xid 31\n")
    assert [(g.xid, g.xid_age_ms) for g in reader.look(1_100.0)] == [(None, None), (31, 0.0)]
    assert reader.look(2_100.0)[1].xid_age_ms == 1_000.0
    host.write(TWO + "1.xid 79\n")
    assert reader.look(2_200.0)[1].xid == 79


def test_a_lost_gpu_keeps_its_name_and_the_others_go_on(host: NvmlHost, reader: NvmlReader) -> None:
    host.write(TWO)
    reader.look(0.0)
    host.write(TWO + "0.fail 15\n")
    assert reader.look(100.0)[0] == GpuState(index=0, uuid="GPU-a", lost=True)
    host.write(TWO.replace("1.temp 50", "1.temp 55") + "0.fail 15\n")
    assert temperatures(reader.look(1_100.0)) == [None, 55.0]
    host.write(TWO)
    back = reader.look(LOST_REOPEN_MS)
    assert [(gpu.index, gpu.lost) for gpu in back] == [(0, False), (1, False)]
    assert temperatures(back) == [61.0, 50.0]


def test_an_unplugged_gpu_leaves_its_index_to_itself(host: NvmlHost, reader: NvmlReader) -> None:
    host.write(TWO)
    reader.look(0.0)
    host.write("count 1\n0.uuid GPU-b\n0.temp 52\n")
    gone, stays = reader.look(TELL_EVERY_MS)
    assert gone == GpuState(index=0, uuid="GPU-a", lost=True)
    assert (stays.index, stays.uuid, stays.temperature_c) == (1, "GPU-b", 52.0)
    host.write("count 2\n0.uuid GPU-b\n0.temp 53\n1.uuid GPU-c\n1.temp 20\n")
    plugged = reader.look(2 * TELL_EVERY_MS)
    assert [(g.uuid, g.lost) for g in plugged] == [
        ("GPU-a", True),
        ("GPU-b", False),
        ("GPU-c", False),
    ]
    host.write("count 3\n0.uuid GPU-d\n1.uuid GPU-b\n2.uuid GPU-c\n")
    replaced = reader.look(3 * TELL_EVERY_MS)
    assert [gpu.uuid for gpu in replaced] == ["GPU-d", "GPU-b", "GPU-c"]
    assert not any(gpu.lost for gpu in replaced)


def test_a_driver_that_comes_late_goes_away_and_comes_back(
    host: NvmlHost, reader: NvmlReader
) -> None:
    host.write("init 9\n")
    assert reader.look(0.0) == ()
    host.write(TWO)
    assert temperatures(reader.look(REOPEN_MS)) == [61.0, 50.0]
    host.write("init 9\n")
    away = reader.look(REOPEN_MS + 1_000.0)
    assert away == (GpuState(index=0, uuid="GPU-a"), GpuState(index=1, uuid="GPU-b"))
    host.write(TWO)
    assert temperatures(reader.look(2 * REOPEN_MS + 1_000.0)) == [61.0, 50.0]


def test_a_gpu_that_never_answers_is_unknown_and_not_lost(
    host: NvmlHost, reader: NvmlReader
) -> None:
    host.write("count 1\n0.fail 4\n")
    assert reader.look(0.0) == (GpuState(index=0),)
    assert reader.look(LOST_REOPEN_MS + 1_000.0) == (GpuState(index=0),)


_LATE = """
import dataclasses, json, pathlib, sys
from axiom_common.drivers.nvml_gpus import STALE_MS, NvmlGpus
from axiom_common.drivers.nvml_reader import NvmlReader

reader = NvmlReader()
there = [len(reader.look(0.0))]
hidden = pathlib.Path(sys.argv[1])
hidden.rename(hidden.with_name("libnvidia-ml.so.1"))
there += [len(reader.look(now_ms)) for now_ms in (1.0, 10_000.0)]
reader.close()
print(json.dumps(there))
"""


def test_without_the_library_there_are_no_gpus_and_one_that_comes_later_is_found(
    tmp_path: Path,
) -> None:
    NvmlHost(tmp_path).write(TWO)
    hidden = build_library(tmp_path).rename(tmp_path / "hidden")
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_STUB": str(tmp_path / "answers")}
    run = subprocess.run(
        [sys.executable, "-c", _LATE, str(hidden)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(run.stdout) == [0, 0, 2]


def nvml_threads() -> int:
    return sum(thread.name == "nvml" for thread in threading.enumerate())


async def test_a_call_that_hangs_leaves_the_gpus_unknown_and_one_thread(
    host: NvmlHost, tmp_path: Path
) -> None:
    clock, changed = FakeClock(), asyncio.Event().set
    gpus = NvmlGpus(clock, NvmlReader(host.kernel_list))
    host.write(TWO)
    async with task_owner() as owner:
        running = owner.create_task(gpus.run(changed), name="gpus")
        await eventually(lambda: temperatures(gpus.read()) == [61.0, 50.0])
        host.write(TWO + "1.hang 1\n")
        await eventually((tmp_path / "answers.hung").exists)
        await clock.advance(STALE_MS)
        assert gpus.read() == (GpuState(index=0, uuid="GPU-a"), GpuState(index=1, uuid="GPU-b"))
        assert gpus.read() is gpus.read()
        running.cancel()
        again = owner.create_task(gpus.run(changed), name="gpus again")
        await clock.advance(10 * CHECK_MS)
        assert nvml_threads() == 1
        host.write(TWO)
        await eventually(lambda: nvml_threads() == 0)
        await clock.advance(10 * CHECK_MS)
        await eventually(lambda: temperatures(gpus.read()) == [61.0, 50.0])
        again.cancel()
    await eventually(lambda: nvml_threads() == 0)


_HUNG = """
import asyncio, pathlib, sys
from axiom_common.drivers.nvml_gpus import NvmlGpus
from axiom_common.drivers.system_clock import SystemClock

async def main():
    async with asyncio.TaskGroup() as group:
        running = group.create_task(NvmlGpus(SystemClock()).run(lambda: None))
        while not pathlib.Path(sys.argv[1]).exists():
            await asyncio.sleep(0.01)
        running.cancel()

asyncio.run(main())
"""


def test_a_call_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    NvmlHost(tmp_path).write(TWO + "1.hang 1\n")
    build_library(tmp_path)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "NVML_STUB": str(tmp_path / "answers")}
    subprocess.run(
        [sys.executable, "-c", _HUNG, str(tmp_path / "answers.hung")],
        env=os.environ | environment,
        check=True,
        timeout=60,
    )
