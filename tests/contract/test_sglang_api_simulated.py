"""SGLang's API by the simulated server, held to shapes that were read in SGLang's source.

`tests/recorded/sglang-answers.json` holds one answer a call, as SGLang's own code makes it (the
files are named there); the simulated server's must have the same members with the same types.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.contract.simulated_engine import adapter_folders, simulated_sglang
from tests.contract.vllm_client import COMPLETIONS, VllmClient
from tests.eventually import succeeds
from tests.servers import running

GOLDEN = Path(__file__).parent.parent / "recorded" / "sglang-answers.json"
SHAPES: dict[str, Any] = json.loads(GOLDEN.read_text())
LOAD, UNLOAD = "/load_lora_adapter", "/unload_lora_adapter"
NAMES = [f"ad{number}" for number in range(6)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = adapter_folders(tmp_path_factory.mktemp("adapters"), NAMES)
    adapter_folders(folder, ["large"], rank=16)
    with running(simulated_sglang(folder / "log")) as server:
        yield server.url, folder


@pytest.fixture
async def api(place: tuple[str, Path]) -> AsyncIterator[VllmClient]:
    url, folder = place
    async with aiohttp.ClientSession() as session:
        client = VllmClient(url, session, base="tiny", path=lambda n: str(folder / f"ad{n}"))
        yield client
        for name in await listed(client):
            await client.post(UNLOAD, {"lora_name": name})


async def load(api: VllmClient, *numbers: int) -> None:
    for number in numbers:
        body = {"lora_name": f"ad{number}", "lora_path": api.path(number)}
        answer = await api.post(LOAD, body)
        assert answer.status == 200, answer.text


async def listed(api: VllmClient) -> list[str]:
    cards = (await api.get("/v1/models")).body["data"]
    return [card["id"] for card in cards if card["parent"] is not None]


async def stats(api: VllmClient) -> dict[str, Any]:
    return dict((await api.get("/sim/stats")).body)


async def ask(api: VllmClient, model: str) -> Any:
    return await api.post(COMPLETIONS, {"model": model, "prompt": "hello", "max_tokens": 2})


def has_shape(value: Any, shape: Any, at: str = "") -> None:
    """`value` has all members of `shape`, of the same types; null stands for any."""
    if shape is None:
        return
    if isinstance(shape, dict):
        assert isinstance(value, dict), at
        for name, part in shape.items():
            assert name in value, f"{at}.{name}"
            has_shape(value[name], part, f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), at
        if shape:
            assert value, at
            has_shape(value[0], shape[0], f"{at}[0]")
    elif isinstance(shape, bool):
        assert value is shape, at
    elif isinstance(shape, int | float):
        assert isinstance(value, int | float), at
    else:
        assert isinstance(value, type(shape)), at


async def test_every_call_answers_in_sglangs_shape(api: VllmClient) -> None:
    await load(api, 0)
    native = {"text": "a", "sampling_params": {"max_new_tokens": 1}, "lora_path": "ad0"}
    answers = {
        "load": await api.post(LOAD, {"lora_name": "ad1", "lora_path": api.path(1)}),
        "load again": await api.post(LOAD, {"lora_name": "ad1", "lora_path": api.path(1)}),
        "load nothing": await api.post(LOAD, {"lora_name": "x", "lora_path": "/nowhere"}),
        "models": await api.get("/v1/models"),
        "loads": await api.get("/v1/loads"),
        "model info": await api.get("/model_info"),
        "generate": await api.post("/generate", native),
        "unknown adapter": await ask(api, "tiny:never"),
        "unload": await api.post(UNLOAD, {"lora_name": "ad1"}),
        "unload unknown": await api.post(UNLOAD, {"lora_name": "never"}),
    }
    assert answers.keys() == SHAPES.keys()
    for call, answer in answers.items():
        assert answer.status == SHAPES[call]["status"], call
        has_shape(answer.body, SHAPES[call]["body"], call)
        for words in SHAPES[call].get("words", []):
            assert words in answer.text, call


async def test_the_page_names_families_of_sglang_alone(api: VllmClient) -> None:
    await load(api, 0)
    await ask(api, "tiny:ad0")
    page = (await api.get("/metrics")).text
    families = {family.name for family in text_string_to_metric_families(page)}
    assert {
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:token_usage",
        "sglang:max_total_num_tokens",
        "sglang:lora_pool_slots_total",
        "sglang:lora_pool_slots_used",
        "sglang:num_retracted_requests",
        "sglang:prefill_effective_tokens",
        "sglang:prompt_tokens",
        "sglang:generation_tokens",
        "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds",
    } <= families
    assert not {name for name in families if not name.startswith("sglang:")}


async def test_an_adapters_name_stands_behind_the_base_models(api: VllmClient) -> None:
    await load(api, 0)
    by_adapter, bare, base = [await ask(api, m) for m in ("tiny:ad0", "ad0", "tiny")]
    assert by_adapter.body["model"] == "tiny:ad0"
    # A bare name is a name of the base model: no error, and no adapter.
    assert bare.status == 200
    texts = [answer.body["choices"][0]["text"] for answer in (by_adapter, bare, base)]
    assert texts[0] != texts[1] == texts[2]


async def test_a_load_stops_in_host_ram_until_a_request_comes(api: VllmClient) -> None:
    await load(api, 0)
    assert "ad0" not in (await stats(api))["hbm"]
    await ask(api, "tiny:ad0")
    assert (await stats(api))["hbm"][-1] == "ad0"


async def test_names_beyond_host_ram_push_out_the_least_recently_used(api: VllmClient) -> None:
    await load(api, 0, 1, 2, 3)
    await ask(api, "tiny:ad0")
    assert await listed(api) == ["ad1", "ad2", "ad3", "ad0"]
    await load(api, 4)
    assert await listed(api) == ["ad2", "ad3", "ad0", "ad4"]
    # Its next request brings it back.
    assert (await ask(api, "tiny:ad1")).status == 200
    assert await listed(api) == ["ad3", "ad0", "ad4", "ad1"]


async def test_an_unload_waits_for_requests_and_frees_both_copies(api: VllmClient) -> None:
    await load(api, 0)

    async def forgotten() -> None:
        assert await listed(api) == []

    async with asyncio.TaskGroup() as group, api.running("tiny:ad0"):
        unloading = group.create_task(api.post(UNLOAD, {"lora_name": "ad0"}))
        await succeeds(forgotten, despite=AssertionError, within_s=10.0)
        assert not unloading.done()
        assert "ad0" in (await stats(api))["hbm"]
    assert unloading.result().status == 200
    held = await stats(api)
    assert "ad0" not in held["hbm"] + held["host"]


async def test_gauges_stand_still_while_nothing_is_logged_and_loads_do_not(
    api: VllmClient,
) -> None:
    async with api.running("tiny"):
        assert await api.value("sglang:num_running_reqs") == 1

    async def idle() -> None:
        [rank] = (await api.get("/v1/loads")).body["loads"]
        assert rank["num_running_reqs"] == 0

    await succeeds(idle, despite=AssertionError, within_s=10.0)
    assert await api.value("sglang:num_running_reqs") == 1


async def test_errors_stand_at_the_top_of_the_body(api: VllmClient) -> None:
    answer = await api.post(COMPLETIONS, {"model": "tiny", "prompt": ""})
    assert (answer.status, answer.body["object"], answer.body["code"]) == (400, "error", 400)


async def test_too_large_a_rank_is_refused(api: VllmClient, place: tuple[str, Path]) -> None:
    body = {"lora_name": "large", "lora_path": str(place[1] / "large")}
    answer = await api.post(LOAD, body)
    assert (answer.status, answer.body["success"]) == (400, False)
    assert "16" in answer.body["error_message"]
