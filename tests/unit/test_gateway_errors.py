"""Refusals in OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from tests import decided_parts

from axiom_common.model.decision import LoadKind
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.model.outcome import Ending, Outcome, Usage
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import AXIOM
from axiom_gateway.decisions import Asked, DecisionLog, DecisionRecord, RequestRecord
from axiom_gateway.errors import NAMES_SHOWN_MAX, from_engine, refused, unknown_model
from axiom_gateway.rewrite import Renaming


@pytest.mark.parametrize(
    ("reason", "status", "retries"),
    [
        (Reason.ALL_SATURATED, 429, True),
        (Reason.ALL_QUARANTINED, 429, True),
        (Reason.NO_ENGINE, 503, True),
        (Reason.SHUTTING_DOWN, 503, True),
        (Reason.ADAPTER_NOT_FOUND, 503, True),
        (Reason.ENGINE_FAILED, 502, True),
        (Reason.DEADLINE_EXCEEDED, 504, False),
    ],
)
def test_each_reason_has_its_status(reason: Reason, status: int, retries: bool) -> None:
    error = refused(reason)
    assert (error.status, error.error_code) == (status, reason)
    assert (error.retry_after_s is not None) is retries


def test_every_reason_makes_a_whole_error() -> None:
    for reason in Reason:
        body = json.loads(refused(reason, "why").body())["error"]
        assert set(body) == {"message", "type", "param", "code"}
        assert body["message"].endswith("why")


def test_an_unknown_model_shows_a_bounded_number_of_names() -> None:
    names = [f"m{n}" for n in range(NAMES_SHOWN_MAX + 7)]
    message = unknown_model("x" * 5000, names).message
    assert "m0, m1" in message
    assert "and 7 more" in message
    assert len(message) < 1000
    assert "You may use: none." in unknown_model("x", []).message


@pytest.mark.parametrize(
    "body", [b"", b"busy", b'{"detail":"x"}', b"[" * 9999, b'{"error":"x"}', b"\xff"]
)
def test_what_an_engine_says_in_another_shape_is_kept_as_text(body: bytes) -> None:
    error = from_engine(418, body)
    assert error.status == 418
    assert json.loads(error.body())["error"]["message"].startswith("The engine answered 418")


def test_sglang_puts_an_error_at_the_top_of_the_body() -> None:
    body = {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}
    error = from_engine(400, json.dumps(body).encode())
    assert (error.message, error.kind, error.error_code) == ("too long", "BadRequestError", 400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The model `bot~1` does not exist.", "The model `bot` does not exist."),
        ("lora:bot~1: no /weights/bot~1/a.bin", "lora:bot: no /weights/bot/a.bin"),
        ("bot~1, bot~12", "bot, bot~12"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_an_adapters_name_on_the_engine_is_replaced_wherever_it_stands(
    text: str, expected: str
) -> None:
    assert Renaming("bot~1", "bot").text(text) == expected
    at_sglang = Renaming("base:bot~1", "bot", adapter=EngineAdapter("bot~1"))
    assert at_sglang.text(text.replace("`bot~1", "`base:bot~1")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The model `org/m` does not exist.", "The model `base` does not exist."),
        ("org/m: no. org/m.", "base: no. base."),
        ("org/m2, my-org/m and org/m:x", "org/m2, my-org/m and org/m:x"),
    ],
)
def test_another_name_on_the_engine_is_replaced_as_a_word(text: str, expected: str) -> None:
    assert Renaming("org/m", "base").text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<html><body>Bad gateway</body></html>",
        'Traceback (most recent call last):\n  File "engine.py", line 1, in f',
    ],
)
def test_pages_and_stack_traces_are_not_shown(text: str) -> None:
    for body in (text.encode(), json.dumps({"error": {"message": text}}).encode()):
        assert from_engine(400, body).message.rstrip(".") == "The engine answered 400"


SERVED = Outcome(Ending.SERVED, 200, None, EngineId("node.engine"), 0, 0.0, None, 9.5, None, None)


ASKED = Asked("base", EngineAdapter("a~1"), 8, 1024, 12)


def decided(attempt: int = 1) -> DecisionRecord:
    return DecisionRecord(
        at_ms=0.0,
        took_ms=0.125,
        attempt=attempt,
        excluded=(),
        weights=AXIOM.weight_of_each,
        decision=decided_parts.decided(),
    )


def ended(decision_id: str, *attempts: int, outcome: Outcome = SERVED) -> RequestRecord:
    return RequestRecord(decision_id, ASKED, [decided(one) for one in attempts], outcome)


def test_the_log_of_decisions_keeps_the_latest_ids_with_all_their_tries() -> None:
    log = DecisionLog(ids_max=2)
    for record in (ended("a", 1), ended("b", 1, 2), ended("c", 1)):
        log.keep([record])
    assert log.get("a") is None
    assert log.get("b") == ended("b", 1, 2)
    assert log.get("c") == ended("c", 1)


def test_the_log_of_decisions_is_bounded_in_bytes_and_never_tells_half_of_one() -> None:
    log = DecisionLog(ids_max=1_000, bytes_max=1_000)
    ids = [f"id-{number}" for number in range(300)]
    for decision_id in ids:
        log.keep([ended(decision_id, 1)])
        assert log.get(decision_id) == ended(decision_id, 1)
    kept = [decision_id for decision_id in ids if log.get(decision_id) is not None]
    assert 2 <= len(kept) < 10
    assert kept == ids[-len(kept) :]


def test_an_id_is_found_among_those_kept_with_it_and_no_part_of_one_is() -> None:
    log = DecisionLog()
    log.keep([ended("id-1", 1), ended("id-12", 2)])
    log.keep([ended("id-13", 3)])
    assert log.get("id-1") == ended("id-1", 1)
    assert log.get("id-12") == ended("id-12", 2)
    assert log.get("id-13") == ended("id-13", 3)
    assert log.get("id") is None
    assert log.get("\ud800") is None


def test_what_ended_is_given_as_it_was_kept() -> None:
    log = DecisionLog()
    decision = decided_parts.decided(
        "node.engine", "node.other", load=LoadKind.JOIN, refusals={Reason.DRAINING: 2}
    )
    outcome = Outcome(
        *(Ending.BROKEN, 200, Reason.ENGINE_FAILED, "node.engine", 1),
        *(0.0, None, 9.5, None, 0.25, Usage(12, None, 3)),
    )
    one = decided()._replace(decision=decision, excluded=(EngineId("node.other"),))
    record = RequestRecord("a", ASKED, [one], outcome)
    log.keep([record])
    kept = log.get("a")
    assert kept == record
    assert kept is not None
    whole = kept.decisions[0].decision.whole()
    assert whole.winner is not None
    assert whole.winner.cost_ms == 1.5
    assert [one.engine for one in whole.runners_up] == ["node.other"]
    assert whole.refusals == {Reason.DRAINING: 2}
