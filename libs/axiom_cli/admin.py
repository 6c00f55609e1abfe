"""The admin API of a gateway, from outside: its readiness, its view of the fleet, declarations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, ValidationError

from axiom_cli.event_stream import EventStream
from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    UnavailableError,
)
from axiom_common.model.adapter import AdapterSpec
from axiom_common.runtime.desired_store import Outcome
from axiom_common.wire import headers, rest, views
from axiom_common.wire.decisions import ExplainPost, Explanation, WhyView

STATUS_PATH = "/admin/v1/status"
NODES_PATH = "/admin/v1/nodes"
ENGINES_PATH = "/admin/v1/engines"
MODELS_PATH = "/admin/v1/models"
ADAPTERS_PATH = "/admin/v1/adapters"
WATCH_PATH = "/admin/v1/watch"
DECISIONS_PATH = "/admin/v1/decisions"
EXPLAIN_PATH = "/admin/v1/explain"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 20
"""A list of all engines of a large region has some MiB."""
ITEMS_MAX = 1_000_000
RETRY_AFTER_S_MAX = 5.0
NO_HEADERS: Mapping[str, str] = {}
WATCH_SILENCE_S = 25.0
"""A gateway says something each 10 s."""

_ERRORS: dict[int, type[AxiomError]] = {
    400: InvalidInputError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionError,
    428: PreconditionRequiredError,
    413: InvalidInputError,
}
"""What a status of the admin API means here; UnavailableError for all others."""

_CLIENT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""How the client says that there was no answer, or that the URL is none."""
_EVENTS: dict[str, type[views.NodeView | views.NodeGone]] = {
    "node": views.NodeView,
    "gone": views.NodeGone,
}
_M = TypeVar("_M", bound=BaseModel)


class NoAnswerError(UnavailableError):
    """Nobody answers at the URL."""


class BusyError(UnavailableError):
    """The gateway can't do it now, and says after how long to ask again."""

    def __init__(self, detail: str, *, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway to ask, and the secret of the key to ask it with."""

    url: str
    secret: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request to it carries."""
        return {} if self.secret is None else {headers.AUTHORIZATION: f"Bearer {self.secret}"}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Admin:
    """The admin API of one gateway. All calls raise NoAnswerError when it gives no answer, and the
    error that it told when it refuses."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    async def status(self) -> rest.Status:
        """Counts by region, and what is degraded."""
        return await self._get(STATUS_PATH, rest.Status)

    async def nodes(self) -> tuple[views.NodeView, ...]:
        """All nodes, by name, with the plan that each last saw."""
        return await self._all(NODES_PATH, views.NodeView)

    async def node(self, name: str) -> views.NodeView:
        """One node; NotFoundError when the gateway knows none of that name."""
        return await self._get(f"{NODES_PATH}/{quote(name, safe='')}", views.NodeView)

    @asynccontextmanager
    async def watching(
        self, nodes: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[views.NodeView | views.NodeGone]]:
        """These nodes (none: all) as they are, then as they change, until the gateway ends it."""
        named = "&".join(f"node={quote(node, safe='')}" for node in nodes)
        path = f"{WATCH_PATH}?{named}" if named else WATCH_PATH
        timeout = aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=WATCH_SILENCE_S)
        try:
            response = await self._session.get(self._url + path, timeout=timeout)
        except _CLIENT_ERRORS as error:
            raise self._no_answer(error) from error
        async with response:
            if response.status != 200:
                answer = _Answer(response.status, response.headers, await _bounded(response))
                raise _told_error(self._url + path, answer)
            yield self._events(path, response)

    async def _events(
        self, path: str, response: aiohttp.ClientResponse
    ) -> AsyncIterator[views.NodeView | views.NodeGone]:
        events = EventStream()
        try:
            async for chunk in response.content.iter_any():
                for kind, data in events.feed(chunk):
                    if kind in _EVENTS:
                        yield self._shape(path, data, _EVENTS[kind])
        except _CLIENT_ERRORS as error:
            raise self._no_answer(error) from error

    async def engines(self) -> tuple[views.EngineView, ...]:
        """All engines, by id, with what is resident on each."""
        return await self._all(ENGINES_PATH, views.EngineView)

    async def why(self, decision_id: str) -> WhyView:
        """What is kept of one request; NotFoundError when this gateway keeps nothing of it."""
        return await self._get(f"{DECISIONS_PATH}/{quote(decision_id, safe='')}", WhyView)

    async def explain(self, asked: ExplainPost) -> Explanation:
        """Where a request would go now."""
        answer = await self._ask("POST", EXPLAIN_PATH, asked)
        return self._parsed(EXPLAIN_PATH, answer, Explanation)

    async def models(self) -> tuple[rest.DeclaredModel, ...]:
        """All declared base models, by name."""
        return await self._all(MODELS_PATH, rest.DeclaredModel)

    async def adapters(self) -> tuple[rest.Adapter, ...]:
        """All declared adapters, by name."""
        return await self._all(ADAPTERS_PATH, rest.Adapter)

    async def adapter(self, name: str) -> rest.Adapter:
        """One declared adapter; NotFoundError when there is none of that name."""
        return await self._get(f"{ADAPTERS_PATH}/{quote(name)}", rest.Adapter)

    async def delete_adapter(self, name: str) -> None:
        """Withdraw an adapter; NotFoundError when there is none of that name."""
        await self._ask("DELETE", f"{ADAPTERS_PATH}/{quote(name)}")

    async def put_base_model(self, name: str) -> Outcome:
        """Declare a base model; returns once that is durable."""
        path = f"{MODELS_PATH}/{quote(name)}"
        return self._outcome(path, await self._ask("PUT", path, rest.BaseModelPut()))

    async def put_adapter(
        self, spec: AdapterSpec, *, version: int | None = None
    ) -> tuple[Outcome, rest.Adapter]:
        """Declare an adapter, its revision left to the gateway; returns once that is durable.
        One that is there is changed only at the `version` that was seen: PreconditionError when it
        is at another, PreconditionRequiredError for None unless it is the same already."""
        path = f"{ADAPTERS_PATH}/{quote(spec.name)}"
        wanted = rest.AdapterPut(
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
        )
        seen = {} if version is None else {headers.IF_MATCH: f'"{version}"'}
        answer = await self._ask("PUT", path, wanted, seen)
        return self._outcome(path, answer), self._parsed(path, answer, rest.Adapter)

    async def _all(self, path: str, kind: type[_M]) -> tuple[_M, ...]:
        """Every item of a list, page by page."""
        found: list[_M] = []
        asked = f"{path}?limit={rest.PAGE_MAX}"
        cursor = ""
        while True:
            page = await self._get(asked + cursor, rest.Page[kind])  # type: ignore[valid-type]
            found.extend(page.items)
            if page.next is None or len(found) >= ITEMS_MAX:
                return tuple(found)
            cursor = f"&cursor={quote(page.next)}"

    async def _get(self, path: str, kind: type[_M]) -> _M:
        return self._parsed(path, await self._ask("GET", path), kind)

    def _parsed(self, path: str, answer: _Answer, kind: type[_M]) -> _M:
        return self._shape(path, answer.body, kind)

    def _shape(self, path: str, body: bytes, kind: type[_M]) -> _M:
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise self._stranger(path, f"{error.error_count()} fields are wrong") from error

    def _outcome(self, path: str, answer: _Answer) -> Outcome:
        try:
            return Outcome(answer.headers.get(headers.OUTCOME, ""))
        except ValueError as error:
            raise self._stranger(path, f"no {headers.OUTCOME}") from error

    def _stranger(self, path: str, why: str) -> UnavailableError:
        return UnavailableError(f"{self._url}{path} does not answer like an Axiom gateway ({why})")

    async def _ask(
        self,
        method: str,
        path: str,
        wanted: BaseModel | None = None,
        more: Mapping[str, str] = NO_HEADERS,
    ) -> _Answer:
        """A good answer; the error that the gateway told otherwise. `more` are headers."""
        answer = await self._fetch(method, path, wanted, more)
        if answer.status // 100 != 2:
            raise _told_error(f"{self._url}{path}", answer)
        return answer

    async def _fetch(
        self, method: str, path: str, wanted: BaseModel | None, more: Mapping[str, str]
    ) -> _Answer:
        data = None if wanted is None else wanted.model_dump_json(exclude_none=True)
        sent = {} if wanted is None else {"content-type": "application/json"}
        sent |= more
        url = self._url + path
        try:
            async with self._session.request(method, url, data=data, headers=sent) as response:
                body = await _bounded(response)
                return _Answer(response.status, response.headers, body)
        except _CLIENT_ERRORS as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> NoAnswerError:
        cause = str(error) or type(error).__name__
        return NoAnswerError(
            f"no gateway answers at {self._url} ({cause}): start one with `axiom up`, "
            "or name one with --url"
        )


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise UnavailableError(f"{response.url} answered more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _told_error(url: str, answer: _Answer) -> AxiomError:
    """The error behind a problem document, or behind whatever else came."""
    kind = _ERRORS.get(answer.status, UnavailableError)
    try:
        detail = rest.Problem.model_validate_json(answer.body).detail
    except ValidationError:
        text = answer.body[:200].decode(errors="replace")
        kind, detail = UnavailableError, f"{url} answered {answer.status}: {text}"
    if answer.status == 503:
        return BusyError(detail, retry_after_s=_retry_after_s(answer))
    return kind(detail)


def _retry_after_s(answer: _Answer) -> float:
    told = answer.headers.get(headers.RETRY_AFTER, "")
    return min(float(told) if told.isdecimal() else 1.0, RETRY_AFTER_S_MAX)


@asynccontextmanager
async def admin_of(target: Target) -> AsyncIterator[Admin]:
    """The admin API of a gateway."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=target.headers) as session:
        yield Admin(session, target.url)
