"""The admin API of a gateway, from outside: its readiness, its view of the fleet, declarations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, ValidationError

from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from axiom_common.model.adapter import AdapterSpec
from axiom_common.wire import rest

STATUS_PATH = "/admin/v1/status"
NODES_PATH = "/admin/v1/nodes"
ENGINES_PATH = "/admin/v1/engines"
MODELS_PATH = "/admin/v1/models"
ADAPTERS_PATH = "/admin/v1/adapters"
READY_PATH = "/readyz"
TIMEOUT_S = 5.0

_ERRORS: dict[int, type[AxiomError]] = {
    400: InvalidInputError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    413: InvalidInputError,
}
"""What a status of the admin API means here; UnavailableError for all others."""

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A gateway's word on itself."""

    ready: bool
    told: str


class Admin:
    """The admin API of one gateway. All calls raise UnavailableError when it gives no
    answer, and the error that it told when it refuses."""

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
        status, body = await self._fetch("GET", READY_PATH)
        return Ready(ready=status == 200, told=body.decode(errors="replace"))

    async def adapters(self) -> tuple[rest.Adapter, ...]:
        """All declared adapters, by name."""
        found: list[rest.Adapter] = []
        after = ""
        while True:
            page = await self._get(f"{ADAPTERS_PATH}?after={quote(after)}", rest.AdapterList)
            found.extend(page.adapters)
            if page.next is None:
                return tuple(found)
            after = page.next

    async def adapter(self, name: str) -> rest.Adapter:
        """One declared adapter; NotFoundError when there is none of that name."""
        return await self._get(f"{ADAPTERS_PATH}/{quote(name)}", rest.Adapter)

    async def delete_adapter(self, name: str) -> None:
        """Withdraw an adapter; NotFoundError when there is none of that name."""
        await self._ask("DELETE", f"{ADAPTERS_PATH}/{quote(name)}")

    async def put_base_model(self, name: str) -> None:
        """Declare a base model; returns once that is durable."""
        await self._ask("PUT", f"{MODELS_PATH}/{quote(name)}", rest.BaseModelPut())

    async def put_adapter(self, spec: AdapterSpec) -> None:
        """Declare an adapter, its revision left to the gateway; returns once that is durable."""
        wanted = rest.AdapterPut(
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
        )
        await self._ask("PUT", f"{ADAPTERS_PATH}/{quote(spec.name)}", wanted)

    async def _get(self, path: str, kind: type[_M]) -> _M:
        body = await self._ask("GET", path)
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise UnavailableError(
                f"{self._url}{path} does not answer like an Axiom gateway "
                f"({error.error_count()} fields are wrong)"
            ) from error

    async def _ask(self, method: str, path: str, wanted: BaseModel | None = None) -> bytes:
        """The body of a good answer; the error that the gateway told otherwise."""
        status, body = await self._fetch(method, path, wanted)
        if status // 100 != 2:
            raise _told_error(f"{self._url}{path}", status, body)
        return body

    async def _fetch(
        self, method: str, path: str, wanted: BaseModel | None = None
    ) -> tuple[int, bytes]:
        data = None if wanted is None else wanted.model_dump_json(exclude_none=True)
        sent = {} if wanted is None else {"content-type": "application/json"}
        url = self._url + path
        try:
            async with self._session.request(method, url, data=data, headers=sent) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            cause = str(error) or type(error).__name__
            raise UnavailableError(
                f"no gateway answers at {self._url} ({cause}): start one with `axiom up`, "
                "or name one with --url"
            ) from error


def _told_error(url: str, status: int, body: bytes) -> AxiomError:
    """The error behind a problem document, or behind whatever else came."""
    try:
        detail = rest.Problem.model_validate_json(body).detail
    except ValidationError:
        text = body[:200].decode(errors="replace")
        return UnavailableError(f"{url} answered {status}: {text}")
    return _ERRORS.get(status, UnavailableError)(detail)


@asynccontextmanager
async def admin_of(url: str) -> AsyncIterator[Admin]:
    """The admin API of the gateway at `url`."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield Admin(session, url)
