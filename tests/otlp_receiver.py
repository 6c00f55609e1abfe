"""A collector of traces: real OTLP over HTTP on a socket; keeps the spans and the bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Seen(NamedTuple):
    """A span as it arrived. `error` is its status text, None where it has no error."""

    service: str
    name: str
    kind: int
    trace: str
    span: str
    parent: str
    error: str | None
    attributes: dict[str, Any]


class OtlpReceiver:
    """What arrived. `answer` is called before each answer: it may wait, or give a status."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.answers = asyncio.Event()
        self.answers.set()
        self.url = ""

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(body)
        await self.answers.wait()
        if self.status == 200:
            self._keep(ExportTraceServiceRequest.FromString(body))
        return web.Response(
            status=self.status,
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    def _keep(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [
                    Seen(
                        service=about["service.name"],
                        name=span.name,
                        kind=span.kind,
                        trace=span.trace_id.hex(),
                        span=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        error=span.status.message if span.status.code == 2 else None,
                        attributes=_attributes(span.attributes),
                    )
                    for span in scope.spans
                ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """One on a free port of this host."""
    receiver = OtlpReceiver()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/traces", receiver._take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        receiver.answers.set()
        await runner.cleanup()
