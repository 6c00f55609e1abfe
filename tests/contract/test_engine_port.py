"""The `Engine` port: the fake, and the driver against a simulated engine, under one suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.contract.engine_suite import (
    HBM_SLOTS,
    HOST_SLOTS,
    NAMES,
    EngineSuite,
    EngineUnderTest,
)
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.contract.vllm_under_test import MISSING, driver_under_test
from tests.servers import running

from axiom_common.model.ids import EngineAdapter
from axiom_common.testing.engine import FakeEngine


class TestFakeEngine(EngineSuite):
    tells_residency = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EngineUnderTest]:
        fake = FakeEngine(
            max_loras=HBM_SLOTS,
            max_cpu_loras=HOST_SLOTS,
            absent={MISSING},
            tells_residency=self.tells_residency,
        )

        @asynccontextmanager
        async def run(name: EngineAdapter) -> AsyncIterator[None]:
            fake.begin(name)
            yield
            fake.end(name)

        yield EngineUnderTest(
            engine=fake,
            gone=FakeEngine(down=True),
            base=fake.base,
            path=lambda name: f"/adapters/{name}",
            missing_path=MISSING,
            run=run,
            tells_residency=self.tells_residency,
        )


class TestFakeEngineThatTells(TestFakeEngine):
    tells_residency = True


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapter_folders(tmp_path_factory.mktemp("adapters"), NAMES)


@pytest.fixture(scope="module")
def stock_engine(folders: Path) -> Iterator[str]:
    with running(simulated_engine(folders / "stock")) as server:
        yield server.url


@pytest.fixture(scope="module")
def telling_engine(folders: Path) -> Iterator[str]:
    with running(simulated_engine(folders / "telling", "--tell-residency")) as server:
        yield server.url


class TestVllmEngine(EngineSuite):
    tells_residency = False

    @pytest.fixture(autouse=True)
    def _engine(self, stock_engine: str, folders: Path) -> None:
        self.url = stock_engine
        self.adapters = folders

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EngineUnderTest]:
        async with driver_under_test(
            self.url,
            base="tiny",
            path=lambda name: str(self.adapters / name),
            tells_residency=self.tells_residency,
        ) as test:
            yield test


class TestVllmEngineThatTells(TestVllmEngine):
    tells_residency = True

    @pytest.fixture(autouse=True)
    def _engine(self, telling_engine: str, folders: Path) -> None:
        self.url = telling_engine
        self.adapters = folders
