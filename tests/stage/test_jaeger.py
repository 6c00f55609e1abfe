"""A real Jaeger reads back what a request was: client, gateway and node agent in one trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest
from tests.gateway_region import region_of, served
from tests.servers import running
from tests.stage.jaeger import Jaeger, ReadSpan

from axiom_common.drivers.otlp_tracer import OtlpTracer
from axiom_common.drivers.system_clock import SystemClock

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
WITHIN_S = 30.0
MESSAGES: list[Any] = [{"role": "user", "content": "the-words-of-a-prompt"}]


@pytest.fixture(scope="module")
def jaeger(jaeger_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    found = Jaeger(jaeger_binary, tmp_path_factory.mktemp("jaeger"))
    with running(found.server):
        yield found


def tracer_to(jaeger: Jaeger, service: str) -> OtlpTracer:
    return OtlpTracer(
        jaeger.otlp_url,
        ratio=0.0,
        random=Random(service),
        resource={"service.name": service},
        clock=SystemClock(),
    )


async def ask(url: str, model: str, traceparent: str) -> str:
    """One request of the `openai` client, streamed to its end; the id of its decision."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model=model,
            messages=MESSAGES,
            max_tokens=4,
            stream=True,
            extra_headers={"traceparent": traceparent},
        )
        async for _ in answer.parse():
            pass
        return answer.headers["x-axiom-decision-id"]


async def read(jaeger: Jaeger, trace: str, names: set[str]) -> dict[str, ReadSpan]:
    """The spans of a trace by name, once these are there."""
    found: dict[str, ReadSpan] = {}

    async def complete() -> bool:
        spans = await asyncio.to_thread(jaeger.trace, trace)
        found.update({span.name: span for span in spans})
        return names <= found.keys()

    async with asyncio.timeout(WITHIN_S):
        while not await complete():
            await asyncio.sleep(0.1)
    return found


async def test_a_request_of_the_openai_client_is_read_back_with_its_load(jaeger: Jaeger) -> None:
    gateway_tracer = tracer_to(jaeger, "axiom-gateway")
    agent_tracer = tracer_to(jaeger, "axiom-node-agent")
    async with region_of(engines=1, agent=False) as region:
        await region.start_agent(tracer=agent_tracer)
        await region.declare("bot")
        async with served(region, tracer=gateway_tracer) as gateway:
            await gateway.knows("bot")
            decision = await ask(gateway.url, "bot", f"00-{TRACE}-{PARENT}-01")
            # Its parent says no: nothing of it may arrive, before or after what follows.
            await ask(gateway.url, "bot", f"00-{OTHER_TRACE}-{PARENT}-00")
        await gateway_tracer.close()
        await agent_tracer.close()
    root_name = "POST /v1/chat/completions"
    names = {root_name, "decide", "load adapter", "ensure adapter", "engine"}
    spans = await read(jaeger, TRACE, names)
    assert set(spans) == names
    root, load, engine = spans[root_name], spans["load adapter"], spans["engine"]
    assert {spans[name].parent for name in ("decide", "load adapter", "engine")} == {root.span}
    assert (root.parent, spans["ensure adapter"].parent) == (PARENT, load.span)
    assert {span.service for span in spans.values()} == {"axiom-gateway", "axiom-node-agent"}
    assert spans["ensure adapter"].service == "axiom-node-agent"
    assert root.tags["axiom.decision.id"] == decision
    assert root.tags["axiom.ending"] == "served"
    assert root.tags["http.response.status_code"] == 200
    assert (root.tags["span.kind"], engine.tags["span.kind"]) == ("server", "client")
    assert engine.tags["axiom.ttft_ms"] > 0.0
    assert spans["decide"].tags["axiom.candidate.1.engine"] == root.tags["axiom.engine"]
    assert spans["decide"].tags["axiom.candidate.1.cost_ms"] >= 0.0
    assert await asyncio.to_thread(jaeger.trace, OTHER_TRACE) == []
    assert "the-words-of-a-prompt" not in str(spans)
