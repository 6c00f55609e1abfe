"""The admin API of a gateway, from outside: its readiness, its view of the fleet, declarations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.wire import rest

STATUS_PATH = "/admin/v1/status"
NODES_PATH = "/admin/v1/nodes"
ENGINES_PATH = "/admin/v1/engines"
MODELS_PATH = "/admin/v1/models"
ADAPTERS_PATH = "/admin/v1/adapters"
READY_PATH = "/readyz"
TIMEOUT_S = 5.0

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A gateway's word on itself."""

    ready: bool
    told: str


class Admin:
    """The admin API of one gateway. All calls raise UnavailableError when it gives no answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    async def status(self) -> rest.Status:
        """Counts by region, and what is degraded."""
        return await self._get(STATUS_PATH, rest.Status)

    async def nodes(self) -> rest.NodeList:
        """All nodes with the plan that each last saw."""
        return await self._get(NODES_PATH, rest.NodeList)

    async def engines(self) -> rest.EngineList:
        """All engines with what is resident on each."""
        return await self._get(ENGINES_PATH, rest.EngineList)

    async def ready(self) -> Ready:
        """Whether requests may be sent there."""
        status, body = await self._fetch(READY_PATH)
        return Ready(ready=status == 200, told=body.decode(errors="replace"))

    async def put_base_model(self, name: str) -> None:
        """Declare a base model; returns once that is durable."""
        await self._put(f"{MODELS_PATH}/{name}", rest.BaseModelPut())

    async def put_adapter(self, spec: AdapterSpec) -> None:
        """Declare an adapter, its revision left to the gateway; returns once that is durable."""
        wanted = rest.AdapterPut(
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
        )
        await self._put(f"{ADAPTERS_PATH}/{spec.name}", wanted)

    async def _put(self, path: str, wanted: BaseModel) -> None:
        status, body = await self._fetch(path, put=wanted.model_dump_json(exclude_none=True))
        if status not in (200, 201):
            raise self._unexpected(path, status, body)

    async def _get(self, path: str, kind: type[_M]) -> _M:
        status, body = await self._fetch(path)
        if status != 200:
            raise self._unexpected(path, status, body)
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise UnavailableError(
                f"{self._url}{path} does not answer like an Axiom gateway "
                f"({error.error_count()} fields are wrong)"
            ) from error

    def _unexpected(self, path: str, status: int, body: bytes) -> UnavailableError:
        text = body[:200].decode(errors="replace")
        return UnavailableError(f"{self._url}{path} answered {status}: {text}")

    async def _fetch(self, path: str, *, put: str | None = None) -> tuple[int, bytes]:
        method = "GET" if put is None else "PUT"
        headers = {} if put is None else {"content-type": "application/json"}
        url = self._url + path
        try:
            async with self._session.request(method, url, data=put, headers=headers) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            cause = str(error) or type(error).__name__
            raise UnavailableError(
                f"no gateway answers at {self._url} ({cause}): start one with `axiom up`, "
                "or name one with --url"
            ) from error


@asynccontextmanager
async def admin_of(url: str) -> AsyncIterator[Admin]:
    """The admin API of the gateway at `url`."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield Admin(session, url)
