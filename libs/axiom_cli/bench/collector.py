"""A collector of traces that keeps nothing: OTLP over HTTP, counted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from axiom_cli.stack.servers import HOST

PATH = "/v1/traces"


class Collector:
    """Where spans are sent, and how many came."""

    def __init__(self) -> None:
        self.url = ""
        self.spans = 0

    async def take(self, request: web.Request) -> web.Response:
        """Count the spans of one request of OTLP."""
        sent = ExportTraceServiceRequest.FromString(await request.read())
        self.spans += sum(len(s.spans) for r in sent.resource_spans for s in r.scope_spans)
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """One in this process, on a free port."""
    found = Collector()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post(PATH, found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        found.url = "http://{}:{}".format(*runner.addresses[0][:2])
        yield found
    finally:
        await runner.cleanup()
