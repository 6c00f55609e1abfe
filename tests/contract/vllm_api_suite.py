"""vLLM's API on the wire: what the gateway, the agents and clients rely on.

Run against the simulated engine always, and against a real vLLM by `make test-engine`: whoever
passes it may stand in for the other. The engine under test is started with two HBM slots, four
host copies, rank 8, a context of 1,024 tokens, 24 requests in flight at most, and base model
`tiny`. Times are never asserted on, but in orders of magnitude.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.contract.vllm_client import (
    CHAT,
    COMPLETIONS,
    LOAD,
    UNLOAD,
    VllmClient,
    adapter_name,
)
from tests.eventually import succeeds

A, B, C, D, E = (adapter_name(letter) for letter in "abcde")
HELLO = [{"role": "user", "content": "hello"}]
IN_FLIGHT_MAX = 24


class ApiSuite:
    """Inherit and give the fixture `place`: (URL, folder with adapters ad0 .. ad4 and `large`)."""

    @pytest.fixture
    async def api(self, place: tuple[str, str]) -> AsyncIterator[VllmClient]:
        """A client; the adapters of the suite are unloaded before and after."""
        url, folder = place
        async with aiohttp.ClientSession() as session:
            client = VllmClient(url, session, base="tiny", path=lambda n: f"{folder}/ad{n}")
            await client.unload(A, B, C, D, E)
            yield client
            await client.unload(A, B, C, D, E)

            async def quiet() -> None:
                assert await client.value("vllm:num_requests_running") == 0

            await succeeds(quiet, despite=AssertionError, within_s=10.0)


class AnswersSuite(ApiSuite):
    """Completions and chats."""

    async def test_completion(self, api: VllmClient) -> None:
        body = await api.complete(model=api.base, prompt="hello there", max_tokens=4)
        assert body["object"] == "text_completion"
        assert body["id"].startswith("cmpl-")
        assert body["model"] == api.base
        [choice] = body["choices"]
        assert choice["index"] == 0
        assert isinstance(choice["text"], str)
        assert choice["finish_reason"] == "length"
        usage = body["usage"]
        assert usage["completion_tokens"] == 4
        assert usage["total_tokens"] == usage["prompt_tokens"] + 4

    async def test_completions_end_after_16_tokens_unless_told(self, api: VllmClient) -> None:
        body = await api.complete(model=api.base, prompt="hello", ignore_eos=True)
        assert body["usage"]["completion_tokens"] == 16

    async def test_token_ids_are_a_prompt(self, api: VllmClient) -> None:
        body = await api.complete(model=api.base, prompt=[5, 6, 7], max_tokens=1)
        assert body["usage"]["prompt_tokens"] == 3

    async def test_chat(self, api: VllmClient) -> None:
        answer = await api.post(CHAT, {"model": api.base, "messages": HELLO, "max_tokens": 3})
        body = answer.body
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert body["object"] == "chat.completion"
        assert body["id"].startswith("chatcmpl-")
        [choice] = body["choices"]
        assert choice["message"]["role"] == "assistant"
        assert choice["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == 3

    async def test_content_in_parts_is_the_same_prompt(self, api: VllmClient) -> None:
        parts = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        fields = {"model": api.base, "max_tokens": 4, "temperature": 0}
        one = await api.post(CHAT, {**fields, "messages": HELLO})
        other = await api.post(CHAT, {**fields, "messages": parts})
        assert one.body["choices"] == other.body["choices"]

    @pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
    async def test_both_names_of_the_limit_hold(self, api: VllmClient, name: str) -> None:
        asked = {"model": api.base, "messages": HELLO, "ignore_eos": True, name: 5}
        assert (await api.post(CHAT, asked)).body["usage"]["completion_tokens"] == 5

    @pytest.mark.parametrize("model", [{}, {"model": ""}], ids=["absent", "empty"])
    async def test_no_model_is_the_base_model(self, api: VllmClient, model: dict[str, str]) -> None:
        body = await api.complete(prompt="hello", max_tokens=1, **model)
        assert body["model"] == api.base

    async def test_answers_depend_on_prompt_and_adapter_alone(self, api: VllmClient) -> None:
        await api.load(A, 0)
        asked = {"max_tokens": 12, "ignore_eos": True}
        texts = [
            (await api.complete(model=model, prompt=prompt, **asked))["choices"][0]["text"]
            for model, prompt in [
                (api.base, "one prompt"),
                (api.base, "one prompt"),
                (api.base, "another prompt"),
                (A, "one prompt"),
            ]
        ]
        assert texts[0] == texts[1]
        assert len({*texts}) == 3

    async def test_an_adapter_answers_under_its_name(self, api: VllmClient) -> None:
        await api.load(A, 0)
        body = await api.complete(model=A, prompt="hello", max_tokens=2)
        assert body["model"] == A

    async def test_a_stop_string_ends_the_answer_before_it(self, api: VllmClient) -> None:
        asked = {"model": api.base, "prompt": "tell me", "max_tokens": 24, "ignore_eos": True}
        whole = (await api.complete(**asked))["choices"][0]["text"]
        stop = whole[len(whole) // 2 :][:2]
        [choice] = (await api.complete(**asked, stop=[stop]))["choices"]
        assert choice["text"] == whole[: whole.index(stop)]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)

    async def test_an_answer_ends_with_the_context(self, api: VllmClient) -> None:
        body = await api.complete(
            model=api.base, prompt=[5] * 1000, max_tokens=100, ignore_eos=True
        )
        assert body["usage"]["completion_tokens"] == 24
        assert body["choices"][0]["finish_reason"] == "length"

    async def test_request_ids(self, api: VllmClient) -> None:
        asked = {"model": api.base, "prompt": "hello", "max_tokens": 1}
        by_header = await api.post(COMPLETIONS, asked, headers={"x-request-id": "mine"})
        assert by_header.body["id"] == "cmpl-mine"
        assert by_header.headers["x-request-id"] == "mine"
        by_body = await api.post(COMPLETIONS, {**asked, "request_id": "own"})
        assert by_body.body["id"] == "cmpl-own"

    async def test_a_prefix_is_reused_within_one_adapter_only(self, api: VllmClient) -> None:
        await api.load(A, 0)
        prompt = [7 + n % 11 for n in range(200)]
        asked = {"prompt": prompt, "max_tokens": 1}

        async def cached(model: str) -> int:
            usage = (await api.complete(model=model, **asked))["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert await cached(api.base) == 0
        assert await cached(api.base) == 192
        assert await cached(A) == 0
        assert await cached(A) == 192


class StreamSuite(ApiSuite):
    """Streams."""

    async def test_chat_stream(self, api: VllmClient) -> None:
        asked = {"model": api.base, "messages": HELLO, "max_tokens": 5, "ignore_eos": True}
        events = await api.events(CHAT, **asked)
        assert {event["object"] for event in events} == {"chat.completion.chunk"}
        assert len({event["id"] for event in events}) == 1
        assert {event["model"] for event in events} == {api.base}
        opening, *tokens = [event["choices"][0] for event in events]
        assert opening["delta"] == {"role": "assistant", "content": ""}
        assert len(tokens) == 5
        assert [token["finish_reason"] for token in tokens] == [None] * 4 + ["length"]
        assert all("usage" not in event for event in events)

    async def test_completion_stream_adds_up_to_the_whole(self, api: VllmClient) -> None:
        asked = {"model": api.base, "prompt": "hello", "max_tokens": 8, "ignore_eos": True}
        events = await api.events(COMPLETIONS, **asked)
        text = "".join(event["choices"][0]["text"] for event in events)
        assert text == (await api.complete(**asked))["choices"][0]["text"]
        assert len(events) == 8
        assert {event["object"] for event in events} == {"text_completion"}

    @pytest.mark.parametrize(
        ("path", "fields"),
        [(CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "hello"})],
        ids=["chat", "completion"],
    )
    async def test_usage_comes_last_when_asked(
        self, api: VllmClient, path: str, fields: dict[str, Any]
    ) -> None:
        asked = {**fields, "model": api.base, "max_tokens": 3, "ignore_eos": True}
        events = await api.events(path, **asked, stream_options={"include_usage": True})
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == 3
        assert all(not event.get("usage") for event in events[:-1])

    async def test_usage_comes_with_each_chunk_when_asked(self, api: VllmClient) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        asked = {"model": api.base, "prompt": "hello", "max_tokens": 3, "ignore_eos": True}
        events = await api.events(COMPLETIONS, **asked, stream_options=options)
        assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 3]

    async def test_tokens_come_as_they_are_made(self, api: VllmClient) -> None:
        async with api.running(api.base, tokens=300, seen=1):
            assert await api.value("vllm:num_requests_running") == 1

    async def test_a_client_that_hangs_up_ends_its_request(self, api: VllmClient) -> None:
        async with api.running(api.base, tokens=900):
            pass

        async def ended() -> None:
            assert await api.value("vllm:num_requests_running") == 0

        await succeeds(ended, despite=AssertionError, within_s=1.0)


class RefusalsSuite(ApiSuite):
    """Error codes and bodies."""

    async def test_unknown_model(self, api: VllmClient) -> None:
        for path, fields in ((CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "x"})):
            for stream in (False, True):
                answer = await api.post(path, {"model": "nope", "stream": stream, **fields})
                assert answer.status == 404
                assert answer.error == {
                    "message": "The model `nope` does not exist. Valid aliases: tiny.",
                    "type": "NotFoundError",
                    "param": "model",
                    "code": 404,
                }

    @pytest.mark.parametrize(
        ("path", "body", "kind", "param"),
        [
            (CHAT, {}, "Bad Request", "body.messages"),
            (CHAT, {"messages": "x"}, "Bad Request", "body.messages"),
            (CHAT, {"messages": []}, "BadRequestError", None),
            (CHAT, {"messages": HELLO, "max_tokens": "x"}, "Bad Request", "body.max_tokens"),
            (COMPLETIONS, {}, "BadRequestError", "prompt"),
            (COMPLETIONS, {"prompt": ""}, "BadRequestError", "prompt"),
            (COMPLETIONS, {"prompt": 5}, "Bad Request", "body.prompt"),
            (COMPLETIONS, {"prompt": "a", "model": 5}, "Bad Request", "body.model"),
            (COMPLETIONS, {"prompt": "a", "stream": "x"}, "Bad Request", "body.stream"),
            (COMPLETIONS, {"prompt": "a", "max_tokens": 1.5}, "Bad Request", "body.max_tokens"),
            (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, "BadRequestError", "max_tokens"),
            (COMPLETIONS, {"prompt": "a", "max_tokens": -1}, "BadRequestError", "max_tokens"),
            (COMPLETIONS, {"prompt": "a", "max_tokens": 9999}, "BadRequestError", "max_tokens"),
            (COMPLETIONS, {"prompt": "a", "temperature": -1}, "BadRequestError", "temperature"),
            (COMPLETIONS, {"prompt": [5] * 1200}, "BadRequestError", "input_tokens"),
            (
                COMPLETIONS,
                {"prompt": "a", "stream_options": {"include_usage": True}},
                "BadRequestError",
                "stream_options",
            ),
        ],
        ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
    )
    async def test_bad_fields_are_named(
        self, api: VllmClient, path: str, body: dict[str, Any], kind: str, param: str | None
    ) -> None:
        answer = await api.post(path, {"model": api.base, **body})
        assert answer.status == 400, answer.text
        error = answer.error
        assert (error["type"], error["param"], error["code"]) == (kind, param, 400)
        assert error["message"]

    @pytest.mark.parametrize("path", [CHAT, LOAD])
    @pytest.mark.parametrize(
        ("data", "param"),
        [("{bad", "body.1"), ("", "body"), ("[1]", "body")],
        ids=["no-json", "empty", "no-object"],
    )
    async def test_bad_bodies(self, api: VllmClient, path: str, data: str, param: str) -> None:
        json_type = {"content-type": "application/json"}
        answer = await api.request("POST", path, data=data, headers=json_type)
        assert answer.status == 400
        assert (answer.error["type"], answer.error["param"]) == ("Bad Request", param)

    async def test_only_json_is_read(self, api: VllmClient) -> None:
        plain = {"content-type": "text/plain"}
        answer = await api.request("POST", CHAT, data='{"model":"tiny"}', headers=plain)
        assert (answer.status, answer.error["type"]) == (400, "Bad Request")
        assert "Unsupported Media Type" in answer.error["message"]

    async def test_unknown_paths_and_methods(self, api: VllmClient) -> None:
        missing = await api.get("/nope")
        assert (missing.status, missing.body) == (404, {"detail": "Not Found"})
        wrong = await api.get(CHAT)
        assert (wrong.status, wrong.body) == (405, {"detail": "Method Not Allowed"})

    async def test_a_full_engine_says_so(self, api: VllmClient) -> None:
        asked = {"model": api.base, "prompt": "x", "max_tokens": 60, "ignore_eos": True}
        rejected = "vllm:admission_rejections_total"
        before = await api.value(rejected, reason="max_num_queued_reqs")
        answers = await asyncio.gather(*[api.post(COMPLETIONS, asked) for _ in range(40)])
        refused = [answer for answer in answers if answer.status == 503]
        assert len(answers) - len(refused) >= IN_FLIGHT_MAX
        assert {answer.status for answer in answers} == {200, 503}
        error = refused[0].error
        assert (error["type"], error["param"]) == ("Service Unavailable", None)
        assert error["message"].startswith("The engine is currently busy")
        after = await api.value(rejected, reason="max_num_queued_reqs")
        assert after == before + len(refused)


class AdaptersSuite(ApiSuite):
    """Loading, unloading, and what memory then holds."""

    async def test_load_answers_in_plain_text(self, api: VllmClient) -> None:
        answer = await api.post(LOAD, {"lora_name": A, "lora_path": api.path(0)})
        assert answer.status == 200
        assert answer.text == f"Success: LoRA adapter '{A}' added successfully."
        assert "json" not in answer.headers.get("content-type", "")
        gone = await api.post(UNLOAD, {"lora_name": A})
        assert gone.status == 200
        assert gone.text == f"Success: LoRA adapter '{A}' removed successfully."

    async def test_a_name_is_taken_once_unless_in_place(self, api: VllmClient) -> None:
        await api.load(A, 0)
        for number in (0, 1):
            again = {"lora_name": A, "lora_path": api.path(number)}
            answer = await api.post(LOAD, again)
            assert (answer.status, answer.error["type"]) == (400, "InvalidUserInput")
            assert "has already been loaded" in answer.error["message"]
        in_place = {"lora_name": A, "lora_path": api.path(0), "load_inplace": True}
        assert (await api.post(LOAD, in_place)).status == 200

    @pytest.mark.parametrize(
        ("body", "status", "kind", "message"),
        [
            (
                {"lora_name": A, "lora_path": "/nowhere/x"},
                404,
                "NotFoundError",
                f"Loading lora {A} failed: No adapter found for",
            ),
            ({"lora_name": "", "lora_path": "/x"}, 400, "InvalidUserInput", "Both"),
            ({"lora_name": A, "lora_path": ""}, 400, "InvalidUserInput", "Both"),
            ({"lora_name": A}, 400, "Bad Request", "1 validation error"),
            (
                {"lora_name": "tiny", "lora_path": "/x"},
                400,
                "InvalidUserInput",
                "The lora adapter 'tiny' conflicts with a served base model.",
            ),
        ],
        ids=["no-adapter-there", "no-name", "no-path", "path-missing", "base-model"],
    )
    async def test_loads_that_cannot_be(
        self, api: VllmClient, body: dict[str, str], status: int, kind: str, message: str
    ) -> None:
        answer = await api.post(LOAD, body)
        assert (answer.status, answer.error["type"]) == (status, kind)
        assert answer.error["message"].startswith(message)

    async def test_too_large_a_rank_is_the_servers_fault(
        self, api: VllmClient, place: tuple[str, str]
    ) -> None:
        answer = await api.post(LOAD, {"lora_name": A, "lora_path": f"{place[1]}/large"})
        assert answer.status == 500
        assert "is greater than max_lora_rank 8" in answer.error["message"]

    @pytest.mark.parametrize(
        ("body", "status", "kind"),
        [
            ({"lora_name": "never-loaded"}, 404, "NotFoundError"),
            ({"lora_name": ""}, 400, "InvalidUserInput"),
            ({}, 400, "Bad Request"),
        ],
        ids=["unknown", "no-name", "missing"],
    )
    async def test_unloads_that_cannot_be(
        self, api: VllmClient, body: dict[str, str], status: int, kind: str
    ) -> None:
        answer = await api.post(UNLOAD, body)
        assert (answer.status, answer.error["type"]) == (status, kind)

    async def test_models_name_parent_and_path(self, api: VllmClient) -> None:
        await api.load(A, 0)
        cards = {card["id"]: card for card in (await api.get("/v1/models")).body["data"]}
        base, adapter = cards[api.base], cards[A]
        assert (base["object"], base["owned_by"], base["parent"]) == ("model", "vllm", None)
        assert base["max_model_len"] == 1024
        assert (adapter["root"], adapter["parent"]) == (api.path(0), api.base)
        assert adapter["max_model_len"] is None

    async def test_an_unloaded_name_is_unknown(self, api: VllmClient) -> None:
        await api.load(A, 0)
        await api.unload(A)
        answer = await api.post(COMPLETIONS, {"model": A, "prompt": "x"})
        assert (answer.status, answer.error["param"]) == (404, "model")

    async def test_a_load_takes_the_oldest_slot_at_once(self, api: VllmClient) -> None:
        for number, name in enumerate((A, B, C)):
            await api.load(name, number)
        slots, host, names = await api.residency()
        assert {*slots} == {names[B], names[C]}
        assert host[-3:] == [names[A], names[B], names[C]]

    async def test_a_use_makes_young(self, api: VllmClient) -> None:
        await api.load(A, 0)
        await api.load(B, 1)
        await api.complete(model=A, prompt="x", max_tokens=1)
        await api.load(C, 2)
        slots, _, names = await api.residency()
        assert {*slots} == {names[A], names[C]}

    async def test_an_unload_frees_nothing_and_the_name_begins_anew(self, api: VllmClient) -> None:
        await api.load(A, 0)
        await api.load(B, 1)
        before_slots, before_host, before = await api.residency()
        await api.unload(A)
        assert await api.residency() == (before_slots, before_host, {B: before[B]})
        await api.load(A, 0)
        slots, host, names = await api.residency()
        assert names[A] != before[A]
        assert {*slots} == {names[B], names[A]}
        assert before[A] in host

    async def test_an_adapter_out_of_memory_serves_all_the_same(self, api: VllmClient) -> None:
        for number, name in enumerate((A, B, C, D, E)):
            await api.load(name, number)
        _, host, names = await api.residency()
        assert names[A] not in host
        await api.complete(model=A, prompt="x", max_tokens=1)
        slots, host, names = await api.residency()
        assert names[A] in slots
        assert host[-1] == names[A]

    async def test_a_third_adapter_waits_and_lets_others_pass(self, api: VllmClient) -> None:
        for number, name in enumerate((A, B, C)):
            await api.load(name, number)
        asked = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
        async with api.running(A), api.running(B), asyncio.TaskGroup() as group:
            third = group.create_task(api.complete(model=C, **asked))

            async def deferred() -> None:
                waiting = "vllm:num_requests_waiting_by_reason"
                assert await api.value(waiting, reason="deferred") == 1

            await succeeds(deferred, despite=AssertionError)
            await api.complete(model=api.base, **asked)
            await api.complete(model=A, **asked)
            assert not third.done()
            third.cancel()
        answer = await api.complete(model=C, **asked)
        assert answer["usage"]["completion_tokens"] == 2


class MetricsSuite(ApiSuite):
    """The page that agents read."""

    LORA = "vllm:lora_requests_info"

    async def in_use(self, api: VllmClient) -> tuple[str, str]:
        """(running, waiting) of the sample with the largest value."""
        latest = max(await api.samples(self.LORA), key=lambda sample: sample.value)
        return latest.labels["running_lora_adapters"], latest.labels["waiting_lora_adapters"]

    async def test_families(self, api: VllmClient) -> None:
        await api.complete(model=api.base, prompt="x", max_tokens=2, ignore_eos=True)
        answer = await api.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        for name in (
            *("vllm:num_requests_running", "vllm:num_requests_waiting"),
            *("vllm:kv_cache_usage_perc", "vllm:num_preemptions_total"),
            *("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
            *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
            *(f"vllm:{latency}_seconds_sum" for latency in LATENCIES),
            *(f"vllm:{latency}_seconds_count" for latency in LATENCIES),
            *(f"vllm:{latency}_seconds_created" for latency in LATENCIES),
        ):
            [sample] = await api.samples(name)
            assert sample.labels == {"engine": "0", "model_name": api.base}
        assert len(await api.samples("vllm:time_to_first_token_seconds_bucket")) == 23
        [config] = await api.samples("vllm:cache_config_info")
        assert config.labels["block_size"] == "32"
        assert int(config.labels["num_gpu_blocks"]) > 0
        assert not await api.samples("vllm:gpu_cache_usage_perc")

    async def test_waiting_is_split_by_reason(self, api: VllmClient) -> None:
        reasons = await api.samples("vllm:num_requests_waiting_by_reason")
        assert {sample.labels["reason"] for sample in reasons} == {"capacity", "deferred"}

    async def test_kv_usage_is_of_live_requests(self, api: VllmClient) -> None:
        async with api.running(api.base, prompt="a long prompt " * 30):
            assert 0 < await api.value("vllm:kv_cache_usage_perc") < 1

        async def free() -> None:
            assert await api.value("vllm:kv_cache_usage_perc") == 0

        await succeeds(free, despite=AssertionError)

    async def test_adapters_in_use_stand_in_both_lists(self, api: VllmClient) -> None:
        await api.load(A, 0)
        await api.load(B, 1)
        async with api.running(A), api.running(B):

            async def both() -> None:
                running, waiting = await self.in_use(api)
                assert {*running.split(",")} == {*waiting.split(",")} == {A, B}

            await succeeds(both, despite=AssertionError)

    async def test_old_combinations_stay_and_the_newest_is_of_an_idle_engine(
        self, api: VllmClient
    ) -> None:
        await api.load(A, 0)
        async with api.running(A):
            pass

        async def idle() -> None:
            assert await self.in_use(api) == ("", "")

        await succeeds(idle, despite=AssertionError)
        before = await api.samples(self.LORA)
        assert any(A in sample.labels["running_lora_adapters"] for sample in before)
        assert all(
            {*sample.labels} == {"max_lora", "running_lora_adapters", "waiting_lora_adapters"}
            for sample in before
        )
        assert {sample.labels["max_lora"] for sample in before} == {"2"}
        await api.get("/health")
        assert await api.samples(self.LORA) == before

    async def test_a_deferred_adapter_is_in_neither_list(self, api: VllmClient) -> None:
        for number, name in enumerate((A, B, C)):
            await api.load(name, number)
        async with api.running(A), api.running(B), asyncio.TaskGroup() as group:
            third = group.create_task(api.complete(model=C, prompt="x", max_tokens=1))

            async def deferred() -> None:
                waiting = "vllm:num_requests_waiting_by_reason"
                assert await api.value(waiting, reason="deferred") == 1

            await succeeds(deferred, despite=AssertionError)
            running, waiting = await self.in_use(api)
            assert C not in running + waiting
            third.cancel()

    async def test_small_routes(self, api: VllmClient) -> None:
        health, ping = await api.get("/health"), await api.get("/ping")
        assert (health.status, health.text, ping.status) == (200, "", 200)
        assert (await api.get("/version")).body["version"].startswith("0.32.")
        assert list((await api.get("/load")).body) == ["server_load"]


LATENCIES = (
    "time_to_first_token",
    "inter_token_latency",
    "request_time_per_output_token",
    "e2e_request_latency",
    "request_queue_time",
    "request_prefill_time",
    "request_decode_time",
)
