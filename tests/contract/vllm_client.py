"""A plain client of vLLM's API for the contract checks: it hides nothing and repairs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from tests.contract.engine_suite import HBM_SLOTS, HOST_SLOTS

from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineResidency

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LOAD = "/v1/load_lora_adapter"
UNLOAD = "/v1/unload_lora_adapter"
RESIDENCY = "/agent/lora_residency"
DONE = "[DONE]"


@dataclass(frozen=True)
class Answer:
    """One whole response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object in it."""
        return dict(json.loads(self.text))

    @property
    def error(self) -> dict[str, Any]:
        """The error object in it, which is all there is."""
        assert list(self.body) == ["error"]
        return dict(self.body["error"])


@dataclass(frozen=True)
class Sample:
    """One line of a metrics page."""

    labels: dict[str, str]
    value: float


class VllmClient:
    """Talks to one engine; `path(n)` is where its n-th adapter lies."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, *, base: str, path: Callable[[int], str]
    ) -> None:
        self.url = url
        self.base = base
        self.path = path
        self._session = session

    async def get(self, path: str, **options: Any) -> Answer:
        """GET."""
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: object, **options: Any) -> Answer:
        """POST `body` as JSON."""
        return await self.request("POST", path, json=body, **options)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        """Any request."""
        async with self._session.request(method, self.url + path, **options) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, await response.text())

    async def complete(self, **fields: Any) -> dict[str, Any]:
        """A completion that works; greedy, so that it can be repeated."""
        answer = await self.post(COMPLETIONS, {"temperature": 0, **fields})
        assert answer.status == 200, answer.text
        return answer.body

    @asynccontextmanager
    async def stream(self, path: str, **fields: Any) -> AsyncIterator[AsyncIterator[str]]:
        """The events of a stream, as the text behind `data: `. Leaving hangs up."""
        body = {"temperature": 0, "stream": True, **fields}
        async with self._session.post(self.url + path, json=body) as response:
            assert response.status == 200, await response.text()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _events(response.content)
            response.close()

    async def events(self, path: str, **fields: Any) -> list[dict[str, Any]]:
        """All events of a stream that ends as it should."""
        async with self.stream(path, **fields) as events:
            seen = [event async for event in events]
        assert seen.pop() == DONE
        return [json.loads(event) for event in seen]

    @asynccontextmanager
    async def running(
        self, model: str, *, tokens: int = 900, seen: int = 2, prompt: str = "run"
    ) -> AsyncIterator[AsyncIterator[str]]:
        """A request that has given `seen` tokens and is still at work; hung up at the end."""
        fields = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        async with self.stream(COMPLETIONS, **fields) as events:
            for _ in range(seen):
                assert await anext(events) != DONE
            yield events

    async def load(self, name: str, number: int) -> None:
        """Load the n-th adapter as `name`."""
        answer = await self.post(LOAD, {"lora_name": name, "lora_path": self.path(number)})
        assert answer.status == 200, answer.text

    async def unload(self, *names: str) -> None:
        """Unload what is loaded of `names`."""
        for name in names:
            answer = await self.post(UNLOAD, {"lora_name": name})
            assert answer.status in (200, 404), answer.text

    async def samples(self, name: str) -> list[Sample]:
        """All samples of a metric, in the order of the page."""
        page = (await self.get("/metrics")).text
        lines = re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
        return [
            Sample(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
            for labels, value in lines
        ]

    async def value(self, name: str, **labels: str) -> float:
        """The one sample of a metric with these labels."""
        [sample] = [s for s in await self.samples(name) if labels.items() <= s.labels.items()]
        return sample.value

    async def held(self) -> EngineResidency:
        """The same as names in LRU order; a copy whose name was unloaded is `(number)`."""
        slots, host, numbers = await self.residency()
        names = {number: EngineAdapter(name) for name, number in numbers.items()}
        told = [names.get(number, EngineAdapter(f"({number})")) for number in host]
        return EngineResidency(
            # Each use touches slot and host copy alike, so both keep one order.
            hbm=tuple(n for n, number in zip(told, host, strict=True) if number in slots),
            host=tuple(told),
            hbm_slots=HBM_SLOTS,
            host_slots=HOST_SLOTS,
        )

    async def residency(self) -> tuple[list[int | None], list[int], dict[str, int]]:
        """(slots, host copies oldest first, numbers by name), where the engine tells."""
        body = (await self.get(RESIDENCY)).body
        worker = body["workers"][0]
        return worker["gpu_slots"], worker["cpu_cached"], body["names"]


def adapter_name(letter: str) -> EngineAdapter:
    """An engine-side name as Axiom gives them."""
    return EngineAdapter(f"api-{letter}~1")


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    async for line in content:
        text = line.decode().rstrip("\n")
        if text:
            assert text.startswith("data: "), text
            yield text.removeprefix("data: ")
