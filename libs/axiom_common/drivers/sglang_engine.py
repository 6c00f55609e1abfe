"""The control side of an SGLang server over HTTP.

Where it differs from vLLM (read in its source: srt/managers/tokenizer_control_mixin.py,
srt/lora/lora_registry.py, srt/lora/mem_pool.py, srt/entrypoints/http_server.py):

- A load registers a name and reads the adapter into host RAM; the first request that uses it takes
  a slot in HBM. So a load here sends one request of one token after it.
- `--max-loaded-loras` bounds the names: a load beyond it unloads the least recently used one, which
  a later request for it loads again by itself. `/v1/models` lists the names in that order.
- An unload waits until no request uses the adapter, then frees slot and host copy.
- Both answer 200 or 400 with `success` and `error_message`, whatever was wrong.
- `/health` generates a token, which takes a second: it is asked until it answered once, from then
  on the list of models is.
"""

from __future__ import annotations

from dataclasses import replace

from axiom_common.drivers.engine_client import (
    METRICS_PATH,
    MODELS_PATH,
    EngineClient,
    expect_ok,
    message_in,
)
from axiom_common.drivers.sglang_metrics import read_sample
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels, EngineSample

LOADS_PATH = "/v1/loads"
LOAD_PATH = "/load_lora_adapter"
UNLOAD_PATH = "/unload_lora_adapter"
GENERATE_PATH = "/generate"

_NOT_FOUND = 404
_ALREADY_LOADED = "already loaded"
_UNKNOWN_NAME = "does not exist"
_NOTHING_THERE = ("Repo id must be", "Repository Not Found", "No such file", "Can't find")
"""How the libraries that SGLang reads an adapter with say that there is none."""


class SglangEngine:
    """One server at `url`. Times out after `timeout_ms`, loads and unloads after
    `load_timeout_ms`: both may wait for requests that run."""

    def __init__(
        self, url: str, *, timeout_ms: float = 2_000.0, load_timeout_ms: float = 60_000.0
    ) -> None:
        self._client = EngineClient(url, timeout_ms=timeout_ms)
        self._load_timeout_ms = load_timeout_ms
        self._absent: set[str] = set()
        self._outages = 0
        self._served = False

    async def healthy(self) -> bool:
        """Whether it serves; never raises."""
        self._heed_outages()
        if not self._served:
            self._served = await self._client.healthy()
            return self._served
        try:
            status, _ = await self._client.call("GET", MODELS_PATH)
        except UnavailableError:
            return False
        return status == 200

    async def sample(self) -> EngineSample:
        """Scrape the metrics and the loads."""
        loads = await self._get_if_there(LOADS_PATH)
        page = await self._get_if_there(METRICS_PATH)
        return read_sample(None if page is None else page.decode("utf-8", "replace"), loads)

    async def models(self) -> EngineModels:
        """List the names that the engine answers to, least recently used first."""
        return replace(await self._client.models(), by_use=True)

    async def load(self, name: EngineAdapter, path: str) -> None:
        """Register `name` and make it resident, unless it is registered for this path already."""
        body = {"lora_name": name, "lora_path": path}
        status, answer = await self._client.call("POST", LOAD_PATH, body, self._load_timeout_ms)
        if status != 200:
            message = message_in(answer)
            loaded_from = None
            if _ALREADY_LOADED in message:
                loaded_from = (await self.models()).adapters.get(name)
            if loaded_from not in ("", path):
                absent = any(words in message for words in _NOTHING_THERE)
                expect_ok(_NOT_FOUND if absent else status, answer)
        await self._use(name)

    async def unload(self, name: EngineAdapter) -> None:
        """Forget `name`. An unknown name is no error."""
        body = {"lora_name": name}
        status, answer = await self._client.call("POST", UNLOAD_PATH, body, self._load_timeout_ms)
        if status != 200 and _UNKNOWN_NAME not in message_in(answer):
            expect_ok(status, answer)

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    async def _use(self, name: EngineAdapter) -> None:
        """One request of one token, which SGLang's own counts are asked to leave out."""
        body = {
            "input_ids": [0],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
            "lora_path": name,
            "log_metrics": False,
        }
        expect_ok(*await self._client.call("POST", GENERATE_PATH, body, self._load_timeout_ms))

    async def _get_if_there(self, path: str) -> bytes | None:
        """The body; None where the server has no such route, which is asked for once a process."""
        self._heed_outages()
        if path in self._absent:
            return None
        status, body = await self._client.call("GET", path)
        if status == _NOT_FOUND:
            self._absent.add(path)
            return None
        expect_ok(status, body)
        return body

    def _heed_outages(self) -> None:
        """After a call without an answer another process may be there."""
        if self._outages != self._client.outages:
            self._outages = self._client.outages
            self._absent.clear()
            self._served = False
