"""vLLM's API by the simulated engine; and what only that one can be made to do."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.contract.engine_residency_suite import InferredResidencySuite
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.contract.vllm_api_suite import (
    HELLO,
    A,
    AdaptersSuite,
    AnswersSuite,
    ApiSuite,
    MetricsSuite,
    RefusalsSuite,
    StreamSuite,
)
from tests.contract.vllm_client import CHAT, COMPLETIONS, DONE, LOAD, VllmClient
from tests.servers import running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = adapter_folders(tmp_path_factory.mktemp("adapters"), [f"ad{n}" for n in range(5)])
    adapter_folders(folder, ["large"], rank=16)
    with running(simulated_engine(folder / "log", "--tell-residency")) as server:
        yield server.url, str(folder)


class TestAnswers(AnswersSuite):
    pass


class TestStreams(StreamSuite):
    pass


class TestRefusals(RefusalsSuite):
    pass


class TestAdapters(AdaptersSuite):
    pass


class TestMetrics(MetricsSuite):
    pass


class TestInferredResidency(InferredResidencySuite):
    pass


class TestSimulation(ApiSuite):
    @pytest.fixture(autouse=True)
    async def _no_faults_after(self, api: VllmClient) -> object:
        yield
        assert (await api.post("/sim/faults", {})).status == 200

    async def test_stats_tell_what_was_done(self, api: VllmClient) -> None:
        before = (await api.get("/sim/stats")).body
        await api.load(A, 0)
        await api.complete(model=A, prompt=[9] * 100, max_tokens=7, ignore_eos=True)
        await api.complete(model=A, prompt=[9] * 100, max_tokens=1)
        after = (await api.get("/sim/stats")).body
        grown = {k: after[k] - before[k] for k in after if isinstance(after[k], int)}
        assert grown == {
            "adapter_loads": 1,
            "loads_from_store": 1,
            "requests": 2,
            "in_flight": 0,
            "tokens": 8,
            "prompt_tokens": 200,
            "prefix_query_tokens": 200,
            "prefix_hit_tokens": 96,
            "steps": 8,
        }
        assert after["hbm"][-1] == after["host"][-1] == A

    async def test_loads_fail_on_order(self, api: VllmClient) -> None:
        await api.post("/sim/faults", {"fail_loads": 1})
        asked = {"lora_name": A, "lora_path": api.path(0)}
        assert (await api.post(LOAD, asked)).status == 500
        assert (await api.post(LOAD, asked)).status == 200

    async def test_requests_fail_on_order(self, api: VllmClient) -> None:
        await api.post("/sim/faults", {"fail_requests": 1})
        asked = {"model": api.base, "prompt": "x", "max_tokens": 1}
        failed = await api.post(COMPLETIONS, asked)
        assert (failed.status, failed.error["type"]) == (500, "InternalServerError")
        assert (await api.post(COMPLETIONS, asked)).status == 200

    async def test_a_stream_breaks_on_order_as_vllm_breaks_one(self, api: VllmClient) -> None:
        await api.post("/sim/faults", {"error_in_stream_after": 2})
        asked = {"model": api.base, "messages": HELLO, "max_tokens": 9, "ignore_eos": True}
        *chunks, failure = await api.events(CHAT, **asked)
        assert len(chunks) == 1 + 2
        assert failure == {
            "error": {
                "message": "Internal server error",
                "type": "InternalServerError",
                "param": None,
                "code": 500,
            }
        }
        assert len(await api.events(CHAT, **asked)) == 1 + 9

    async def test_health_fails_on_order(self, api: VllmClient) -> None:
        await api.post("/sim/faults", {"unhealthy": True})
        assert (await api.get("/health")).status == 503

    @pytest.mark.parametrize(
        "faults",
        [{"fail_loads": -1}, {"slow_factor": 0}, {"slow_factor": 1e9}, {"nope": 1}, [1]],
        ids=str,
    )
    async def test_faults_are_bounded(self, api: VllmClient, faults: object) -> None:
        assert (await api.post("/sim/faults", faults)).status == 400

    @pytest.mark.parametrize("encoding", ["float", "base64"])
    async def test_embeddings(self, api: VllmClient, encoding: str) -> None:
        asked = {"model": api.base, "input": ["one", "two", "one"], "encoding_format": encoding}
        body = (await api.post("/v1/embeddings", asked)).body
        one, two, again = (row["embedding"] for row in body["data"])
        assert one == again != two
        assert [row["index"] for row in body["data"]] == [0, 1, 2]
        assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] == 3

    async def test_a_body_beyond_all_bounds_is_refused(self, api: VllmClient) -> None:
        body = io.BytesIO(b'{"prompt": "' + b"x" * (33 << 20) + b'"}')
        json_type = {"content-type": "application/json"}
        answer = await api.request("POST", COMPLETIONS, data=body, headers=json_type)
        assert answer.status == 413


async def test_streams_end_in_order_when_the_engine_is_told_to(tmp_path: Path) -> None:
    with running(simulated_engine(tmp_path)) as server:
        async with aiohttp.ClientSession() as session:
            client = VllmClient(server.url, session, base="tiny", path=str)
            async with client.running(client.base) as events:
                # Kills after a while: a stream would then break off.
                server.stop()
                rest = [event async for event in events]
    assert rest[-1] == DONE
    assert all(json.loads(event)["choices"][0]["finish_reason"] is None for event in rest[:-1])
