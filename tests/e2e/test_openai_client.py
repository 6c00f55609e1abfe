"""The public `openai` client against the stack of `axiom up`: what works, and each error class."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio
import yaml
from nats.aio.client import Client
from tests.eventually import eventually, succeeds
from tests.servers import free_port

from axiom_cli.stack.servers import HOST
from axiom_cli.stack.stack import CONFIG, Stack, running_stack
from axiom_cli.stack.topology import (
    ADMIN_KEY,
    BASE_MODEL,
    GATEWAY,
    REGION,
    EngineShape,
    StackOptions,
)
from axiom_common.model.ids import RegionId
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import DecisionReport, decode

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADAPTER = "adapter-01"
MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """One node with one engine that has one slot: easy to fill."""
    options = StackOptions(
        run_dir=tmp_path_factory.mktemp("stack"),
        nodes=1,
        engines_per_node=1,
        engine=EngineShape(hbm_slots=1, host_slots=2),
        adapters=3,
    )
    async with running_stack(options) as stack:
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(stack.gateway.url) as client:
        yield client


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@contextmanager
def impatient_gateway(stack: Stack) -> Iterator[tuple[str, str]]:
    """A second gateway of the region, one that holds nobody for longer than 200 ms: its URL, and
    the one of its health."""
    settings = yaml.safe_load((stack.options.run_dir / CONFIG / f"{GATEWAY}.yaml").read_text())
    settings |= {"gateway": "impatient", "port": free_port(), "hold_ms": 200}
    settings["ops_port"] = free_port()
    config = Path(stack.options.run_dir / "impatient.yaml")
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "axiom_gateway", "--config", str(config)]
    with (stack.options.run_dir / "impatient.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{HOST}:{settings['port']}", f"http://{HOST}:{settings['ops_port']}"
    finally:
        process.terminate()
        assert process.wait(20) == 0


async def test_chat(client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=ADAPTER, messages=MESSAGES, max_tokens=5
    )
    answer = raw.parse()
    assert answer.model == ADAPTER
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert raw.headers["x-axiom-engine"] == "node-1.engine-1"
    assert raw.headers["x-axiom-decision-id"]


async def test_a_request_is_explained_and_told_to_the_regions_stream(
    stack: Stack, client: openai.AsyncOpenAI
) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=ADAPTER, messages=MESSAGES, max_tokens=5
    )
    decision_id = raw.headers["x-axiom-decision-id"]
    kept: dict[str, Any] = {}

    async def explained() -> None:
        kept.update(json.loads(await why(stack, decision_id, "--json")))
        assert kept["outcome"]

    await succeeds(explained, despite=AssertionError)
    assert kept["adapter"] == f"{ADAPTER}~1"
    assert kept["attempts"][0]["decision"]["winner"]["engine"] == raw.headers["x-axiom-engine"]
    assert kept["outcome"]["completion_tokens"] == 5
    told_people = await why(stack, decision_id)
    for word in (decision_id, raw.headers["x-axiom-engine"], "outcome: ", "answer tokens 5"):
        assert word in told_people
    nats = Client()
    await nats.connect(stack.nats_url)
    stream = keys.decision_stream(RegionId(REGION))
    subject = subjects.all_decisions(RegionId(REGION))

    async def told() -> None:
        last = await nats.jetstream().get_last_msg(stream, subject)
        assert decode(last.data or b"", DecisionReport).id == decision_id

    try:
        await succeeds(told, despite=Exception)
    finally:
        await nats.close()


async def why(stack: Stack, decision_id: str, *more: str) -> str:
    """What `axiom why` says, asked with the key file that `axiom up` names."""
    asked = ("--url", stack.gateway.url, "--key-file", str(stack.options.run_dir / ADMIN_KEY))
    command = (sys.executable, "-m", "axiom_cli", "why", decision_id, *asked, *more)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_chat_as_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=ADAPTER,
        messages=MESSAGES,
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.model for chunk in chunks} == {ADAPTER}
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6


async def test_completion(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=BASE_MODEL, prompt="Once", max_tokens=4)
    assert answer.model == BASE_MODEL
    assert answer.choices[0].text
    stream = await client.completions.create(
        model=BASE_MODEL, prompt="Once", max_tokens=4, stream=True
    )
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == answer.choices[0].text


async def test_embeddings(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(
        model=BASE_MODEL, input=["one", "two"], encoding_format="float"
    )
    assert [item.index for item in answer.data] == [0, 1]
    assert answer.data[0].embedding


async def test_models(client: openai.AsyncOpenAI) -> None:
    names = [model.id async for model in client.models.list()]
    assert names == [BASE_MODEL, "adapter-01", "adapter-02", "adapter-03"]
    assert (await client.models.retrieve(ADAPTER)).id == ADAPTER
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")


async def test_an_unknown_model_is_not_found_with_the_names_that_are(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        await client.chat.completions.create(model="nope", messages=MESSAGES)
    assert (refusal.value.code, refusal.value.param) == ("model_not_found", "model")
    assert ADAPTER in refusal.value.message


async def test_what_the_gateway_checks_is_a_bad_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(model=ADAPTER, messages=[])
    assert refusal.value.param == "messages"


async def test_what_the_engine_refuses_is_a_bad_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.completions.create(model=ADAPTER, prompt="x", max_tokens=10_000_000)
    assert refusal.value.param == "max_tokens"
    assert "~" not in refusal.value.message


async def test_a_body_above_the_bound_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refusal:
        await client.completions.create(model=ADAPTER, prompt="x" * (33 << 20))
    assert refusal.value.status_code == 413


async def test_a_model_without_an_engine_is_unavailable(
    stack: Stack, client: openai.AsyncOpenAI
) -> None:
    async with (
        aiohttp.ClientSession(stack.gateway.url, headers=stack.gateway.headers) as http,
        http.put("/admin/v1/models/ghost", data=b"{}") as response,
    ):
        assert response.status == 201
    names: list[str] = []
    while "ghost" not in names:
        names = [model.id async for model in client.models.list()]
    with pytest.raises(openai.InternalServerError) as refusal:
        await client.completions.create(model="ghost", prompt="x")
    assert (refusal.value.status_code, refusal.value.code) == (503, "no-engine")
    assert int(refusal.value.response.headers["retry-after"]) >= 1


async def test_without_a_free_slot_in_time_it_is_a_rate_limit(
    stack: Stack, client: openai.AsyncOpenAI
) -> None:
    with impatient_gateway(stack) as (url, ops_url):
        async with client_of(url) as impatient, asyncio.TaskGroup() as group:
            await _until_ready(ops_url)
            running = asyncio.Event()
            busy = group.create_task(_keep_slot(client, running), name="busy")
            await running.wait()
            with pytest.raises(openai.RateLimitError) as refusal:
                await impatient.completions.create(model="adapter-02", prompt="x", max_tokens=1)
            assert not busy.done()
            busy.cancel()
    assert refusal.value.code == "all-quarantined"
    assert int(refusal.value.response.headers["retry-after"]) >= 1


async def test_an_error_inside_a_stream_is_raised(stack: Stack, client: openai.AsyncOpenAI) -> None:
    (engine_url,) = stack.engine_urls.values()
    async with aiohttp.ClientSession(engine_url) as engine:
        faults = json.dumps({"error_in_stream_after": 2})
        async with engine.post("/sim/faults", data=faults) as response:
            assert response.status == 200
    stream = await client.chat.completions.create(
        model=ADAPTER, messages=MESSAGES, max_tokens=8, stream=True
    )
    assert (await anext(stream)).model == ADAPTER
    with pytest.raises(openai.APIError):
        await _read_to_end(stream)


async def _keep_slot(client: openai.AsyncOpenAI, running: asyncio.Event) -> None:
    """Keeps the engine's one slot in use for some seconds; sets `running` once it does."""
    stream = await client.completions.create(
        model=ADAPTER, prompt="x", max_tokens=256, stream=True, extra_body={"ignore_eos": True}
    )
    await anext(stream)
    running.set()
    await _read_to_end(stream)


async def _read_to_end(stream: openai.AsyncStream[Any]) -> None:
    async for _ in stream:
        pass


async def _until_ready(url: str) -> None:
    ready = False

    async def ask() -> None:
        nonlocal ready
        async with aiohttp.ClientSession(url) as http:
            while not ready:
                try:
                    async with http.get("/readyz") as response:
                        ready = response.status == 200
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask(), name="ask readyz")
        await eventually(lambda: ready, within_s=15)
