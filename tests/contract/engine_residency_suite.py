"""What agents infer of an engine's adapters, compared with the engine's own word.

Every step loads, uses or unloads an adapter on an engine that tells its residency, replays the same
on `EngineLru`, and compares both: the same copies, in the same order, in the same memory. Copies
whose name is gone are compared as such.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.contract.engine_suite import HBM_SLOTS, HOST_SLOTS
from tests.contract.vllm_client import VllmClient

from axiom_common.model.ids import EngineAdapter
from axiom_common.state.engine_lru import EngineLru

NAMES = tuple(EngineAdapter(f"lru-{letter}~1") for letter in "abcdefg")
FOLDERS = 5
NAMELESS = EngineAdapter("(nameless)")
STEPS = 40


class Twins:
    """An engine and the replay of what happens to it."""

    def __init__(self, client: VllmClient) -> None:
        self.client = client
        self.lru = EngineLru(hbm_slots=HBM_SLOTS, host_slots=HOST_SLOTS)
        self.running: frozenset[EngineAdapter] = frozenset()
        self.story: list[str] = []

    async def load(self, name: EngineAdapter) -> None:
        """On both."""
        self.story.append(f"load {name}")
        await self.client.load(name, NAMES.index(name) % FOLDERS)
        self.lru = self.lru.loaded(name, 0.0, running=self.running)

    async def use(self, name: EngineAdapter) -> None:
        """One short request, on both."""
        self.story.append(f"use {name}")
        await self.client.complete(model=name, prompt="x", max_tokens=1)
        self.lru = self.lru.used(name, 0.0, running=self.running)

    async def unload(self, name: EngineAdapter) -> None:
        """On both."""
        self.story.append(f"unload {name}")
        await self.client.unload(name)
        self.lru = self.lru.forgotten(name)

    async def compare(self) -> None:
        """Both hold the same, in the same order; what runs has been touched by each step since."""
        told = await self.client.held()
        lru = self.lru.touched(self.running, 0.0)
        inferred = [copy.adapter if copy.named else NAMELESS for copy in lru.copies]
        in_hbm = [copy.adapter if copy.named else NAMELESS for copy in lru.hbm]
        assert in_hbm == [shown(name) for name in told.hbm], self.story
        assert inferred == [shown(name) for name in told.host], self.story


class InferredResidencySuite:
    """Inherit and give the fixture `place`: (URL, folder with adapters ad0 .. ad4)."""

    @pytest.fixture
    async def twins(self, place: tuple[str, str]) -> AsyncIterator[Twins]:
        """After loads of as many new names as there are host copies, nothing older is left."""
        url, folder = place
        async with aiohttp.ClientSession() as session:
            client = VllmClient(url, session, base="tiny", path=lambda n: f"{folder}/ad{n}")
            await client.unload(*NAMES)
            twins = Twins(client)
            for name in NAMES[:HOST_SLOTS]:
                await twins.load(name)
            yield twins
            await client.unload(*NAMES)

    @pytest.mark.parametrize("seed", range(3))
    async def test_any_sequence_of_loads_uses_and_unloads(self, twins: Twins, seed: int) -> None:
        chance = random.Random(seed)
        registered = list(NAMES[:HOST_SLOTS])
        for _ in range(STEPS):
            absent = [name for name in NAMES if name not in registered]
            kind = chance.choice(["load", "use", "use", "use", "unload"])
            if kind == "load" and absent:
                name = chance.choice(absent)
                registered.append(name)
                await twins.load(name)
            elif kind == "unload" and len(registered) > 1:
                name = registered.pop(chance.randrange(len(registered)))
                await twins.unload(name)
            else:
                await twins.use(chance.choice(registered))
            await twins.compare()

    async def test_what_runs_keeps_its_slot(self, twins: Twins) -> None:
        first, second, third = NAMES[:3]
        await twins.use(first)
        async with twins.client.running(first):
            twins.running = frozenset({first})
            for name in (second, third, second):
                await twins.use(name)
                await twins.compare()
            await twins.load(NAMES[4])
            await twins.compare()
        assert first in {copy.adapter for copy in twins.lru.hbm}


def shown(name: EngineAdapter) -> EngineAdapter:
    """A copy without a name is told as its number in brackets."""
    return NAMELESS if name.startswith("(") else name
