"""What /v1 accepts of a body, and what it says of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from axiom_common.model.ids import BASE, EngineAdapter
from axiom_gateway.errors import ApiError
from axiom_gateway.openai_requests import STRIPPED, Endpoint, parse

CHAT: dict[str, Any] = {"model": "bot", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "bot", "prompt": "hi"}
EMBED: dict[str, Any] = {"model": "bot", "input": "hi"}


@pytest.mark.parametrize(
    ("endpoint", "change", "param"),
    [
        (Endpoint.CHAT, {"model": None}, "model"),
        (Endpoint.CHAT, {"model": ""}, "model"),
        (Endpoint.CHAT, {"model": 5}, "model"),
        (Endpoint.CHAT, {"model": "m" * 257}, "model"),
        (Endpoint.CHAT, {"messages": None}, "messages"),
        (Endpoint.CHAT, {"messages": "hi"}, "messages"),
        (Endpoint.CHAT, {"messages": []}, "messages"),
        (Endpoint.CHAT, {"messages": ["hi"]}, "messages"),
        (Endpoint.CHAT, {"stream": "yes"}, "stream"),
        (Endpoint.CHAT, {"stream_options": True}, "stream_options"),
        (Endpoint.CHAT, {"max_tokens": "five"}, "max_tokens"),
        (Endpoint.CHAT, {"temperature": "hot"}, "temperature"),
        (Endpoint.COMPLETIONS, {"prompt": 5}, "prompt"),
        (Endpoint.COMPLETIONS, {"prompt": []}, "prompt"),
        (Endpoint.COMPLETIONS, {"prompt": None}, "prompt"),
        (Endpoint.COMPLETIONS, {"n": 1.5}, "n"),
        (Endpoint.EMBEDDINGS, {"input": True}, "input"),
    ],
)
def test_a_wrong_field_is_named(endpoint: Endpoint, change: dict[str, Any], param: str) -> None:
    good = {Endpoint.CHAT: CHAT, Endpoint.COMPLETIONS: TEXT, Endpoint.EMBEDDINGS: EMBED}[endpoint]
    parse(endpoint, json.dumps(good).encode())
    with pytest.raises(ApiError) as refusal:
        parse(endpoint, json.dumps(good | change).encode())
    assert (refusal.value.status, refusal.value.param) == (400, param)


@pytest.mark.parametrize(
    ("endpoint", "good", "missing"),
    [
        (Endpoint.CHAT, CHAT, "messages"),
        (Endpoint.CHAT, CHAT, "model"),
        (Endpoint.COMPLETIONS, TEXT, "prompt"),
        (Endpoint.EMBEDDINGS, EMBED, "input"),
    ],
)
def test_a_missing_field_is_named(endpoint: Endpoint, good: dict[str, Any], missing: str) -> None:
    body = json.dumps({k: v for k, v in good.items() if k != missing}).encode()
    with pytest.raises(ApiError) as refusal:
        parse(endpoint, body)
    assert (refusal.value.status, refusal.value.param) == (400, missing)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"nope", b'{"a":' * 5000, b'{"\\ud800":1}', b"\xff"]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        parse(Endpoint.CHAT, body)
    assert (refusal.value.status, refusal.value.param) == (400, None)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("x" * 398, 100), ([1, 2, 3], 3), ([[1, 2], [3]], 3), (["a" * 36, "b" * 36], 20)],
)
def test_prompt_tokens_are_estimated_from_text_and_counted_from_ids(
    prompt: Any, tokens: int
) -> None:
    body = json.dumps(TEXT | {"prompt": prompt}).encode()
    assert parse(Endpoint.COMPLETIONS, body).prompt_tokens == tokens


def test_the_engine_gets_the_body_under_its_own_name_for_the_model() -> None:
    body = json.dumps(CHAT | {"seed": 7, "tools": [{"model": "bot"}]}).encode()
    sent = json.loads(parse(Endpoint.CHAT, body).body_for("bot~3"))
    assert sent == CHAT | {"seed": 7, "tools": [{"model": "bot"}], "model": "bot~3"}


@pytest.mark.parametrize("key", [*(f'"{name}"' for name in STRIPPED), '"kv_transfer_\\u0070arams"'])
def test_orders_about_others_never_reach_an_engine(key: str) -> None:
    body = '{"model":"bot","prompt":"hi",' + key + ':{"do_remote_prefill":true}}'
    sent = json.loads(parse(Endpoint.COMPLETIONS, body.encode()).body_for("bot"))
    assert sent == TEXT


def test_a_repeated_member_means_the_same_to_gateway_and_engine() -> None:
    parsed = parse(Endpoint.COMPLETIONS, b'{"model":"a","prompt":"hi","model":"b"}')
    assert parsed.model == "b"
    assert parsed.body_for("b~1").count(b'"model"') == 1


def test_affinity_tells_adapters_and_first_chunks_apart_and_nothing_else() -> None:
    def of(prompt: str, adapter: EngineAdapter) -> int:
        body = json.dumps({"prompt": prompt, "model": "bot"}).encode()
        return parse(Endpoint.COMPLETIONS, body).affinity_hash(adapter)

    start = "x" * 300
    assert of(start + "one", BASE) == of(start + "two", BASE)
    assert of(start, BASE) != of("y" + start, BASE)
    assert of(start, BASE) != of(start, EngineAdapter("bot~1"))
