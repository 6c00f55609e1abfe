"""The `Engine` port: the fake, and the drivers against simulated engines, under one suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.contract.engine_suite import (
    HBM_SLOTS,
    HOST_SLOTS,
    NAMES,
    EngineSuite,
    EngineUnderTest,
)
from tests.contract.simulated_engine import (
    adapter_folders,
    simulated_engine,
    simulated_sglang,
)
from tests.contract.vllm_client import VllmClient
from tests.contract.vllm_under_test import MISSING, driver_under_test
from tests.servers import free_port, running

from axiom_common.drivers.sglang_engine import SglangEngine
from axiom_common.model.ids import EngineAdapter
from axiom_common.testing.engine import FakeEngine


class TestFakeEngine(EngineSuite):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[EngineUnderTest]:
        fake = FakeEngine(
            max_loras=HBM_SLOTS,
            absent={MISSING},
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
        )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapter_folders(tmp_path_factory.mktemp("adapters"), NAMES)


@pytest.fixture(scope="module")
def stock_engine(folders: Path) -> Iterator[str]:
    with running(simulated_engine(folders / "stock")) as server:
        yield server.url


class TestVllmEngine(EngineSuite):
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
        ) as test:
            yield test


@pytest.fixture(scope="module")
def sglang(folders: Path) -> Iterator[str]:
    with running(simulated_sglang(folders / "sglang")) as server:
        yield server.url


class TestSglangEngine(EngineSuite):
    """Its samples name no adapters, and it answers to as many names as host RAM has room for."""

    @pytest.fixture(autouse=True)
    def _engine(self, sglang: str, folders: Path) -> None:
        self.url = sglang
        self.adapters = folders

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EngineUnderTest]:
        engine = SglangEngine(self.url)
        gone = SglangEngine(f"http://127.0.0.1:{free_port()}")
        async with aiohttp.ClientSession() as session:
            client = VllmClient(self.url, session, base="tiny", path=str)

            @asynccontextmanager
            async def run(name: EngineAdapter) -> AsyncIterator[None]:
                async with client.running(f"tiny:{name}"):
                    yield

            for name in NAMES:
                await engine.unload(name)
            yield EngineUnderTest(
                engine=engine,
                gone=gone,
                base="tiny",
                path=lambda name: str(self.adapters / name),
                missing_path=MISSING,
                run=run,
                tells_use=False,
                names_max=HOST_SLOTS,
            )
        await engine.close()
        await gone.close()
