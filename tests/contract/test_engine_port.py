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
def later_engine(folders: Path) -> Iterator[str]:
    with running(simulated_engine(folders / "later", "--tell-loaded")) as server:
        yield server.url


class TestLaterVllmEngine(TestVllmEngine):
    """One whose metrics name the adapters held (vLLM#54830)."""

    @pytest.fixture(autouse=True)
    def _engine(self, later_engine: str, folders: Path) -> None:
        self.url = later_engine
        self.adapters = folders

    async def test_what_it_holds_is_told_as_it_moves(self) -> None:
        alice, bob, carol = NAMES[:3]
        async with self.open() as test:

            async def holds(hbm: set[EngineAdapter], host: set[EngineAdapter]) -> None:
                told = (await test.engine.sample()).loaded
                assert told is not None
                assert told.hbm_slots == HBM_SLOTS
                # What other tests loaded may still be held in host RAM.
                assert (told.hbm, told.host & set(NAMES[:3])) == (hbm, host)

            await test.load(alice, bob, carol)
            await holds({bob, carol}, {alice})
            async with test.run(alice):
                pass
            await holds({alice, carol}, {bob})
            # The copy of a forgotten name is held until an LRU drops it.
            await test.engine.unload(bob)
            await holds({alice, carol}, {bob})


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

    async def test_a_load_takes_a_slot_although_sglangs_own_does_not(self) -> None:
        async with self.open() as test, aiohttp.ClientSession() as session:
            await test.load(*NAMES[:2], NAMES[0])
            async with session.get(f"{self.url}/sim/stats") as answer:
                assert (await answer.json())["hbm"] == [NAMES[1], NAMES[0]]
