"""What goes on while telemetry is measured: adapters are loaded at engines, and requests are asked
through the gateway."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import aiohttp

from axiom_cli.bench.telemetry_region import SIM_MODEL, TelemetryRegion
from axiom_cli.bench.telemetry_truth import Loaded
from axiom_cli.bench.view_client import ViewClient
from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock

SEEN_TIMEOUT_S = 30.0
"""What takes longer is no figure any more."""
PAUSE_MS = 250.0
"""At most between two changes of an engine: a poll's time, so that they meet it at any phase."""
NAMES_MAX = 64
"""Registered at an engine; older ones are unloaded."""
REQUESTS_PER_S = 20.0
"""Through the gateway, so that it has in-flight vectors to tell."""


class Loads:
    """Loads at the engines that run. `taken_ms`: each until it was seen."""

    def __init__(self, region: TelemetryRegion, client: ViewClient, clock: Clock) -> None:
        self.taken_ms: list[float] = []
        self.loaded = Loaded()
        self._region = region
        self._client = client
        self._clock = clock
        self._random = Random(1)

    async def many(self, session: aiohttp.ClientSession, node: str, until_ms: float) -> None:
        """One after another, with a pause of any length between."""
        while self._clock.now_ms() < until_ms:
            await self._clock.sleep_ms(self._random.uniform(0.0, PAUSE_MS))
            await self.one(session, node)

    async def one(self, session: aiohttp.ClientSession, node: str) -> None:
        """A load of an adapter that the engine does not know yet."""
        names = self.loaded.names[node]
        name = f"loaded-{self.loaded.count(node):06}"
        began_ms = self._clock.now_ms()
        await self._call(session, node, "load", lora_name=name, lora_path=f"/adapters/{name}")
        names.append(name)
        try:
            seen_ms = await self._client.seen(node, name, timeout_s=SEEN_TIMEOUT_S)
        except TimeoutError as error:
            raise UnavailableError(
                f"{name} on {node} was not seen in {SEEN_TIMEOUT_S} s"
            ) from error
        self.taken_ms.append(seen_ms - began_ms)
        if len(names) > NAMES_MAX:
            await self._call(session, node, "unload", lora_name=names.popleft())

    async def _call(
        self, session: aiohttp.ClientSession, node: str, verb: str, **body: str
    ) -> None:
        url = f"{self._region.engine_urls[node]}/v1/{verb}_lora_adapter"
        try:
            async with session.post(url, json=body) as response:
                if response.status != 200:
                    told = await response.text()
                    raise UnavailableError(f"{verb} on {node}: {response.status} {told[:200]}")
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"{verb} on {node}: {error!r}") from error


class Requests:
    """Requests through the gateway at a steady rate."""

    def __init__(self) -> None:
        self.answered = 0

    async def run(self, session: aiohttp.ClientSession, url: str) -> None:
        """Ask until cancelled; what is refused is not counted."""
        body = {"model": SIM_MODEL, "prompt": "What is telemetry?", "max_tokens": 8}
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.post(f"{url}/v1/completions", json=body) as response:
                    await response.read()
                    self.answered += response.status == 200
            await asyncio.sleep(1 / REQUESTS_PER_S)
