"""Asking a gateway's admin API: requests with their bounds, lists page by page, errors as told.

What there is to ask is in `admin`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
from pydantic import BaseModel, ValidationError

from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    UnavailableError,
)
from axiom_common.runtime.desired_store import Outcome
from axiom_common.wire import headers, rest

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 20
"""A page of a thousand engines has some MiB."""
ITEMS_MAX = 1_000_000
PAGES_MAX = 10_000
RETRY_AFTER_S_MAX = 5.0
NO_HEADERS: Mapping[str, str] = {}
WATCH_SILENCE_S = 25.0
"""A gateway says something each 10 s."""

_CLIENT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""How the client says that there was no answer, or that the URL is none."""
_M = TypeVar("_M", bound=BaseModel)


class NoAnswerError(UnavailableError):
    """Nobody answers at the URL."""


class BusyError(UnavailableError):
    """The gateway can't do it now, and says after how long to ask again."""

    def __init__(self, detail: str, *, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class UnauthenticatedError(AxiomError):
    """The gateway wants a key, or another one."""

    code = "unauthenticated"


class ForbiddenError(AxiomError):
    """The key does not grant this."""

    code = "forbidden"


_ERRORS: dict[int, type[AxiomError]] = {
    400: InvalidInputError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionError,
    413: InvalidInputError,
    422: InvalidInputError,
    428: PreconditionRequiredError,
}
"""What a status of the admin API means here; UnavailableError for all others."""

_ADVICE_WITHOUT_KEY = (
    "name the file of a key with --key-file or AXIOM_KEY_FILE, or keep both in a context: "
    "`axiom contexts set NAME --url URL --key-file FILE`"
)
_ADVICE_WITH_KEY = (
    "the key was withdrawn, or is another gateway's: an admin sees all with `axiom keys list`, and "
    "makes one with `axiom keys create`"
)
_ADVICE_ON_ROLE = "an admin gives a key another role with `axiom keys set-role`"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAsked:
    """Which items of a list, in which order; see the API's `filter` and `sort`. `on_page` hears how
    many there are by now."""

    filters: tuple[str, ...] = ()
    sort: str | None = None
    on_page: Callable[[int], None] = lambda _count: None

    def told(self, on_page: Callable[[int], None]) -> ListAsked:
        """The same, with somebody who hears of each page."""
        return replace(self, on_page=on_page)


ALL = ListAsked()


class AdminClient:
    """One gateway. All calls raise NoAnswerError when it gives no answer, and the error that it
    told, with its code, when it refuses. The session holds the key, if there is one (`keyed`)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, keyed: bool) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._keyed = keyed

    async def get(self, path: str, kind: type[_M]) -> _M:
        """One thing."""
        return self.shape(path, (await self.ask("GET", path)).body, kind)

    async def all(self, path: str, kind: type[_M], asked: ListAsked = ALL) -> tuple[_M, ...]:
        """Every item of a list, page by page; InvalidInputError where there are too many."""
        found: list[_M] = []
        given = [("limit", str(rest.PAGE_MAX)), *(("filter", one) for one in asked.filters)]
        given += [("sort", asked.sort)] if asked.sort is not None else []
        cursor: list[tuple[str, str]] = []
        for _ in range(PAGES_MAX):
            query = urlencode([*given, *cursor])
            page = await self.get(f"{path}?{query}", rest.Page[kind])  # type: ignore[valid-type]
            found.extend(page.items)
            asked.on_page(len(found))
            if page.next is None:
                return tuple(found)
            if len(found) >= ITEMS_MAX:
                break
            cursor = [("cursor", page.next)]
        raise InvalidInputError(f"{path} has more than {len(found)} items: choose with --filter")

    async def ask(
        self,
        method: str,
        path: str,
        wanted: BaseModel | None = None,
        more: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """A good answer. `more` are headers."""
        data = None if wanted is None else wanted.model_dump_json(exclude_none=True)
        sent = {} if wanted is None else {"content-type": "application/json"}
        sent |= more
        url = self._url + path
        try:
            # The key is for this gateway: nobody sends it elsewhere by a redirect.
            async with self._session.request(
                method, url, data=data, headers=sent, allow_redirects=False
            ) as response:
                answer = Answer(response.status, response.headers, await _bounded(response))
        except _CLIENT_ERRORS as error:
            raise self.no_answer(error) from error
        self._refuse(path, answer)
        return answer

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The parts of an answer without end."""
        timeout = aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=WATCH_SILENCE_S)
        try:
            response = await self._session.get(
                self._url + path, timeout=timeout, allow_redirects=False
            )
        except _CLIENT_ERRORS as error:
            raise self.no_answer(error) from error
        async with response:
            if response.status != 200:
                answer = Answer(response.status, response.headers, await _bounded(response))
                self._refuse(path, answer)
                raise self.stranger(path, f"status {response.status}")
            yield self._parts(response)

    async def _parts(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except _CLIENT_ERRORS as error:
            raise self.no_answer(error) from error

    def shape(self, path: str, body: bytes, kind: type[_M]) -> _M:
        """What a body says."""
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise self.stranger(path, f"{error.error_count()} fields are wrong") from error

    def outcome(self, path: str, answer: Answer) -> Outcome:
        """What a write did."""
        try:
            return Outcome(answer.headers.get(headers.OUTCOME, ""))
        except ValueError as error:
            raise self.stranger(path, f"no {headers.OUTCOME}") from error

    def stranger(self, path: str, why: str) -> UnavailableError:
        """The error of an answer that no gateway gives."""
        return UnavailableError(f"{self._url}{path} does not answer like an Axiom gateway ({why})")

    def no_answer(self, error: Exception) -> NoAnswerError:
        """The error of a request without an answer."""
        cause = str(error) or type(error).__name__
        return NoAnswerError(
            f"no gateway answers at {self._url} ({cause}): start one with `axiom up`, "
            "or name one with --url or --context"
        )

    def _refuse(self, path: str, answer: Answer) -> None:
        """Raise the error behind a problem document, or behind whatever else came."""
        if answer.status // 100 == 2:
            return
        try:
            problem = rest.Problem.model_validate_json(answer.body)
        except ValidationError as cause:
            text = answer.body[:200].decode(errors="replace")
            detail = f"{self._url}{path} answered {answer.status}: {text}"
            raise UnavailableError(detail) from cause
        error = self._error(problem.detail, answer)
        error.code = problem.code
        if isinstance(error, InvalidInputError):
            error.path = problem.path
        raise error

    def _error(self, detail: str, answer: Answer) -> AxiomError:
        kind = _ERRORS.get(answer.status, UnavailableError)
        if answer.status in (429, 503):
            return BusyError(detail, retry_after_s=_retry_after_s(answer))
        if kind is UnauthenticatedError:
            advice = _ADVICE_WITH_KEY if self._keyed else _ADVICE_WITHOUT_KEY
            return kind(f"{self._url}: {detail}: {advice}")
        if kind is ForbiddenError:
            return kind(f"{self._url}: {detail}: {_ADVICE_ON_ROLE}")
        return kind(detail)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise UnavailableError(f"{response.url} answered more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _retry_after_s(answer: Answer) -> float:
    told = answer.headers.get(headers.RETRY_AFTER, "")
    return min(float(told) if told.isdecimal() else 1.0, RETRY_AFTER_S_MAX)
