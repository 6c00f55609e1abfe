"""Why a request went where it went: over REST and with the CLI, of a gateway that serves."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest
from pydantic import BaseModel
from rich.console import Console
from tests.eventually import eventually
from tests.gateway_region import ADMIN_SECRET, BASE_MODEL, Gateway, Region, region_of, served

from axiom_cli.explain import print_explanation, question
from axiom_cli.why import print_why
from axiom_common.errors import InvalidInputError
from axiom_common.wire.decisions import Explanation, WhyView

ADMIN = "/admin/v1"
_M = TypeVar("_M", bound=BaseModel)


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=3, prompt_tokens_details=True) as region:
        await region.declare("bot")
        yield region


@pytest.fixture
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    async with served(region) as gateway:
        await gateway.knows("bot")
        yield gateway


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    """Holds the secret of an admin's key."""
    path = tmp_path / "admin.key"
    path.write_text(ADMIN_SECRET)
    return str(path)


async def axiom(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the real command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "axiom_cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"COLUMNS": "120", "PATH": ""},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def printed(print_it: Callable[[Console], None]) -> str:
    """What people get to see."""
    page = io.StringIO()
    print_it(Console(file=page, width=120))
    return page.getvalue()


def shaped(shape: type[_M], told: dict[str, Any]) -> _M:
    """As the CLI reads it."""
    return shape.model_validate_json(json.dumps(told))


async def why(gateway: Gateway, decision_id: str) -> dict[str, Any]:
    """What REST tells, once the request has ended."""
    told: dict[str, Any] = {}

    async def ask() -> bool:
        told.update((await gateway.get(f"{ADMIN}/decisions/{decision_id}")).json)
        return told["outcome"] is not None

    async with asyncio.timeout(5):
        while not await ask():
            await asyncio.sleep(0.01)
    return told


def parts_are_the_cost(decision: dict[str, Any]) -> None:
    """Nobody has to take a cost on trust."""
    shown = [decision["winner"], *decision["runners_up"]]
    for one in shown:
        assert sum(part["cost_ms"] for part in one["parts"]) == pytest.approx(
            one["cost_ms"], abs=1e-3
        )
        for part in one["parts"]:
            assert part["cost_ms"] == part["weight"] * part["ms"]
    assert [one["cost_ms"] for one in shown] == sorted(one["cost_ms"] for one in shown)


async def test_axiom_why_explains_a_request_of_the_openai_client(
    gateway: Gateway, key_file: str
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        raw = await client.completions.with_raw_response.create(
            model="bot", prompt="hi", max_tokens=5
        )
    decision_id = raw.headers["x-axiom-decision-id"]
    await why(gateway, decision_id)
    code, out, err = await axiom("why", decision_id, "--url", gateway.url, "--key-file", key_file)
    assert (code, err) == (0, "")
    for told in (decision_id, "bot~1", raw.headers["x-axiom-engine"], "adapter-load", "served"):
        assert told in out
    kept = await why(gateway, decision_id)
    assert (kept["id"], kept["outcome"]["completion_tokens"]) == (decision_id, 5)
    (attempt,) = kept["attempts"]
    assert attempt["decision"]["winner"]["engine"] == raw.headers["x-axiom-engine"]
    assert len(attempt["decision"]["runners_up"]) == 2
    assert attempt["decision"]["load"] == "cold"
    parts_are_the_cost(attempt["decision"])


async def test_each_try_is_told_and_the_engine_that_failed_left_out(
    region: Region, gateway: Gateway
) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.fail_requests = 1
    answer = await gateway.ask(BASE_MODEL)
    kept = await why(gateway, answer.headers["x-axiom-decision-id"])
    first, second = kept["attempts"]
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert second["excluded"] == [first["decision"]["winner"]["engine"]]
    assert second["decision"]["refusals"] == {"engine-failed": 1}
    assert first["age_ms"] >= second["age_ms"] >= 0.0
    assert kept["outcome"]["retries"] == 1


async def test_what_no_engine_could_serve_has_reasons_and_no_winner(
    region: Region, gateway: Gateway
) -> None:
    await gateway.client.put(f"{ADMIN}/models/ghost", data=b"{}")
    await gateway.knows("ghost")
    answer = await gateway.ask("ghost")
    kept = await why(gateway, answer.headers["x-axiom-decision-id"])
    (attempt,) = kept["attempts"]
    assert attempt["decision"]["winner"] is None
    assert attempt["decision"]["refusals"] == {"base-mismatch": 3}
    assert (kept["outcome"]["ending"], kept["outcome"]["reason"]) == ("refused", "no-engine")
    out = printed(lambda console: print_why(shaped(WhyView, kept), console))
    assert "no engine" in out
    assert "3 base-mismatch" in out


async def test_a_decision_that_nobody_keeps_is_a_404_that_says_so(
    gateway: Gateway, key_file: str
) -> None:
    for decision_id in ("nope", "x" * 5000, "%2e%2e", "a b"):
        answer = await gateway.get(f"{ADMIN}/decisions/{decision_id}")
        assert (answer.status, answer.json["code"]) == (404, "not-found")
        assert len(answer.body) < 1000
    code, out, _ = await axiom(
        "why", "nope", "--url", gateway.url, "--key-file", key_file, "--json"
    )
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "not-found")
    assert "this gateway keeps" in error["message"]


async def test_a_request_under_way_has_no_outcome_yet(region: Region, gateway: Gateway) -> None:
    for engine in region.engines:
        engine.sim.loop.faults.slow_factor = 100.0
    asking = asyncio.ensure_future(gateway.ask(BASE_MODEL, tokens=200))
    await eventually(lambda: any(engine.running for engine in region.engines))
    kept = (await gateway.get(f"{ADMIN}/decisions/gw-1")).json
    assert kept["outcome"] is None
    assert len(kept["attempts"]) == 1
    asking.cancel()
    await eventually(lambda: not gateway.booked)


async def explain(gateway: Gateway, **asked: Any) -> Any:
    return await gateway.post(f"{ADMIN}/explain", asked)


async def test_explain_asks_anew_and_books_nothing(region: Region, gateway: Gateway) -> None:
    served_by = (await gateway.ask("bot")).engine
    await eventually(lambda: not gateway.booked)
    told = (await explain(gateway, model="bot", prompt_tokens=100)).json
    assert told["new_question"] is True
    assert (told["base_model"], told["adapter"], told["next"]) == (BASE_MODEL, "bot~1", None)
    assert told["decision"]["winner"]["engine"] == served_by
    parts_are_the_cost(told["decision"])
    assert [one["engine"] for one in told["engines"]] == [engine.id for engine in region.engines]
    winner = next(one for one in told["engines"] if one["engine"] == served_by)
    assert winner["candidate"] == told["decision"]["winner"]
    scores = {part["score"]: part["value"] for part in winner["candidate"]["parts"]}
    assert scores["adapter-affinity"] == 1.0
    assert not gateway.booked
    out = printed(lambda console: print_explanation(shaped(Explanation, told), console))
    assert "asked anew" in out
    assert all(engine.id in out for engine in region.engines)


async def test_explain_comes_in_pages_and_names_why_engines_are_left_out(
    region: Region, gateway: Gateway
) -> None:
    await gateway.client.put(f"{ADMIN}/models/ghost", data=b"{}")
    await gateway.knows("ghost")
    first = (await explain(gateway, model="ghost", limit=2)).json
    assert first["next"] == region.engines[1].id
    rest = (await explain(gateway, model="ghost", limit=2, after=first["next"])).json
    assert rest["next"] is None
    seen = [*first["engines"], *rest["engines"]]
    assert [one["engine"] for one in seen] == [engine.id for engine in region.engines]
    assert {one["reason"] for one in seen} == {"base-mismatch"}
    assert {one["candidate"] for one in seen} == {None}
    assert first["decision"]["winner"] is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "model"),
        ({"model": "nope"}, "model"),
        ({"model": "x" * 10_000}, "model"),
        ({"model": BASE_MODEL, "profile": "nope"}, "profile"),
        ({"model": BASE_MODEL, "prompt_tokens": -1}, "prompt_tokens"),
        ({"model": BASE_MODEL, "prompt_tokens": "7"}, "prompt_tokens"),
        ({"model": BASE_MODEL, "limit": 100_000}, "limit"),
        ({"model": BASE_MODEL, "unknown": 1}, "unknown"),
    ],
)
async def test_a_wrong_question_is_a_400_that_names_the_field(
    gateway: Gateway, body: dict[str, Any], path: str
) -> None:
    answer = await gateway.post(f"{ADMIN}/explain", body)
    assert (answer.status, answer.json["code"], answer.json["path"]) == (400, "invalid-input", path)


async def test_other_methods_are_refused_with_those_that_are_taken(gateway: Gateway) -> None:
    async with gateway.client.get(f"{ADMIN}/explain") as response:
        assert (response.status, response.headers["allow"]) == (405, "POST")
    async with gateway.client.delete(f"{ADMIN}/decisions/x") as response:
        assert (response.status, response.headers["allow"]) == (405, "GET")


async def test_the_cli_asks_and_names_what_is_wrong_with_a_question(
    gateway: Gateway, key_file: str
) -> None:
    code, out, _ = await axiom(
        "explain", "bot", "--url", gateway.url, "--key-file", key_file, "--json"
    )
    assert (code, json.loads(out)["adapter"]) == (0, "bot~1")
    with pytest.raises(InvalidInputError) as wrong:
        question("no such/ model", prompt_tokens=0, profile=None, limit=1, after="")
    assert wrong.value.path == "model"
