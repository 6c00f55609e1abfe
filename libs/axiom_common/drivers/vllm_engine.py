"""The control side of a vLLM server over HTTP."""

from __future__ import annotations

from axiom_common.drivers.engine_client import (
    METRICS_PATH,
    EngineClient,
    expect_ok,
    message_in,
)
from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels, EngineSample

LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"

_ALREADY_LOADED = "already been loaded"


class VllmEngine:
    """One server at `url`. Times out after `timeout_ms`, loads after `load_timeout_ms`."""

    def __init__(
        self, url: str, *, timeout_ms: float = 2_000.0, load_timeout_ms: float = 60_000.0
    ) -> None:
        self._client = EngineClient(url, timeout_ms=timeout_ms)
        self._load_timeout_ms = load_timeout_ms

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
