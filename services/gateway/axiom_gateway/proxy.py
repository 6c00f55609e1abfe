"""To the engine and back: one try of one request, chunk by chunk.

Nothing reaches the client before the engine's first byte of an answer is here, so a failure up to
then can be tried elsewhere without a trace. An answer that is no stream is read whole first: it can
fail up to its last byte.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import aiohttp

from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock
from axiom_common.wire import headers
from axiom_gateway import errors
from axiom_gateway.asgi import Exchange
from axiom_gateway.rewrite import StreamRewriter, rename, rename_in_text

ANSWER_BYTES_MAX = 64 << 20
REFUSAL_BYTES_MAX = 1 << 20
LARGE_BODY_BYTES = 1 << 18
KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM closes an idle connection: a request must not meet that close."""
PASSED_ON = (headers.TRACEPARENT, headers.TRACESTATE, "user-agent")
"""Request headers that an engine gets as the client sent them."""
_EVENT_STREAM = "text/event-stream"


class Verdict(StrEnum):
    """How a try ended. Nothing was sent to the client with `failed` and `forgotten`."""

    SERVED = "served"
    REJECTED = "rejected"
    FORGOTTEN = "forgotten"
    FAILED = "failed"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """The outcome of one try. `ttft_ms` is None before a stream's first event.

    `tpot_ms` is the mean time between events of a stream; `status` what the engine answered.
    """

    verdict: Verdict
    status: int | None = None
    detail: str = ""
    ttft_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where one try goes: the engine's URL and path, its name for the model, and the client's."""

    url: str
    served_name: str
    model: str
    is_adapter: bool
    body: bytes
    request_id: str


class FirstToken(Protocol):
    """Called once, when the engine's first answer byte is here."""

    def __call__(self) -> None:
        """It is here."""
        ...


class Proxy:
    """Sends tries to engines over one pool of connections. `close` it at the end.

    `connect_ms` bounds a connect, `idle_ms` the silence between two reads of an answer.
    """

    def __init__(
        self, clock: Clock, *, connect_ms: float, idle_ms: float, connections_max: int
    ) -> None:
        self._clock = clock
        connector = aiohttp.TCPConnector(
            limit=connections_max, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=10
        )
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=connect_ms / 1e3, sock_read=idle_ms / 1e3
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"content-type": "application/json", "accept-encoding": "identity"},
            skip_auto_headers=("user-agent",),
        )

    async def close(self) -> None:
        """Let go of all connections."""
        await self._session.close()

    async def forward(self, to: Upstream, exchange: Exchange, first_token: FirstToken) -> Try:
        """One try. Cancelling it closes the connection, which makes the engine stop."""
        started_ms = self._clock.now_ms()
        passed = {headers.REQUEST_ID: to.request_id}
        for name in PASSED_ON:
            if (value := exchange.header(name)) is not None:
                passed[name] = value
        try:
            async with self._session.post(
                to.url, data=_payload(to.body), headers=passed, allow_redirects=False
            ) as response:
                if response.status != 200:
                    return await _refusal(response, to, exchange)
                if response.content_type == _EVENT_STREAM:
                    stream = _Stream(response, to, exchange, first_token)
                    return await stream.pass_on(self._clock, started_ms)
                return await _whole(response, to, exchange, first_token)
        except (aiohttp.ClientError, TimeoutError, OSError, UnavailableError, ValueError) as error:
            verdict = Verdict.FAILED if exchange.status is None else Verdict.BROKEN
            return Try(verdict=verdict, detail=f"{type(error).__name__}: {error}"[:200])


@dataclass(frozen=True, slots=True)
class _Stream:
    """An answer of server-sent events on its way through."""

    response: aiohttp.ClientResponse
    to: Upstream
    exchange: Exchange
    first_token: FirstToken

    async def pass_on(self, clock: Clock, started_ms: float) -> Try:
        rewriter = StreamRewriter(None if self.to.model == self.to.served_name else self.to.model)
        exchange = self.exchange
        read = self.response.content.readany
        first_ms = 0.0
        while chunk := await read():
            out = rewriter.feed(chunk)
            if not out:
                continue
            if exchange.status is None:
                if rewriter.error is not None and _is_engine_fault(rewriter.error):
                    return Try(verdict=Verdict.FAILED, detail="error event")
                self.first_token()
                first_ms = clock.now_ms()
                await exchange.start(200, _EVENT_STREAM.encode())
            await exchange.write(out)
        if exchange.status is None:
            return Try(verdict=Verdict.FAILED, detail="empty stream")
        await exchange.finish(rewriter.finish())
        return Try(
            verdict=Verdict.SERVED if rewriter.error is None else Verdict.BROKEN,
            status=200,
            detail="" if rewriter.error is None else "error event",
            ttft_ms=first_ms - started_ms,
            tpot_ms=(clock.now_ms() - first_ms) / max(1, rewriter.events - 1),
        )


async def _whole(
    response: aiohttp.ClientResponse, to: Upstream, exchange: Exchange, first_token: FirstToken
) -> Try:
    body = await _read(response, ANSWER_BYTES_MAX)
    first_token()
    if to.model != to.served_name:
        body = rename(body, to.model)
    await exchange.answer(200, body, response.content_type.encode())
    return Try(verdict=Verdict.SERVED, status=200)


async def _refusal(response: aiohttp.ClientResponse, to: Upstream, exchange: Exchange) -> Try:
    """An answer other than 200: the client's fault (4xx) is passed on, the engine's is not."""
    status = response.status
    body = await _read(response, REFUSAL_BYTES_MAX)
    error = errors.from_engine(status, body)
    if not 400 <= status < 500:
        return Try(verdict=Verdict.FAILED, status=status, detail=error.message[:200])
    if status == 404 and to.is_adapter and to.served_name in error.message:
        return Try(verdict=Verdict.FORGOTTEN, status=status, detail=error.message[:200])
    error.message = rename_in_text(error.message, to.served_name, to.model)
    await exchange.fail(error)
    return Try(verdict=Verdict.REJECTED, status=status)


def _payload(body: bytes) -> bytes | io.BytesIO:
    """A large body goes out in pieces, so that other requests have their turn in between."""
    return body if len(body) <= LARGE_BODY_BYTES else io.BytesIO(body)


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > bytes_max:
            raise UnavailableError(f"an answer of more than {bytes_max} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _is_engine_fault(line: bytes) -> bool:
    """Whether an error event is the engine's fault (its code is no 4xx)."""
    error = errors.from_engine(500, line.partition(b":")[2])
    return not str(error.error_code).startswith("4")
