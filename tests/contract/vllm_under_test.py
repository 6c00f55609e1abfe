"""The vLLM driver against an engine that is up, whoever made it: simulated or real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from tests.contract.engine_suite import NAMES, EngineUnderTest
from tests.contract.vllm_client import VllmClient
from tests.servers import free_port

from axiom_common.drivers.vllm_engine import VllmEngine
from axiom_common.model.ids import EngineAdapter

MISSING = "/nowhere/at/all"


@asynccontextmanager
async def driver_under_test(
    url: str, *, base: str, path: Callable[[EngineAdapter], str]
) -> AsyncIterator[EngineUnderTest]:
    """The engine at `url`, with no name of the suite registered before and after."""
    engine = VllmEngine(url)
    gone = VllmEngine(f"http://127.0.0.1:{free_port()}")
    async with aiohttp.ClientSession() as session:
        client = VllmClient(url, session, base=base, path=str)

        @asynccontextmanager
        async def run(name: EngineAdapter) -> AsyncIterator[None]:
            async with client.running(name):
                yield

        await client.unload(*NAMES)
        yield EngineUnderTest(
            engine=engine,
            gone=gone,
            base=base,
            path=path,
            missing_path=MISSING,
            run=run,
        )
        await client.unload(*NAMES)
    await engine.close()
    await gone.close()
