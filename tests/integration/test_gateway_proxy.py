"""One try at an engine: what is passed on, and how each kind of failure ends, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from tests.eventually import eventually
from tests.scripted_engine import STREAM_HEAD, ScriptedEngine, Write, chunk, event, whole

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.ids import EngineAdapter
from axiom_gateway.asgi import Exchange, Message
from axiom_gateway.proxy import Proxy, Try, Upstream, Verdict


class Client:
    """The client's end of an exchange: what it was sent."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.status: int | None = None
        self.head: dict[str, str] = {}
        self.body = b""
        self.pieces: list[bytes] = []
        self.ended = False
        scope = {
            "method": "POST",
            "path": "/v1/completions",
            "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }
        self.exchange = Exchange(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        raise AssertionError("a try does not read from the client")

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.head = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        if message["body"]:
            self.pieces.append(message["body"])
        self.body += message["body"]
        self.ended = not message["more_body"]


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy(SystemClock(), connect_ms=1000, idle_ms=300)
    yield proxy
    proxy.close()


async def forward(
    proxy: Proxy, url: str, client: Client, *, first: list[None] | None = None
) -> Try:
    seen = [] if first is None else first
    to = Upstream(
        url=url,
        path="/v1/completions",
        served_name="bot~1",
        model="bot",
        adapter=EngineAdapter("bot~1"),
        body=b'{"model":"bot~1"}',
        request_id="r-1",
        sent_ms=0.0,
        may_send=lambda: True,
    )
    return await proxy.forward(to, client.exchange, lambda: seen.append(None))


async def test_a_stream_is_passed_on_event_by_event_under_the_clients_name(proxy: Proxy) -> None:
    go_on = asyncio.Event()

    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD + chunk(event("a")))
        await go_on.wait()
        await write(chunk(event("b")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    client, first = Client({"traceparent": "00-1", "authorization": "Bearer s"}), list[None]()
    async with ScriptedEngine().serving(script) as engine, asyncio.TaskGroup() as group:
        trying = group.create_task(forward(proxy, engine.url, client, first=first), name="try")
        await eventually(lambda: client.pieces)
        assert client.pieces == [event("a").replace(b"bot~1", b"bot")]
        assert len(first) == 1
        go_on.set()
    assert trying.result().verdict is Verdict.SERVED
    assert client.body == (event("a") + event("b")).replace(b"bot~1", b"bot") + b"data: [DONE]\n\n"
    assert (client.status, client.ended) == (200, True)
    assert client.head["content-type"] == "text/event-stream"
    sent = engine.requests[0].lower()
    assert b"x-request-id: r-1" in sent
    assert b"traceparent: 00-1" in sent
    assert b"accept-encoding: identity" in sent
    assert b"authorization" not in sent


async def test_a_whole_answer_gets_the_clients_name(proxy: Proxy) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(whole(200, b'{"model":"bot~1","choices":[{"text":"bot~1"}]}'))

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.SERVED
    assert json.loads(client.body) == {"model": "bot", "choices": [{"text": "bot~1"}]}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"not http at all\r\n\r\n",
        STREAM_HEAD,
        STREAM_HEAD + chunk(b'data: {"mod'),
        STREAM_HEAD + b"0\r\n\r\n",
        STREAM_HEAD + chunk(b'data: {"error":{"message":"x","code":500}}\n\n') + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        whole(500, b'{"error":{"message":"boom"}}'),
        whole(503, b'{"error":{"message":"The engine is currently busy"}}'),
        whole(302, b""),
    ],
)
async def test_a_failure_before_the_first_byte_leaves_no_trace(proxy: Proxy, sent: bytes) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(sent)

    client, first = Client(), list[None]()
    async with ScriptedEngine().serving(script) as engine:
        outcome = await forward(proxy, engine.url, client, first=first)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.detail
    assert (client.status, client.body, first) == (None, b"", [])


async def test_nobody_listening_is_a_failure(proxy: Proxy) -> None:
    async with ScriptedEngine().serving(lambda _, __: asyncio.sleep(0)) as engine:
        url = engine.url
    client = Client()
    assert (await forward(proxy, url, client)).verdict is Verdict.FAILED
    assert client.status is None


async def test_an_engine_that_falls_silent_is_a_failure(proxy: Proxy) -> None:
    gone = asyncio.Event()

    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD)
        await gone.wait()

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.FAILED
        gone.set()
    assert client.status is None


async def test_a_stream_cut_inside_an_event_ends_with_whole_events(proxy: Proxy) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD + chunk(event("a") + event("b")[:-9]))

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.BROKEN
    assert client.body == event("a").replace(b"bot~1", b"bot")
    assert not client.ended


async def test_an_error_event_of_the_engine_is_passed_on(proxy: Proxy) -> None:
    error = {"message": "bot~1: out of memory", "type": "InternalServerError", "code": 500}
    events = b'data: {"error": %s}\n\ndata: [DONE]\n\n' % json.dumps(error).encode()

    client = Client()

    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD + chunk(event("a")))
        await eventually(lambda: client.pieces)
        await write(chunk(events) + b"0\r\n\r\n")

    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.BROKEN
    said = client.body.split(b"\n\n")
    assert json.loads(said[1].removeprefix(b"data: "))["error"] == error | {
        "message": "bot: out of memory",
        "param": None,
    }
    assert said[2:] == [b"data: [DONE]", b""]
    assert client.ended


async def test_the_clients_own_fault_is_passed_on_and_is_no_failure(proxy: Proxy) -> None:
    refusal = {
        "message": "bot~1 takes at most 8 tokens, not bot~11.",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }

    async def script(_: bytes, write: Write) -> None:
        await write(whole(400, json.dumps({"error": refusal}).encode()))

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.REJECTED
    assert client.status == 400
    renamed = refusal | {"message": "bot takes at most 8 tokens, not bot~11."}
    assert json.loads(client.body)["error"] == renamed


async def test_a_4xx_of_another_shape_is_put_into_openais(proxy: Proxy) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(whole(404, b'{"detail":"Not Found"}'))

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.REJECTED
    assert client.status == 404
    assert "Not Found" in json.loads(client.body)["error"]["message"]


async def test_an_engine_that_forgot_the_adapter_is_told_apart(proxy: Proxy) -> None:
    async def script(_: bytes, write: Write) -> None:
        message = "The model `bot~1` does not exist. Valid aliases: base."
        await write(whole(404, json.dumps({"error": {"message": message}}).encode()))

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        assert (await forward(proxy, engine.url, client)).verdict is Verdict.FORGOTTEN
    assert client.status is None


async def test_cancelling_a_try_closes_the_connection(proxy: Proxy) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD)
        while True:
            await write(chunk(event("a")))
            await asyncio.sleep(0.001)

    client = Client()
    async with ScriptedEngine().serving(script) as engine:
        async with asyncio.TaskGroup() as group:
            trying = group.create_task(forward(proxy, engine.url, client), name="try")
            await eventually(lambda: client.pieces)
            trying.cancel()
        await eventually(lambda: engine.cut)
