"""The control side of a vLLM server over HTTP."""

from __future__ import annotations

import msgspec

from axiom_common.drivers.engine_client import (
    METRICS_PATH,
    EngineClient,
    decoded,
    expect_ok,
    message_in,
)
from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels, EngineResidency, EngineSample

LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"
RESIDENCY_PATH = "/agent/lora_residency"

_ALREADY_LOADED = "already been loaded"


class _Worker(msgspec.Struct):
    """`gpu_slots`: adapter numbers by slot; `cpu_cached`: of host copies, oldest first."""

    gpu_slots: list[int | None]
    cpu_cached: list[int]
    max_loras: int
    max_cpu_loras: int


class _Residency(msgspec.Struct):
    names: dict[str, int]
    workers: list[_Worker]


class VllmEngine:
    """One server at `url`. Times out after `timeout_ms`, loads after `load_timeout_ms`."""

    def __init__(
        self, url: str, *, timeout_ms: float = 2_000.0, load_timeout_ms: float = 60_000.0
    ) -> None:
        self._client = EngineClient(url, timeout_ms=timeout_ms)
        self._load_timeout_ms = load_timeout_ms
        self._silent_since: int | None = None

    async def healthy(self) -> bool:
        """Whether /health answers 200; never raises."""
        return await self._client.healthy()

    async def sample(self) -> EngineSample:
        """Scrape the metrics."""
        page = await self._client.get(METRICS_PATH)
        return read_metrics(page.decode("utf-8", "replace"))

    async def models(self) -> EngineModels:
        """List the names that the engine answers to."""
        return await self._client.models()

    async def residency(self) -> EngineResidency | None:
        """The engine's own word on residency; None where it has none.

        An engine without the route is not asked again until it was out of reach, for only a new
        process can have learned it.
        """
        if self._silent_since == self._client.outages:
            return None
        status, body = await self._client.call("GET", RESIDENCY_PATH)
        self._silent_since = self._client.outages if status in (404, 405) else None
        if status != 200:
            return None
        told = decoded(body, _Residency)
        if not told.workers:
            return None
        return _residency(told)

    async def load(self, name: EngineAdapter, path: str) -> None:
        """Register `name` and make it resident, unless it is registered for this path already."""
        body = {"lora_name": name, "lora_path": path}
        status, answer = await self._client.call("POST", LOAD_PATH, body, self._load_timeout_ms)
        if status == 400 and _ALREADY_LOADED in message_in(answer):
            loaded_from = (await self.models()).adapters.get(name)
            if loaded_from in ("", path):
                return
        expect_ok(status, answer)

    async def unload(self, name: EngineAdapter) -> None:
        """Forget `name`. An unknown name is no error."""
        status, answer = await self._client.call("POST", UNLOAD_PATH, {"lora_name": name})
        if status != 404:
            expect_ok(status, answer)

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


def _residency(told: _Residency) -> EngineResidency:
    """Names in LRU order. A copy whose name was unloaded still takes room: it is `(number)`."""
    worker = told.workers[0]
    names = {number: EngineAdapter(name) for name, number in told.names.items()}
    in_hbm = {number for number in worker.gpu_slots if number is not None}

    def named(numbers: list[int]) -> tuple[EngineAdapter, ...]:
        return tuple(names.get(number, EngineAdapter(f"({number})")) for number in numbers)

    return EngineResidency(
        # Each use touches slot and host copy alike, so both keep one order.
        hbm=named([number for number in worker.cpu_cached if number in in_hbm]),
        host=named(worker.cpu_cached),
        hbm_slots=worker.max_loras,
        host_slots=worker.max_cpu_loras,
    )
