"""Engines that break every promise of HTTP and of their own API: what clients see of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.eventually import eventually
from tests.gateway_region import Answer, Gateway, Region, region_of, served
from tests.scripted_engine import (
    STREAM_HEAD,
    Script,
    ScriptedEngine,
    Write,
    announce,
    chunk,
    event,
    whole,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOT = "bot~1"
LARGE_TEXT = "x" * (10 << 20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=0, agent=False) as region:
        await region.declare("bot")
        yield region


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region, start_ms=1) as gateway:
        await gateway.knows("bot")
        yield gateway


async def ask(
    region: Region, gateway: Gateway, script: Script, *, stream: bool, kind: str = "vllm"
) -> tuple[Answer, int]:
    """The answer of a gateway whose two engines follow a script, and how many it asked."""
    first, second = ScriptedEngine(), ScriptedEngine()
    async with first.serving(script), second.serving(script):
        await gateway.sees(*await announce(region, first, second, adapters=(BOT,), kind=kind))
        answer = await gateway.ask("bot", stream=stream)
    assert not gateway.booked
    assert b"~" not in answer.body
    assert b"Traceback" not in answer.body
    return answer, len(first.requests) + len(second.requests)


def sends(*parts: bytes) -> Script:
    async def script(_: bytes, write: Write) -> None:
        for part in parts:
            await write(part)

    return script


def error_event(message: str, code: int = 500) -> bytes:
    return b'data: {"error": %s}\n\n' % json.dumps({"message": message, "code": code}).encode()


def head(*lines: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


TRACE = 'Traceback (most recent call last):\n  File "bot~1.py", line 1, in f'
JSON_HEAD = b"content-type: application/json"
HTML = b"<html><body>bot~1 on a bad day</body></html>"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        sends(),
        sends(b"\x16\x03\x01\x02\x00" * 100),
        sends(b"HTTP/1.1 200 OK\r\nx-a: " + b"y" * 100_000),
        sends(b"HTTP/1.1 200 OK\r\n" + b"x-a: y\r\n" * 100_000),
        sends(b"HTTP/9.9 banana\r\n\r\n"),
        sends(head(JSON_HEAD, b"content-length: -5") + b"{}"),
        sends(head(JSON_HEAD, b"transfer-encoding: chunked"), b"zz\r\n{}\r\n0\r\n\r\n"),
        sends(head(JSON_HEAD, b"transfer-encoding: chunked"), b"ff\r\n{"),
        sends(head(JSON_HEAD, b"content-length: 2"), b"[]"),
        sends(
            head(JSON_HEAD, b"content-length: 4", b"content-encoding: gzip"), b"\x1f\x8b\x08\x00"
        ),
        sends(head(b"content-type: text/html", b"content-length: %d" % len(HTML)) + HTML),
        sends(whole(500, HTML)),
        sends(whole(502, TRACE.encode())),
        sends(whole(500, json.dumps({"error": {"message": TRACE}}).encode())),
        sends(whole(101, b"")),
        sends(whole(302, b"")),
        sends(STREAM_HEAD, chunk(error_event(TRACE))),
        sends(STREAM_HEAD, chunk(b": ping")),
        sends(STREAM_HEAD, b"20\r\ndata: half a chu"),
    ],
)
async def test_what_fails_before_the_first_byte_is_one_error_after_two_tries(
    region: Region, gateway: Gateway, script: Script, stream: bool
) -> None:
    answer, asked = await ask(region, gateway, script, stream=stream)
    assert (answer.status, answer.error["code"]) == (502, "engine-failed")
    assert asked >= 2


async def test_engines_that_have_no_such_adapter_without_an_agent_to_load_it(
    region: Region, gateway: Gateway
) -> None:
    gone = json.dumps({"error": {"message": "no `bot~1` here"}}).encode()
    answer, asked = await ask(region, gateway, sends(whole(404, gone)), stream=False)
    assert (answer.status, answer.error["code"], asked) == (503, "no-engine", 2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (HTML, "The engine answered 403"),
        (TRACE.encode(), "The engine answered 403"),
        (b"bot~1 says no", "The engine answered 403: bot says no"),
        (b'{"detail":"bot~1"}', 'The engine answered 403: {"detail":"bot"}'),
        (b'{"error":{"message":"no bot~1: never"}}', "no bot: never"),
        (b'{"error":{"message":5}}', 'The engine answered 403: {"error":{"message":5}}'),
        (b"\xff\x00bot~1", "The engine answered 403: \ufffd\x00bot"),
        (b"", "The engine answered 403"),
    ],
)
async def test_a_4xx_is_told_in_openais_shape_and_words_for_clients(
    region: Region, gateway: Gateway, body: bytes, message: str
) -> None:
    answer, asked = await ask(region, gateway, sends(whole(403, body)), stream=False)
    assert (answer.status, answer.error["message"], asked) == (403, message, 1)


@pytest.mark.parametrize(
    "message",
    [
        "Got LoRA adapter that has never been loaded: bot~1\nAll loaded adapters: ['x~9'].",
        "The following requested LoRA adapters are not loaded: bot~1\nLoaded adapters: ['x~9'].",
    ],
)
async def test_sglang_that_lacks_an_adapter_says_so_by_a_400(
    region: Region, gateway: Gateway, message: str
) -> None:
    """Its message lists what others have loaded: that reaches nobody."""
    body = json.dumps({"object": "error", "message": message}).encode()
    script = sends(whole(400, body))
    answer, asked = await ask(region, gateway, script, stream=False, kind="sglang")
    assert (answer.status, answer.error["code"], asked) == (503, "no-engine", 2)
    assert b"x~9" not in answer.body


@pytest.mark.parametrize("stream", [False, True])
async def test_sglang_is_asked_by_its_own_name_for_an_adapter(
    region: Region, gateway: Gateway, stream: bool
) -> None:
    asked: list[str] = []

    async def script(body: bytes, write: Write) -> None:
        asked.append(json.loads(body.partition(b"\r\n\r\n")[2])["model"])
        document = json.dumps({"model": asked[-1], "choices": []}).encode()
        if stream:
            await write(STREAM_HEAD)
            await write(chunk(b"data: %b\n\n" % document) + chunk(b"data: [DONE]\n\n"))
            await write(b"0\r\n\r\n")
        else:
            await write(whole(200, document))

    answer, _ = await ask(region, gateway, script, stream=stream, kind="sglang")
    assert asked == ["base:bot~1"]
    document = answer.events[0] if stream else answer.json
    assert document["model"] == "bot"


@pytest.mark.parametrize(
    "rest",
    [
        (),
        (b"10\r\ndata: {",),
        (b"zz\r\n",),
        (chunk(b'data: {"model":"bot~1'),),
        (chunk(error_event(TRACE)), b"0\r\n\r\n"),
        (chunk(error_event("LoRA bot~1: out of memory")),),
    ],
)
async def test_what_fails_inside_a_stream_ends_it_with_an_error_event(
    region: Region, gateway: Gateway, rest: tuple[bytes, ...]
) -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(STREAM_HEAD + chunk(event("a")))
        await eventually(lambda: any(e for e in gateway.booked))
        await asyncio.sleep(0.02)
        for part in rest:
            await write(part)

    answer, asked = await ask(region, gateway, script, stream=True)
    assert (answer.status, asked) == (200, 1)
    events = [e for e in answer.events if isinstance(e, dict)]
    assert events[0] == {"model": "bot", "text": "a"}
    assert "error" in events[-1]


async def test_a_stream_of_single_bytes_is_whole(region: Region, gateway: Gateway) -> None:
    async def script(_: bytes, write: Write) -> None:
        body = chunk(event("a") + event("b")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        for at in range(len(STREAM_HEAD + body)):
            await write((STREAM_HEAD + body)[at : at + 1])
            await asyncio.sleep(0)

    answer, _ = await ask(region, gateway, script, stream=True)
    assert answer.events == [
        {"model": "bot", "text": "a"},
        {"model": "bot", "text": "b"},
        b"[DONE]",
    ]


async def test_an_event_of_ten_megabytes_passes_and_one_without_end_does_not(
    region: Region, gateway: Gateway
) -> None:
    answer, _ = await ask(
        region,
        gateway,
        sends(STREAM_HEAD, chunk(event(LARGE_TEXT)), b"0\r\n\r\n"),
        stream=True,
    )
    assert answer.events == [{"model": "bot", "text": LARGE_TEXT}]
    endless = sends(STREAM_HEAD, *[chunk(b"data: " + b"x" * (1 << 20))] * 20)
    answer, _ = await ask(region, gateway, endless, stream=True)
    assert (answer.status, answer.error["code"]) == (502, "engine-failed")


async def test_what_is_no_json_inside_a_stream_passes_without_the_engines_name(
    region: Region, gateway: Gateway
) -> None:
    lines = b'data: {bot~1}\n\ndata: bot\n\ndata: {"model":"bot~1"} \n\n'
    answer, _ = await ask(
        region, gateway, sends(STREAM_HEAD, chunk(lines), b"0\r\n\r\n"), stream=True
    )
    assert answer.body == b'data: {bot}\n\ndata: bot\n\ndata: {"model":"bot"}\n\n'
