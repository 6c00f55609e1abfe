"""Heat, from NVML to a decision: the bindings on a stand-in library, a real agent and gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.gateway_region import BASE_MODEL, REGION, Gateway, region_of, served
from tests.nvml_host import NvmlHost, install

from axiom_common.drivers.nvml_gpus import NvmlGpus
from axiom_common.drivers.nvml_reader import NvmlReader
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.engine import GpuState
from axiom_common.policy.scorers import thermal_safety
from axiom_common.state.region_view import NodeLeft
from axiom_common.testing.bus import FakeBus
from axiom_common.wire import subjects
from axiom_common.wire.reports import decode_node_report

HOT, COOL = "node.e1", "node.e2"


class FlagInOneLook(NvmlReader):
    """While `armed`, the first GPU has a throttle reason in every third look, and never in two in a
    row. More than once, as a busy loop may miss one."""

    def __init__(self, host: NvmlHost) -> None:
        super().__init__(host.kernel_list)
        self.armed = False
        self._host = host
        self.looks = 0

    def look(self, now_ms: float) -> tuple[GpuState, ...]:
        self.looks += 1
        if not self.armed or self.looks % 3:
            return super().look(now_ms)
        show(self._host, 64)
        gpus = super().look(now_ms)
        show(self._host, 0)
        return gpus


def show(host: NvmlHost, throttle: int) -> None:
    """Two GPUs; these reasons hold the first one down."""
    host.show(
        GpuState(index=0, uuid="GPU-a", temperature_c=70.0, throttle=throttle),
        GpuState(index=1, uuid="GPU-b", temperature_c=60.0, throttle=1),
    )


def score(gateway: Gateway, engine: str) -> float:
    row = gateway.app.state.engines[engine].row  # type: ignore[index]
    assert row is not None
    return row.thermal_safety


def masks(gateway: Gateway) -> list[int | None]:
    """What the gateway knows of both GPUs."""
    known = gateway.app.state.engines
    return [gpu.throttle for engine in (HOT, COOL) for gpu in known[engine].gpu]  # type: ignore[index]


@asynccontextmanager
async def gateway_of(reader: NvmlReader, told: list[int | None]) -> AsyncIterator[Gateway]:
    """A region whose agent reads GPUs by `reader`; `told` collects all masks told of the first."""
    async with region_of(agent=False) as region:

        async def hear(subject: str, payload: bytes) -> None:
            report = decode_node_report(subject, payload)
            if not isinstance(report, NodeLeft):
                told.extend(gpu.throttle for gpu in (report.gpus or ())[:1])

        await FakeBus(region.owner, region.hub).subscribe(subjects.all_node_reports(REGION), hear)
        await region.start_agent(gpus=NvmlGpus(SystemClock(), reader))
        async with served(region) as gateway:
            yield gateway


async def test_a_flag_in_one_sample_moves_nothing_and_a_sustained_one_lowers_and_lingers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = install(monkeypatch, tmp_path)
    show(host, 0)
    reader, told = FlagInOneLook(host), list[int | None]()
    async with gateway_of(reader, told) as gateway:
        await eventually(lambda: masks(gateway) == [0, 1])
        reader.armed = True
        await eventually(lambda: 64 in told, within_s=20.0)
        reader.armed, last = False, reader.looks + 1
        await eventually(
            lambda: reader.looks > last and told[-1] == 0 and masks(gateway) == [0, 1],
            within_s=20.0,
        )
        assert score(gateway, HOT) == 1.0, "and would linger if it had counted"

        show(host, 64)
        await eventually(lambda: score(gateway, HOT) == 0.5, within_s=20.0)
        assert score(gateway, COOL) == 1.0
        assert (await gateway.ask(BASE_MODEL)).engine == COOL

        show(host, 0)
        await eventually(lambda: masks(gateway) == [0, 1], within_s=20.0)
        assert score(gateway, HOT) == 0.5, "not gone for long yet"
        monkeypatch.setattr(thermal_safety, "LEAVE_MS", 200.0)
        await eventually(lambda: score(gateway, HOT) == 1.0, within_s=20.0)


@pytest.mark.parametrize("flags", [["-DNO_THROTTLE"], None])
async def test_what_no_driver_tells_is_unknown_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str] | None
) -> None:
    host = NvmlHost(tmp_path) if flags is None else install(monkeypatch, tmp_path, *flags)
    show(host, 64)
    async with gateway_of(NvmlReader(host.kernel_list), []) as gateway:
        if flags is None:
            assert masks(gateway) == [], "no library"
        else:
            await eventually(lambda: masks(gateway) == [None, None])
            [gpu] = gateway.app.state.engines[HOT].gpu  # type: ignore[index]
            assert gpu.temperature_c == 70.0
        assert (score(gateway, HOT), score(gateway, COOL)) == (1.0, 1.0)
