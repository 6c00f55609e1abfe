"""HTTP to an engine's control side: bounded calls, and the answers that engines have in common."""

from __future__ import annotations

from typing import Any, TypeVar

import aiohttp
import msgspec

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels

HEALTH_PATH = "/health"
METRICS_PATH = "/metrics"
MODELS_PATH = "/v1/models"

_ANSWER_BYTES_MAX = 16 << 20
_CONNECTIONS_MAX = 8
_MESSAGE_CHARS_MAX = 400
_NAME_CHARS_MAX = 256

T = TypeVar("T")


class EngineClient:
    """One server at `url`; a call takes at most `timeout_ms` unless it says otherwise.

    `outages` counts the calls that got no answer: after one, another process may be there.
    """

    def __init__(self, url: str, *, timeout_ms: float) -> None:
        self._url = url.rstrip("/")
        self._timeout_ms = timeout_ms
        self._session: aiohttp.ClientSession | None = None
        self.outages = 0

    async def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
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
            self.outages += 1
            problem = str(error) or type(error).__name__
            raise UnavailableError(f"{method} {self._url}{path}: {problem}") from error

    async def get(self, path: str) -> bytes:
        """The body of a 200; EngineCallError for any other answer."""
        status, body = await self.call("GET", path)
        expect_ok(status, body)
        return body

    async def healthy(self) -> bool:
        """Whether /health answers 200; never raises."""
        try:
            status, _ = await self.call("GET", HEALTH_PATH)
        except UnavailableError:
            return False
        return status == 200

    async def models(self) -> EngineModels:
        """What /v1/models lists. A name that is too long is left out: nobody could ask for it, and
        it would only make reports too large."""
        everything = decoded(await self.get(MODELS_PATH), _ModelList).data
        listed = [model for model in everything if len(model.id) <= _NAME_CHARS_MAX]
        return EngineModels(
            base=tuple(model.id for model in listed if model.parent is None),
            adapters={
                EngineAdapter(model.id): model.root or ""
                for model in listed
                if model.parent is not None
            },
        )

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Model(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


def expect_ok(status: int, answer: bytes) -> None:
    """EngineCallError, with the engine's own words, unless `status` is 200."""
    if status != 200:
        raise EngineCallError(message_in(answer) or f"HTTP {status}", status=status)


def message_in(answer: bytes) -> str:
    """The engine's error message; else the start of whatever it said.

    It stands in `error.message` (OpenAI's shape), in `message`, or, of SGLang's calls for adapters,
    in `error_message`.
    """
    try:
        body: Any = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        body = None
    if isinstance(body, dict):
        error = body.get("error")
        told = error.get("message") if isinstance(error, dict) else None
        for message in (told, body.get("message"), body.get("error_message")):
            if isinstance(message, str):
                return message[:_MESSAGE_CHARS_MAX]
    return answer[:_MESSAGE_CHARS_MAX].decode("utf-8", "replace").strip()


def decoded(body: bytes, kind: type[T]) -> T:
    """The answer as `kind`; EngineCallError when it is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise EngineCallError(f"an answer that does not parse: {error}", status=200) from error


async def _read_bounded(content: aiohttp.StreamReader) -> bytes:
    parts = []
    size = 0
    async for part in content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"an answer above {_ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)
