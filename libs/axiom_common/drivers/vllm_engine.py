"""The control side of a vLLM server over HTTP."""

from __future__ import annotations

from typing import Any, TypeVar

import aiohttp
import msgspec

from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels, EngineResidency, EngineSample

HEALTH_PATH = "/health"
METRICS_PATH = "/metrics"
MODELS_PATH = "/v1/models"
LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"
RESIDENCY_PATH = "/agent/lora_residency"

_ANSWER_BYTES_MAX = 16 << 20
_CONNECTIONS_MAX = 8
_ALREADY_LOADED = "already been loaded"
_MESSAGE_CHARS_MAX = 400
_NAME_CHARS_MAX = 256

T = TypeVar("T")


class _Model(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


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
        self._url = url.rstrip("/")
        self._timeout_ms = timeout_ms
        self._load_timeout_ms = load_timeout_ms
        self._session: aiohttp.ClientSession | None = None
        self._tells_residency = True

    async def healthy(self) -> bool:
        """Whether /health answers 200; never raises."""
        try:
            status, _ = await self._call("GET", HEALTH_PATH)
        except UnavailableError:
            return False
        return status == 200

    async def sample(self) -> EngineSample:
        """Scrape the metrics."""
        page = await self._get(METRICS_PATH)
        return read_metrics(page.decode("utf-8", "replace"))

    async def models(self) -> EngineModels:
        """List the names that the engine answers to."""
        everything = _decode(await self._get(MODELS_PATH), _ModelList).data
        # A longer name is none that anybody could ask for, and would only make reports too large.
        listed = [model for model in everything if len(model.id) <= _NAME_CHARS_MAX]
        return EngineModels(
            base=tuple(model.id for model in listed if model.parent is None),
            adapters={
                EngineAdapter(model.id): model.root or ""
                for model in listed
                if model.parent is not None
            },
        )

    async def residency(self) -> EngineResidency | None:
        """The engine's own word on residency; None where it has none.

        An engine without the route is not asked again until it was out of reach, for only a new
        process can have learned it.
        """
        if not self._tells_residency:
            return None
        status, body = await self._call("GET", RESIDENCY_PATH)
        if status in (404, 405):
            self._tells_residency = False
        if status != 200:
            return None
        told = _decode(body, _Residency)
        if not told.workers:
            return None
        return _residency(told)

    async def load(self, name: EngineAdapter, path: str) -> None:
        """Register `name` and make it resident, unless it is registered for this path already."""
        body = {"lora_name": name, "lora_path": path}
        status, answer = await self._call("POST", LOAD_PATH, body, self._load_timeout_ms)
        if status == 400 and _ALREADY_LOADED in _message(answer):
            loaded_from = (await self.models()).adapters.get(name)
            if loaded_from in ("", path):
                return
        _expect(status, answer)

    async def unload(self, name: EngineAdapter) -> None:
        """Forget `name`. An unknown name is no error."""
        status, answer = await self._call("POST", UNLOAD_PATH, {"lora_name": name})
        if status != 404:
            _expect(status, answer)

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, path: str) -> bytes:
        status, body = await self._call("GET", path)
        _expect(status, body)
        return body

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        timeout_ms: float | None = None,
    ) -> tuple[int, bytes]:
        """(status, body); UnavailableError when no whole answer came in time."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS_MAX)
            self._session = aiohttp.ClientSession(connector=connector)
        total_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with self._session.request(
                method,
                self._url + path,
                json=body,
                timeout=aiohttp.ClientTimeout(total=total_ms / 1e3),
                allow_redirects=False,
            ) as response:
                answer = await _read_bounded(response.content)
                return response.status, answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._tells_residency = True
            problem = str(error) or type(error).__name__
            raise UnavailableError(f"{method} {self._url}{path}: {problem}") from error


async def _read_bounded(content: aiohttp.StreamReader) -> bytes:
    parts = []
    size = 0
    async for part in content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"an answer above {_ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)


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


def _expect(status: int, answer: bytes) -> None:
    if status != 200:
        raise EngineCallError(_message(answer) or f"HTTP {status}", status=status)


def _message(answer: bytes) -> str:
    """The engine's error message; else the start of whatever it said."""
    try:
        body: Any = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])[:_MESSAGE_CHARS_MAX]
    return answer[:_MESSAGE_CHARS_MAX].decode("utf-8", "replace").strip()


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise EngineCallError(f"an answer that does not parse: {error}", status=200) from error
