"""The process of a gateway that traces: what it sends at its end, and what it loads before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.otlp_receiver import otlp_receiver
from tests.service_process import service_process

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NOWHERE = "127.0.0.1:9"
END_MAX_S = 20


def settings(**more: Any) -> dict[str, Any]:
    away = {"nats_url": f"nats://{NOWHERE}", "redis_url": f"redis://{NOWHERE}"}
    return away | {"region": "r", "gateway": "gw", "start_ms": 1, "drain_ms": 1} | more


def asked(url: str) -> int:
    """The status of a request that its client samples."""
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=b'{"model": "bot", "prompt": "hi"}',
        headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
    )
    with pytest.raises(urllib.error.HTTPError) as error, urllib.request.urlopen(request, timeout=9):
        pass
    with error.value as answer:
        return answer.code


async def test_the_last_spans_are_sent_at_the_end(tmp_path: Path) -> None:
    async with otlp_receiver() as receiver:
        gateway = service_process("gateway", tmp_path, settings(otlp_endpoint=receiver.url))
        await asyncio.to_thread(gateway.start)
        status = await asyncio.to_thread(asked, gateway.url)
        await asyncio.to_thread(gateway.stop)
        (span,) = receiver.spans
    assert status == 503
    assert (span.service, span.trace, span.parent) == ("axiom-gateway", TRACE, PARENT)
    assert span.attributes["http.response.status_code"] == 503
    assert span.error == "refused"


async def test_a_collector_that_does_not_answer_holds_no_end_up(tmp_path: Path) -> None:
    async with otlp_receiver() as receiver:
        receiver.answers.clear()
        gateway = service_process("gateway", tmp_path, settings(otlp_endpoint=receiver.url))
        await asyncio.to_thread(gateway.start)
        await asyncio.to_thread(asked, gateway.url)
        process = gateway._process
        assert process is not None
        process.terminate()
        assert await asyncio.to_thread(process.wait, END_MAX_S) == 0
        gateway.stop()
        assert receiver.bodies
        assert receiver.spans == []


def test_a_gateway_that_does_not_trace_loads_nothing_for_it() -> None:
    show = "import sys, axiom_gateway.__main__; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(run.stdout.split())
    assert "axiom_gateway.app" in loaded
    assert not loaded & {
        "axiom_common.drivers.otlp_tracer",
        "opentelemetry.sdk.trace",
        "opentelemetry.exporter.otlp.proto.http",
        "google.protobuf",
    }
