"""Traces of a gateway: real spans at a real collector, one trace with client and engine, no word of
a prompt; a collector that is away costs spans only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.eventually import eventually
from tests.gateway_region import COMPLETIONS, Answer, Gateway, Region, region_of, served
from tests.otlp_receiver import OtlpReceiver, Seen, otlp_receiver
from tests.scripted_engine import (
    STREAM_HEAD,
    ScriptedEngine,
    Write,
    announce,
    chunk,
    event,
    whole,
)

from axiom_common.drivers.otlp_tracer import QUEUE_MAX, OtlpTracer
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.ports.tracing import Tracer

CLIENT, SERVER = 3, 2
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT}-00"
SECRET = "the-words-of-a-prompt"
ANSWER = "the-words-of-an-answer"
ROOT = f"POST {COMPLETIONS}"
WITHIN_S = 30.0


def tracer_to(url: str, *, ratio: float = 0.0, service: str = "axiom-gateway") -> OtlpTracer:
    resource = {"service.name": service}
    return OtlpTracer(url, ratio=ratio, random=Random(7), resource=resource, clock=SystemClock())


@asynccontextmanager
async def traced(*, ratio: float = 0.0) -> AsyncIterator[tuple[OtlpReceiver, OtlpTracer]]:
    async with otlp_receiver() as receiver:
        tracer = tracer_to(receiver.url, ratio=ratio)
        yield receiver, tracer
        await tracer.close()


@asynccontextmanager
async def gateway_of(
    tracer: Tracer, *engines: ScriptedEngine, **settings: Any
) -> AsyncIterator[tuple[Region, Gateway]]:
    async with region_of(engines=0, agent=False) as region:
        await region.declare("bot")
        async with served(region, tracer=tracer, start_ms=1, **settings) as gateway:
            await gateway.knows("bot")
            await gateway.sees(*await announce(region, *engines, adapters=("bot~1",)))
            yield region, gateway


async def ask(gateway: Gateway, *, stream: bool = True, **headers: str) -> Answer:
    body = {"model": "bot", "prompt": SECRET, "stream": stream}
    return await gateway.post(COMPLETIONS, body, **headers)


async def streams(_: bytes, write: Write) -> None:
    await write(STREAM_HEAD + chunk(event(ANSWER)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def refuses(_: bytes, write: Write) -> None:
    await write(whole(500, f'{{"error":{{"message":"bad: {SECRET}"}}}}'.encode()))


def sent_traceparent(request: bytes) -> str:
    head = request.partition(b"\r\n\r\n")[0].decode()
    (line,) = [line for line in head.split("\r\n") if line.startswith("traceparent: ")]
    return line.removeprefix("traceparent: ")


def by_name(spans: list[Seen]) -> dict[str, Seen]:
    return {span.name: span for span in spans}


async def test_client_gateway_and_engine_are_one_trace() -> None:
    engine = ScriptedEngine()
    async with traced() as (receiver, tracer), engine.serving(streams):
        async with gateway_of(tracer, engine) as (_, gateway):
            state = "vendor=1"
            answer = await ask(gateway, traceparent=SAMPLED, tracestate=state)
            decision_id = answer.headers["x-axiom-decision-id"]
        await tracer.close()
        spans = by_name(receiver.spans)
    assert set(spans) == {ROOT, "decide", "engine"}
    root, decide, call = spans[ROOT], spans["decide"], spans["engine"]
    assert {span.trace for span in receiver.spans} == {TRACE}
    assert (root.parent, decide.parent, call.parent) == (PARENT, root.span, root.span)
    assert (root.kind, call.kind) == (SERVER, CLIENT)
    assert sent_traceparent(engine.requests[0]) == f"00-{TRACE}-{call.span}-01"
    assert b"tracestate: vendor=1\r\n" in engine.requests[0]
    assert root.attributes["axiom.decision.id"] == decision_id
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["axiom.ending"] == "served"
    assert call.attributes["axiom.ttft_ms"] > 0.0
    assert {span.error for span in receiver.spans} == {None}
    assert {span.service for span in receiver.spans} == {"axiom-gateway"}


async def test_a_decision_tells_its_candidates_and_what_it_left_out() -> None:
    engines = [ScriptedEngine() for _ in range(3)]
    async with traced(ratio=1.0) as (receiver, tracer):
        async with (
            engines[0].serving(streams),
            engines[1].serving(streams),
            engines[2].serving(streams),
            gateway_of(tracer, *engines) as (_, gateway),
        ):
            answer = await ask(gateway)
        await tracer.close()
        (decide,) = receiver.named("decide")
    told = decide.attributes
    assert told["axiom.candidate.1.engine"] == answer.engine
    costs = [told[f"axiom.candidate.{place}.cost_ms"] for place in (1, 2, 3)]
    assert costs == sorted(costs)
    for place, cost_ms in enumerate(costs, start=1):
        terms = told[f"axiom.candidate.{place}.terms_ms"].split(", ")
        assert sum(float(term.split()[1]) for term in terms) == pytest.approx(cost_ms, abs=1e-2)
    assert receiver.named(ROOT)[0].parent == ""


async def test_a_retry_is_a_second_try_in_the_same_trace() -> None:
    engines = [ScriptedEngine(), ScriptedEngine()]
    async with traced(ratio=1.0) as (receiver, tracer):
        async with (
            engines[0].serving(refuses),
            engines[1].serving(refuses),
            gateway_of(tracer, *engines) as (_, gateway),
        ):
            assert (await ask(gateway)).status == 502
        await tracer.close()
    tries = receiver.named("engine")
    assert len({span.attributes["axiom.engine"] for span in tries}) == 2
    assert [span.error for span in tries] == ["failed", "failed"]
    (root,) = receiver.named(ROOT)
    assert root.attributes["axiom.reason"] == "engine-failed"
    assert root.attributes["http.response.status_code"] == 502
    assert root.error == "refused"
    assert len({span.trace for span in receiver.spans}) == 1


async def test_no_word_of_a_prompt_or_an_answer_leaves_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = ScriptedEngine(), ScriptedEngine()
    caplog.set_level(logging.DEBUG)
    async with traced(ratio=1.0) as (receiver, tracer):
        async with good.serving(streams), gateway_of(tracer, good) as (_, gateway):
            assert (await ask(gateway)).status == 200
            broken = f'{{"model":"bot","prompt":"{SECRET}",'.encode()
            assert (await gateway.post(COMPLETIONS, broken)).status == 400
            unknown = {"model": SECRET, "prompt": "x"}
            assert (await gateway.post(COMPLETIONS, unknown)).status == 404
        async with bad.serving(refuses), gateway_of(tracer, bad) as (_, gateway):
            assert (await ask(gateway)).status == 502
        await tracer.close()
    assert SECRET.encode() in good.requests[0]
    assert len(receiver.named(ROOT)) == 4
    sent = b"".join(receiver.bodies)
    logged = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    for words in (SECRET, ANSWER):
        assert words.encode() not in sent
        assert words not in logged


async def test_a_load_is_a_span_of_the_agent_below_the_request_that_waits() -> None:
    async with traced(ratio=1.0) as (receiver, tracer), region_of(engines=1, agent=False) as region:
        agent_tracer = tracer_to(receiver.url, service="axiom-node-agent")
        await region.start_agent(tracer=agent_tracer)
        await region.declare("bot")
        async with served(region, tracer=tracer) as gateway:
            await gateway.knows("bot")
            assert (await gateway.ask("bot")).status == 200
        await tracer.close()
        await agent_tracer.close()
    spans = by_name(receiver.spans)
    load, ensure = spans["load adapter"], spans["ensure adapter"]
    assert (load.parent, ensure.parent) == (spans[ROOT].span, load.span)
    assert (load.service, ensure.service) == ("axiom-gateway", "axiom-node-agent")
    assert {span.trace for span in receiver.spans} == {ensure.trace}
    assert ensure.attributes["axiom.adapter"] == load.attributes["axiom.adapter"] == "bot~1"
    assert ensure.attributes["axiom.outcome"] == "resident"


async def test_a_load_that_nobody_traces_is_no_span() -> None:
    async with traced() as (receiver, tracer), region_of(engines=1, agent=False) as region:
        await region.start_agent(tracer=tracer)
        await region.declare("bot")
        async with served(region, tracer=tracer) as gateway:
            await gateway.knows("bot")
            assert (await gateway.ask("bot")).status == 200
        await tracer.close()
        assert tracer.counts.ended == 0
        assert receiver.bodies == []


def logged_fields(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(r)["fields"] for r in caplog.records if r.getMessage() == event]


async def test_a_line_of_the_log_names_request_decision_and_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ScriptedEngine()
    async with (
        traced() as (_, tracer),
        engine.serving(refuses),
        gateway_of(tracer, engine) as (_, gateway),
    ):
        first, second = [
            await ask(gateway, traceparent=parent, **{"x-request-id": name})
            for parent, name in ((SAMPLED, "mine-1"), (NOT_SAMPLED, "mine-2"))
        ]
    assert (first.status, second.status) == (502, 502)
    # The second one is counted and left out for a minute.
    (line,) = logged_fields(caplog, "request refused")
    assert (line["request"], line["trace"]) == ("mine-1", TRACE)
    assert line["decision"] == first.headers["x-axiom-decision-id"]
    assert (line["reason"], line["status"]) == ("engine-failed", 502)


async def test_a_defect_of_the_gateway_is_logged_without_its_words(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine()
    async with traced() as (receiver, tracer), engine.serving(streams):
        async with gateway_of(tracer, engine) as (_, gateway):

            def breaks(*_: object) -> None:
                raise ValueError(SECRET)

            monkeypatch.setattr(gateway.app.state, "decide", breaks)
            answer = await ask(gateway, traceparent=SAMPLED)
        await tracer.close()
    assert answer.status == 500
    (line,) = logged_fields(caplog, "request failed")
    assert (line["error"], line["trace"]) == ("ValueError", TRACE)
    assert line["decision"] == answer.headers["x-axiom-decision-id"]
    assert "breaks" in line["way"][-1]
    assert SECRET not in str([vars(record) for record in caplog.records])
    assert receiver.named("decide")[0].error == "ValueError"
    assert SECRET.encode() not in b"".join(receiver.bodies)


async def test_what_its_client_does_not_sample_is_not_sampled_further_on() -> None:
    engine = ScriptedEngine()
    async with traced(ratio=1.0) as (receiver, tracer), engine.serving(streams):
        async with gateway_of(tracer, engine) as (_, gateway):
            await ask(gateway, traceparent=NOT_SAMPLED)
        await tracer.close()
    assert sent_traceparent(engine.requests[0]) == NOT_SAMPLED
    assert receiver.spans == []


async def test_chance_decides_for_clients_that_do_not_say() -> None:
    engine = ScriptedEngine()
    async with traced(ratio=0.25) as (receiver, tracer), engine.serving(streams):
        async with gateway_of(tracer, engine) as (_, gateway):
            for _ in range(80):
                await ask(gateway, traceparent="00-1")
        await tracer.close()
    parents = [sent_traceparent(request) for request in engine.requests]
    sampled = [parent for parent in parents if parent.endswith("-01")]
    assert {parent.split("-")[1] for parent in sampled} == {s.trace for s in receiver.named(ROOT)}
    assert 5 <= len(sampled) <= 40
    assert len({parent.split("-")[1] for parent in parents}) == 80


async def test_a_collector_that_is_away_delays_no_request() -> None:
    """It takes what it is sent and never answers; many more requests than fit into the queue."""
    engine = ScriptedEngine()
    async with traced(ratio=1.0) as (receiver, tracer), engine.serving(streams):
        receiver.answers.clear()
        async with gateway_of(tracer, engine) as (_, gateway):
            for _ in range(QUEUE_MAX):
                with tracer.begin("filler", None, None):
                    pass
            await eventually(lambda: receiver.bodies, within_s=WITHIN_S)
            async with asyncio.timeout(WITHIN_S):
                answers = [await ask(gateway) for _ in range(20)]
        assert {answer.status for answer in answers} == {200}
        assert tracer.counts.sent == 0
        assert tracer.counts.ended > QUEUE_MAX


async def test_what_a_collector_refuses_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with traced(ratio=1.0) as (receiver, tracer):
        receiver.status = 400
        for _ in range(3):
            with tracer.begin("x", None, None):
                pass
        await tracer.close()
    assert tracer.counts == (3, 0, 3)
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.getMessage() == "spans not sent"
