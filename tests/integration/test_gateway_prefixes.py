"""Requests go where their prompt lies in a cache already: as agents tell it, or as predicted."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.eventually import eventually, succeeds
from tests.gateway_region import (
    BASE_MODEL,
    CHAT,
    COMPLETIONS,
    REGION,
    Answer,
    Gateway,
    Region,
    region_of,
    served,
)
from tests.prompt_teller import TOKENS_OF_FACT, PromptTeller, model_folder, words

from axiom_common.model.ids import EngineId
from axiom_common.policy.registry import SCORERS
from axiom_common.state.prefix_index import ROW
from axiom_common.wire.decisions import Explanation, WhyView

LOOKS_MAX = 100


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=3, prompt_tokens_details=True) as region:
        yield region


@pytest.fixture
async def gateway(region: Region, model: Path) -> AsyncIterator[Gateway]:
    prompts = ({"base_model": BASE_MODEL, "tokenizer": model},)
    async with served(region, prompts=prompts) as gateway:
        yield gateway


def teller_of(region: Region, model: Path) -> PromptTeller:
    return PromptTeller(region.agent_bus, REGION, BASE_MODEL, model)


def is_known(gateway: Gateway, teller: PromptTeller, engine: EngineId, prompt: str) -> bool:
    """Whether the gateway knows that the engine holds the prompt."""
    links = teller.links(prompt)
    found, _ = gateway.app.prefix.prefixes.index_of(BASE_MODEL).lookup(array("Q", links))
    row = gateway.app.state.number(engine), len(links), TOKENS_OF_FACT * len(links)
    return row in ROW.iter_unpack(found)


def all_heard(gateway: Gateway) -> bool:
    rows = [facts.row for facts in gateway.app.state.engines.values()]
    return all(row is not None and not (row.stale or row.unheard) for row in rows)


async def until_known(
    gateway: Gateway, teller: PromptTeller, engine: EngineId, prompt: str
) -> None:
    """Tell that the engine holds the prompt, until the gateway goes by it: on a slow machine the
    agent may be dead for a moment."""

    async def goes_by_it() -> None:
        if gateway.app.prefix.prefixes.predicts(engine):
            await teller.tell(engine, prompt)
        assert is_known(gateway, teller, engine, prompt)
        assert all_heard(gateway)

    await succeeds(goes_by_it, despite=AssertionError, within_s=20)


async def ask(gateway: Gateway, prompt: str) -> Answer:
    """Once all engines are heard: those that are not lose to those that are."""
    await eventually(lambda: all_heard(gateway))
    body = {"model": BASE_MODEL, "prompt": prompt, "max_tokens": 2}
    answer = await gateway.post(COMPLETIONS, body)
    assert answer.status == 200
    return answer


async def why(gateway: Gateway, answer: Answer) -> WhyView:
    """Once the request is at its end here too."""
    path = f"/admin/v1/decisions/{answer.headers['x-axiom-decision-id']}"
    found: list[WhyView] = []

    async def look() -> bool:
        view = WhyView.model_validate_json((await gateway.get(path)).body)
        found.append(view)
        return view.outcome is not None

    for _ in range(LOOKS_MAX):
        if await look():
            return found[-1]
    raise AssertionError("it does not end")


async def test_a_prompt_goes_to_the_engine_that_holds_it_and_why_says_how_much(
    region: Region, gateway: Gateway, model: Path
) -> None:
    teller = teller_of(region, model)
    topics = [words("contract"), words("recipe"), words("voyage")]
    for turn in range(2):
        for engine, topic in zip(region.engines, topics, strict=True):
            await until_known(gateway, teller, engine.id, topic)
            answer = await ask(gateway, f"{topic} And then? {turn}")
            view = await why(gateway, answer)
            assert answer.engine == engine.id, view
            assert view.outcome is not None
            assert view.outcome.matched_tokens
            assert view.outcome.matched_tokens % TOKENS_OF_FACT == 0
            decision = view.attempts[0].decision
            assert decision.winner is not None
            others = [part.value for one in decision.runners_up for part in one.parts]
            prefill = next(p for p in decision.winner.parts if p.score == "prefix-match")
            assert prefill.value > 0.5
            assert len(others) == 2 * len(SCORERS)
    assert gateway.counted("prompt_texts_total", outcome="told") == 6


async def test_explain_says_where_a_prompt_would_go_and_who_holds_it(
    region: Region, gateway: Gateway, model: Path
) -> None:
    teller, prompt = teller_of(region, model), words("contract")
    engine = region.engines[2].id
    await until_known(gateway, teller, engine, prompt)
    asked = {"model": BASE_MODEL, "prompt": prompt}
    told = Explanation.model_validate_json((await gateway.post("/admin/v1/explain", asked)).body)
    assert told.decision.winner is not None
    assert told.decision.winner.engine == engine
    assert told.matched_tokens == TOKENS_OF_FACT * len(teller.links(prompt))
    assert told.prompt_tokens >= len(prompt) // 4
    held = {
        one.engine: part.value
        for one in told.engines
        if one.candidate is not None
        for part in one.candidate.parts
        if part.score == "prefix-match"
    }
    assert held.pop(engine) > 0.5
    assert set(held.values()) == {0.0}
    unasked = Explanation.model_validate_json(
        (await gateway.post("/admin/v1/explain", {"model": BASE_MODEL})).body
    )
    assert unasked.matched_tokens is None


async def test_what_no_engine_holds_any_more_is_not_matched(
    region: Region, gateway: Gateway, model: Path
) -> None:
    teller, prompt = teller_of(region, model), words("contract")
    engine = region.engines[1].id
    prefixes = gateway.app.prefix.prefixes
    await until_known(gateway, teller, engine, prompt)
    assert (await ask(gateway, prompt)).engine == engine
    await teller.tell(engine)
    await eventually(lambda: not prefixes.entries)
    assert prefixes.told_engines == 1
    outcome = (await why(gateway, await ask(gateway, prompt))).outcome
    assert outcome is not None
    assert outcome.matched_tokens == 0


async def test_an_engine_that_tells_nothing_is_taken_to_hold_what_it_answered(
    gateway: Gateway,
) -> None:
    prompt = words("contract")
    first = await ask(gateway, prompt)
    begun = (await why(gateway, first)).outcome
    assert begun is not None
    assert (begun.matched_tokens, begun.cached_tokens) == (0, 0)
    # What answers count sets the measure of the next predictions.
    other = await ask(gateway, words("recipe"))
    assert other.engine != first.engine
    for turn in range(2):
        again = await ask(gateway, f"{prompt} And then? {turn}")
        assert again.engine == first.engine
        outcome = (await why(gateway, again)).outcome
        assert outcome is not None
        assert outcome.matched_tokens
        assert outcome.cached_tokens
    matched = gateway.counted("matched_tokens_total")
    assert matched > 0
    assert gateway.counted("cached_tokens_total") > 0


async def test_an_answer_that_found_less_in_its_cache_ends_the_prediction(
    region: Region, gateway: Gateway
) -> None:
    prompt = words("contract")
    prefixes = gateway.app.prefix.prefixes
    first = await ask(gateway, prompt)
    engine = region.engine(first.engine)
    await why(gateway, first)
    held = prefixes.predicted
    # The engine begins anew, with an empty cache, and nobody tells.
    await engine.kill()
    engine.start()
    await gateway.sees(engine.id)

    async def disproved() -> bool:
        answer = await ask(gateway, prompt)
        outcome = (await why(gateway, answer)).outcome
        assert outcome is not None
        return answer.engine == engine.id and outcome.cached_tokens == 0

    for _ in range(LOOKS_MAX):
        if await disproved():
            break
    assert prefixes.predicted < held


async def test_a_chat_without_a_template_is_served_and_counted_as_untold(
    gateway: Gateway,
) -> None:
    body = {"model": BASE_MODEL, "messages": [{"role": "user", "content": words("x", 40)}]}
    answer = await gateway.post(CHAT, body | {"max_tokens": 2})
    assert answer.status == 200
    outcome = (await why(gateway, answer)).outcome
    assert outcome is not None
    assert outcome.matched_tokens is None
    assert gateway.counted("prompt_texts_total", outcome="no-chat-template") == 1


async def test_without_prompts_in_its_settings_a_gateway_makes_no_texts(region: Region) -> None:
    async with served(region) as gateway:
        answer = await ask(gateway, words("contract"))
        outcome = (await why(gateway, answer)).outcome
        assert outcome is not None
        assert outcome.matched_tokens is None
        assert gateway.app.prefix.prefixes.entries == 0
