"""To the engine and back: one try of one request, chunk by chunk.

Nothing reaches the client before the engine's first byte of an answer is here, so a failure up to
then can be tried elsewhere without a trace. An answer that is no stream is read whole first: it can
fail up to its last byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.outcome import Usage
from axiom_common.ports.clock import Clock
from axiom_common.wire import headers
from axiom_gateway import errors
from axiom_gateway.asgi import JSON, Exchange
from axiom_gateway.engine_http import EngineConnection, EngineConnections, WithheldError
from axiom_gateway.rewrite import Renaming, StreamRewriter
from axiom_gateway.usage import UNTOLD, usage_in

ANSWER_BYTES_MAX = 64 << 20
ANSWER_KEPT_MAX = 16 << 10
"""One that is no longer is kept for a moment, for its usage to be read with that of others."""
REFUSAL_BYTES_MAX = 1 << 20
PASSED_ON = (b"user-agent",)
"""Request headers that an engine gets as the client sent them."""
TRACE_HEADERS = (headers.TRACEPARENT.encode(), headers.TRACESTATE.encode())
"""These as well where this process traces nothing itself."""
SGLANG_NOT_LOADED = ("has never been loaded", "requested LoRA adapters are not loaded")
_EVENT_STREAM = b"text/event-stream"


class Verdict(StrEnum):
    """How a try ended. Nothing was sent to the client with `failed` and `forgotten`, and nothing to
    the engine either with `withheld`."""

    SERVED = "served"
    REJECTED = "rejected"
    FORGOTTEN = "forgotten"
    FAILED = "failed"
    BROKEN = "broken"
    WITHHELD = "withheld"


class Try(NamedTuple):
    """The outcome of one try. `ttft_ms` is None before a stream's first event.

    `tpot_ms` is the mean time between events of a stream; `status` what the engine answered.
    `answer` tells the usage where that was not read yet.
    """

    verdict: Verdict
    status: int | None = None
    detail: str = ""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    usage: Usage = UNTOLD
    answer: bytes = b""


class Upstream(NamedTuple):
    """One try: the engine's URL and path, its name for the model, the client's, and the body.

    `adapter` is BASE where the model is a base model. `may_send` tells whether the request may go
    to the engine still.
    """

    url: str
    path: str
    served_name: str
    model: str
    adapter: EngineAdapter
    body: bytes
    request_id: str
    sent_ms: float
    may_send: Callable[[], bool]
    traced: bytes | None = None
    """Header lines of this process's own trace; None: those of the client are passed on."""

    @property
    def renaming(self) -> Renaming:
        """How its answer becomes the client's."""
        return Renaming(self.served_name, self.model, adapter=self.adapter)


class FirstToken(Protocol):
    """Called once, when the engine's first answer byte is here."""

    def __call__(self) -> None:
        """It is here."""
        ...


class Proxy:
    """Sends tries to engines. `close` it at the end.

    `connect_ms` bounds a connect, `idle_ms` each silence within an answer.
    """

    def __init__(self, clock: Clock, *, connect_ms: float, idle_ms: float) -> None:
        self._clock = clock
        self._engines = EngineConnections(connect_s=connect_ms / 1e3, idle_s=idle_ms / 1e3)

    def close(self) -> None:
        """Let go of all connections that no try uses."""
        self._engines.close()

    async def forward(self, to: Upstream, exchange: Exchange, first_token: FirstToken) -> Try:
        """One try. Cancelling it closes the connection, which makes the engine stop."""
        connection: EngineConnection | None = None
        try:
            connection = await self._engines.post(
                to.url, to.path, _passed(to, exchange), to.body, to.may_send
            )
            await connection.read_head()
            kind = _content_type(connection)
            if connection.status != 200:
                return await _refusal(connection, to, exchange)
            if kind == _EVENT_STREAM:
                stream = _Stream(connection, to, exchange, first_token, self._clock)
                return await stream.pass_on()
            return await _whole(connection, kind, to, exchange, first_token)
        except WithheldError:
            return Try(verdict=Verdict.WITHHELD)
        except UnavailableError as error:
            verdict = Verdict.FAILED if exchange.status is None else Verdict.BROKEN
            return Try(verdict=verdict, detail=str(error)[:200])
        finally:
            if connection is not None:
                self._engines.release(connection)


def _passed(to: Upstream, exchange: Exchange) -> bytes:
    """The request headers that the engine gets, as lines."""
    lines = [b"x-request-id: ", to.request_id.encode(), b"\r\n", to.traced or b""]
    for name in PASSED_ON if to.traced is not None else (*TRACE_HEADERS, *PASSED_ON):
        if (value := exchange.raw_header(name)) is not None:
            lines += (name, b": ", value, b"\r\n")
    return b"".join(lines)


def _content_type(connection: EngineConnection) -> bytes:
    return connection.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class _Stream:
    """An answer of server-sent events on its way through."""

    connection: EngineConnection
    to: Upstream
    exchange: Exchange
    first_token: FirstToken
    clock: Clock

    async def pass_on(self) -> Try:
        rewriter = StreamRewriter(self.to.renaming)
        exchange, clock = self.exchange, self.clock
        first_ms = 0.0
        while chunk := await self.connection.read():
            out = rewriter.feed(chunk)
            if not out:
                continue
            if exchange.status is None:
                if rewriter.error is not None and rewriter.error.status >= 500:
                    return Try(verdict=Verdict.FAILED, detail=rewriter.error.message)
                self.first_token()
                first_ms = clock.now_ms()
                await exchange.start(200, _EVENT_STREAM)
            await exchange.write(out)
        if exchange.status is None:
            return Try(verdict=Verdict.FAILED, detail="empty stream")
        await exchange.finish(rewriter.finish())
        usage, answer = _counted(rewriter.last)
        return Try(
            verdict=Verdict.SERVED if rewriter.error is None else Verdict.BROKEN,
            status=200,
            detail="" if rewriter.error is None else "error event",
            ttft_ms=first_ms - self.to.sent_ms,
            tpot_ms=(clock.now_ms() - first_ms) / max(1, rewriter.events - 1),
            usage=usage,
            answer=answer,
        )


async def _whole(
    connection: EngineConnection,
    kind: bytes,
    to: Upstream,
    exchange: Exchange,
    first_token: FirstToken,
) -> Try:
    body = await _read(connection, ANSWER_BYTES_MAX)
    if kind.startswith(b"text/") or (kind == JSON and not body.lstrip().startswith(b"{")):
        return Try(verdict=Verdict.FAILED, status=200, detail="no answer in a 200")
    first_token()
    usage, answer = UNTOLD, b""
    if kind == JSON:
        usage, answer = _counted(body)
        body = to.renaming.document(body)
    await exchange.answer(200, body, kind)
    return Try(verdict=Verdict.SERVED, status=200, usage=usage, answer=answer)


def _counted(answer: bytes) -> tuple[Usage, bytes]:
    """The usage that an answer tells, or the answer, to read it later together with others'."""
    return (UNTOLD, answer) if len(answer) <= ANSWER_KEPT_MAX else (usage_in(answer), b"")


async def _refusal(connection: EngineConnection, to: Upstream, exchange: Exchange) -> Try:
    """An answer other than 200: the client's fault (4xx) is passed on, the engine's is not."""
    status = connection.status
    body = await _read(connection, REFUSAL_BYTES_MAX)
    error = errors.from_engine(status, body)
    if not 400 <= status < 500:
        return Try(verdict=Verdict.FAILED, status=status, detail=error.message[:200])
    if _lacks_model(to, status, error.message):
        # The name is this gateway's choice: that the engine lacks it is not the client's fault.
        verdict = Verdict.FAILED if to.adapter == BASE else Verdict.FORGOTTEN
        return Try(verdict=verdict, status=status, detail=error.message[:200])
    error.message = to.renaming.text(error.message)
    await exchange.fail(error)
    return Try(verdict=Verdict.REJECTED, status=status)


def _lacks_model(to: Upstream, status: int, message: str) -> bool:
    """Whether an engine says that it has no such model: vLLM by a 404, SGLang of an adapter by a
    400 in words of its own, with the names of all that others have loaded there."""
    if status == 400 and to.adapter != BASE:
        return any(words in message for words in SGLANG_NOT_LOADED)
    return status == 404 and to.served_name in message


async def _read(connection: EngineConnection, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await connection.read():
        size += len(part)
        if size > bytes_max:
            raise UnavailableError(f"an answer of more than {bytes_max} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
