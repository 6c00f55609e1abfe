"""A real vLLM goes on with the gateway's trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.engine.real_engine import real_engine
from tests.eventually import eventually
from tests.gateway_region import BASE_MODEL, COMPLETIONS, region_of, served
from tests.otlp_receiver import Seen, otlp_receiver
from tests.scripted_engine import ScriptedEngine, announce

from axiom_common.drivers.otlp_tracer import TRACES_PATH, OtlpTracer
from axiom_common.drivers.system_clock import SystemClock

pytestmark = pytest.mark.engine

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SPAN_OF_VLLM = "llm_request"
WITHIN_S = 60.0


async def test_vllms_own_span_is_the_child_of_the_gateways(pytestconfig: pytest.Config) -> None:
    python: Path = pytestconfig.getoption("engine_python")
    model: Path = pytestconfig.getoption("engine_model")
    async with otlp_receiver() as receiver, region_of(engines=0, agent=False) as region:
        flags = (
            *("--served-model-name", BASE_MODEL),
            *("--otlp-traces-endpoint", receiver.url + TRACES_PATH),
        )
        starting = real_engine(python.absolute(), model.absolute(), flags=flags)
        engine = await asyncio.to_thread(starting.__enter__)
        tracer = OtlpTracer(
            receiver.url,
            ratio=0.0,
            random=Random(1),
            resource={"service.name": "axiom-gateway"},
            clock=SystemClock(),
        )
        try:
            known = ScriptedEngine()
            known.url = engine.url
            async with served(region, tracer=tracer, start_ms=1) as gateway:
                await gateway.sees(*await announce(region, known))
                body = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 4}
                for flags_of_trace in ("00", "01"):
                    parent = f"00-{TRACE}-{PARENT}-{flags_of_trace}"
                    answer = await gateway.post(COMPLETIONS, body, traceparent=parent)
                    assert answer.status == 200, answer.body
            await tracer.close()

            def of_vllm() -> list[Seen]:
                return receiver.named(SPAN_OF_VLLM)

            await eventually(of_vllm, within_s=WITHIN_S)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)
    (call,) = receiver.named("engine")
    # The request that its client does not sample is sampled nowhere.
    (own,) = of_vllm()
    assert (own.trace, own.parent) == (TRACE, call.span)
    assert own.attributes["gen_ai.usage.completion_tokens"] == 4
