"""Clients that send what nobody should, and leave when they should not: what it costs the gateway.

Whatever they do, in the end nothing is booked, nothing is under way, and no engine works for them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.eventually import eventually
from tests.gateway_region import (
    BASE_MODEL,
    COMPLETIONS,
    NODE,
    REGION,
    Gateway,
    Region,
    region_of,
    served,
)
from tests.scripted_engine import STREAM_HEAD, ScriptedEngine, Write, announce, chunk

from axiom_common.runtime.http_protocol import HEAD_BYTES_MAX
from axiom_common.testing.bus import FakeBus
from axiom_common.wire import subjects
from axiom_gateway import handlers

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY_BYTES_MAX = 1 << 20
GOOD: dict[str, Any] = {"model": "bot", "prompt": "hi", "max_tokens": 1}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=2) as region:
        await region.declare("bot")
        yield region


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region, body_bytes_max=BODY_BYTES_MAX) as gateway:
        await gateway.knows("bot")
        yield gateway


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _nothing_is_left(region: Region, gateway: Gateway) -> AsyncIterator[None]:
    yield
    await nothing_is_left(region, gateway)
    assert (await gateway.ask("bot")).status == 200


async def nothing_is_left(region: Region, gateway: Gateway) -> None:
    v1 = gateway.app._v1
    await eventually(lambda: not (gateway.booked or v1.under_way or v1._buffered_bytes))
    await eventually(lambda: not any(engine.running for engine in region.engines))
    assert gateway.app.hold.count == 0


class Connection:
    """A connection of a client that writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answers(self) -> list[tuple[int, bytes]]:
        """Status and body of each answer, until the gateway closes."""
        received = await asyncio.wait_for(self._reader.read(-1), 10)
        found = []
        while received:
            head, _, received = received.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            length = int(fields.get(b"content-length", b"0"))
            found.append((int(head[9:12]), received[:length]))
            received = received[length:]
        return found

    def leave(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Connection]:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    connection = Connection(*await asyncio.open_connection(host, int(port)))
    try:
        yield connection
    finally:
        connection.leave()


def request(body: bytes, *lines: str, method: str = "POST", path: str = COMPLETIONS) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


VALUES = {
    "null": "null",
    "true": "true",
    "number": "5",
    "huge": "9" * 400,
    "infinite": "1e999",
    "text": '"x"',
    "empty": '""',
    "list": "[]",
    "object": "{}",
    "deep": "[" * 3000 + "]" * 3000,
    "surrogate": '"\\ud800"',
    "nul": '"a\\u0000b"',
}
FIELDS = ["model", "prompt", "max_tokens", "stream", "stream_options", "n", "temperature", "stop"]


@pytest.mark.parametrize("field", [*FIELDS, "kv_transfer_params", "lora", "request_id"])
async def test_any_json_in_any_field_is_served_or_refused_in_openais_shape(
    gateway: Gateway, field: str
) -> None:
    for value in VALUES.values():
        members = {name: json.dumps(good) for name, good in GOOD.items()} | {field: value}
        body = ",".join(f'"{name}":{text}' for name, text in members.items())
        answer = await gateway.post(COMPLETIONS, b"{%s}" % body.encode())
        assert answer.status in (200, 400, 404), (value, answer.body)
        assert b"~" not in answer.body
        if answer.status != 200:
            assert set(answer.error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), 400),
        (json.dumps(GOOD).encode("utf-16"), 400),
        (b'{"model":"bot","prompt":"a\x00b"}', 400),
        (b'{"model":"bo\xff","prompt":"hi"}', 400),
        (json.dumps(GOOD).encode() + b"x", 400),
        (b'{"model":"bot","model":"nope","prompt":"hi"}', 404),
        (b'{"model":"bot","mod\\u0065l":"nope","prompt":"hi"}', 404),
        (b'{"model":"bot~1","prompt":"hi"}', 404),
        (b'{"model":"bot\\r\\nx: y","prompt":"hi"}', 404),
        (b'{"model":"bot","prompt":"hi","max_tokens":1,"x":{"model":"nope"}}', 200),
    ],
)
async def test_bodies_between_the_lines(gateway: Gateway, body: bytes, status: int) -> None:
    answer = await gateway.post(COMPLETIONS, body)
    assert answer.status == status
    assert status == 200 or answer.error["message"]


CLOSE = "connection: close"
H2C = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAAAA")
SMALL = json.dumps(GOOD).encode()
LONG = json.dumps(GOOD | {"stream": True, "max_tokens": 4000, "ignore_eos": True}).encode()


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (request(SMALL, CLOSE, "expect: 100-continue"), [100, 200]),
        (request(SMALL, *H2C) + request(SMALL, CLOSE), [200] * 2),
        (
            request(SMALL) + request(SMALL, "connection: upgrade, close", "upgrade: websocket"),
            [200] * 2,
        ),
        (request(b"", method="CONNECT", path="x:1"), [400]),
        (request(b"", CLOSE, method="GET"), [404]),
        (request(b"", CLOSE, method="OPTIONS"), [404]),
        (request(b"", CLOSE, method="GET", path="/v1/models/../../admin/v1/nodes"), [404]),
        (request(b"", CLOSE, method="GET", path="/v1/models/%00%ff"), [404]),
        (request(b"", CLOSE, method="GET", path="/v1/models/" + "x" * 9000), [404]),
        (request(SMALL, CLOSE, "user-agent: \xe9\xff", "x-request-id: \xe9"), [200]),
        (request(SMALL, CLOSE, "x-request-id: a\x01b"), [400]),
        (request(SMALL, "content-length: 3"), [400]),
        (request(SMALL, "transfer-encoding: chunked"), [400]),
        (request(SMALL, f"x: {'y' * HEAD_BYTES_MAX}"), [400]),
        (request(SMALL, *(f"x-{n}: {'y' * 100}" for n in range(1000))), [400]),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n{}", [400]),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: " + b"9" * 30 + b"\r\n\r\n{}", [400]),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 20), [400]),
        (b"\x16\x03\x01\x02\x00" * 20, [400]),
        (request(SMALL).replace(b"HTTP/1.1", b"HTTP/1.0"), [200]),
        (request(SMALL) * 3 + request(SMALL, CLOSE), [200] * 4),
    ],
    ids=itertools.count(),
)
async def test_requests_at_the_edge_of_http(
    gateway: Gateway, sent: bytes, statuses: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(gateway) as client:
        try:
            await client.send(sent)
            answers = await client.answers()
        except ConnectionResetError:
            # The gateway had answered and closed while the rest was still on its way.
            assert statuses == [400]
            return
    assert [status for status, _ in answers] == statuses
    assert not caplog.records


@pytest.mark.parametrize("lines", [(), ("expect: 100-continue",)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_the_bound_gets_its_413(
    gateway: Gateway, lines: tuple[str, ...], chunked: bool
) -> None:
    body = b"x" * (4 * BODY_BYTES_MAX)
    sent = request(body, CLOSE, *lines)
    if chunked:
        head = sent[: -len(body)].replace(b"content-length: %d" % len(body), b"te: x")
        head = head.replace(b"host: x", b"transfer-encoding: chunked")
        sent = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    elif lines:
        # Who asks first need not send it.
        sent = sent[: -len(body)]
    async with connected(gateway) as client:
        await client.send(sent)
        status, answer = (await client.answers())[-1]
    assert status == 413
    assert json.loads(answer)["error"]["code"] == "body_too_large"


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(
    gateway: Gateway,
) -> None:
    body = b"x" * (4 * BODY_BYTES_MAX)
    sent = request(body)
    async with connected(gateway) as client:
        await client.send(sent[: -len(body)])
        head = await asyncio.wait_for(client._reader.readuntil(b"}}"), 10)
        assert head.startswith(b"HTTP/1.1 413")
        # Who sends it all the same may go on with the next request.
        await client.send(body + request(SMALL, CLOSE))
        assert [status for status, _ in await client.answers()] == [200]


Leave = Callable[[Gateway, Region, Connection], Awaitable[None]]


async def _while_its_body_is_read(gateway: Gateway, _: Region, client: Connection) -> None:
    await client.send(request(SMALL)[:-5])
    await eventually(lambda: gateway.app._v1.under_way)


async def _before_the_first_byte(gateway: Gateway, region: Region, client: Connection) -> None:
    await client.send(request(SMALL))
    await eventually(lambda: any(engine.running for engine in region.engines))


async def _inside_a_stream(_: Gateway, __: Region, client: Connection) -> None:
    await client.send(request(LONG))
    await client._reader.readuntil(b"data: ")


async def _with_two_requests_at_once(_: Gateway, __: Region, client: Connection) -> None:
    await client.send(request(LONG) + request(SMALL))
    await client._reader.readuntil(b"data: ")


@pytest.mark.parametrize(
    "stage",
    [
        _while_its_body_is_read,
        _before_the_first_byte,
        _inside_a_stream,
        _with_two_requests_at_once,
    ],
)
async def test_a_client_that_leaves_takes_its_request_with_it(
    region: Region, gateway: Gateway, stage: Leave
) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.slow_factor = 100.0 if stage is _before_the_first_byte else 20.0
    try:
        async with connected(gateway) as client:
            await stage(gateway, region, client)
        await nothing_is_left(region, gateway)
    finally:
        for engine in region.engines:
            engine.sim.loop.faults.slow_factor = 1.0


async def test_a_client_that_leaves_while_it_is_held_or_its_adapter_loads() -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def never(subject: str, payload: bytes) -> bytes:
        asked.set()
        await answer.wait()
        return b"nothing"

    async with region_of(engines=0, agent=False) as region:
        await region.declare("bot")
        await FakeBus(region.owner, region.hub).respond(subjects.node_ensure(REGION, NODE), never)
        engine = ScriptedEngine()
        async with engine.serving(lambda *_: asyncio.sleep(0)), served(region) as gateway:
            await gateway.knows("bot")
            await gateway.sees(*await announce(region, engine))
            async with connected(gateway) as client:
                await client.send(request(SMALL))
                await asked.wait()
                assert gateway.booked
            await nothing_is_left(region, gateway)
            await region.declare("a", "b", "c")
            await gateway.knows("a", "b", "c")
            async with AsyncExitStack() as clients:
                # Two of them wait for their loads into the two slots, the third for a slot.
                for under_way, name in enumerate(("a", "b", "c"), start=1):
                    client = await clients.enter_async_context(connected(gateway))
                    await client.send(request(json.dumps(GOOD | {"model": name}).encode()))
                    await eventually(partial(_has_under_way, gateway, under_way))
                await eventually(lambda: gateway.app.hold.count == 1)
            await nothing_is_left(region, gateway)
            answer.set()


def _has_under_way(gateway: Gateway, count: int) -> bool:
    return gateway.app._v1.under_way == count


async def test_a_client_that_reads_nothing_does_not_keep_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "LAST_WORD_S", 0.1)

    async def endless(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD)
        while True:
            await write(chunk(b"data: {}\n\n" * 10_000))

    async with region_of(engines=0, agent=False) as lonely:
        engine = ScriptedEngine()
        async with (
            engine.serving(endless),
            served(lonely, request_limit_ms=400, start_ms=1) as gateway,
        ):
            await gateway.sees(*await announce(lonely, engine))
            async with connected(gateway) as client:
                await client.send(
                    request(json.dumps({"model": BASE_MODEL, "prompt": "x"}).encode())
                )
                tasks = gateway._server._server.server_state.tasks
                await eventually(lambda: tasks)
                await eventually(lambda: not tasks)
            await nothing_is_left(lonely, gateway)


async def test_two_hundred_streams_at_once(region: Region, gateway: Gateway) -> None:
    answers = await asyncio.gather(
        *(gateway.ask(BASE_MODEL, stream=True, tokens=3) for _ in range(200))
    )
    served = [answer for answer in answers if answer.status == 200]
    assert len(served) == 200, {answer.status for answer in answers}
    assert all(answer.events[-1] == b"[DONE]" for answer in served)
