"""An open-loop streaming client: each request leaves at its time, whatever became of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from axiom_cli.demo.figures import Observation
from axiom_common.ports.clock import Clock
from axiom_common.wire import headers

CHAT_PATH = "/v1/chat/completions"
REQUEST_TIMEOUT_S = 60.0
_DONE = b"[DONE]"
_DATA = b"data: "


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBody:
    """A request body, ready to send at `at_ms` of the run."""

    at_ms: float
    body: bytes


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Event(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    error: dict[str, object] | None = None


_EVENT = msgspec.json.Decoder(_Event)


class StreamReader:
    """Folds the bytes of one answer; each chunk with text counts as one token."""

    def __init__(self) -> None:
        self.first_ms: float | None = None
        self.tokens = 0
        self._rest = b""
        self._told = ""
        self._finished = False

    def take(self, data: bytes, now_ms: float) -> None:
        """Bytes arrived at `now_ms`. Raises msgspec.DecodeError for an event that is no JSON."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(_DATA):
                continue
            payload = line.removeprefix(_DATA)
            if payload == _DONE:
                self._finished = True
                continue
            chunk = _EVENT.decode(payload)
            if chunk.error is not None:
                self._told = str(chunk.error.get("message") or "error event")
            elif chunk.choices and chunk.choices[0].delta.content:
                self.tokens += 1
                if self.first_ms is None:
                    self.first_ms = now_ms

    @property
    def error(self) -> str:
        """What was wrong with the stream that now is over; empty when nothing."""
        if self._told:
            return self._told
        if not self._finished:
            return "the stream ended without [DONE]"
        return "" if self.tokens else "the stream held no token"


async def send_all(
    url: str,
    bodies: Sequence[TimedBody],
    *,
    clock: Clock,
    on_end: Callable[[Observation], None],
) -> tuple[Observation, ...]:
    """Send every body at its time, counted from the call; returns when all have ended.

    Observations come in the order of the bodies. An error of one request is part of its
    observation and never stops the others.
    """
    start_ms = clock.now_ms()
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    # An open loop has no bound of its own: the bound is the number of bodies.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:

        async def one(body: TimedBody) -> Observation:
            await clock.sleep_ms(start_ms + body.at_ms - clock.now_ms())
            seen = await _send(session, body, clock=clock, start_ms=start_ms)
            on_end(seen)
            return seen

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(body), name=f"request {index}")
                for index, body in enumerate(bodies)
            ]
    return tuple(task.result() for task in tasks)


async def _send(
    session: aiohttp.ClientSession, body: TimedBody, *, clock: Clock, start_ms: float
) -> Observation:
    reader = StreamReader()
    engine = error = ""
    sent_ms = clock.now_ms()
    try:
        async with session.post(
            CHAT_PATH, data=body.body, headers={"content-type": "application/json"}
        ) as response:
            engine = response.headers.get(headers.ENGINE, "")
            if response.status != 200:
                error = f"status {response.status}: {(await response.text())[:200]}"
            else:
                async for data in response.content.iter_any():
                    reader.take(data, clock.now_ms())
                error = reader.error
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    first_ms = reader.first_ms
    return Observation(
        sent_ms=sent_ms - start_ms,
        ended_ms=clock.now_ms() - start_ms,
        ttft_ms=None if first_ms is None else first_ms - sent_ms,
        tokens=reader.tokens,
        engine=engine,
        error=error,
    )
