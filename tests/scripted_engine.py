"""An engine that sends exactly the bytes that a test wants."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.gateway_region import BASE_MODEL, NODE, REGION, Region

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import EngineAdapter, EngineId, engine_id
from axiom_common.wire import subjects
from axiom_common.wire.schemas import NodeReport, ReportKind, encode

_NUMBERS = itertools.count(1)
Write = Callable[[bytes], Awaitable[None]]
Script = Callable[[bytes, Write], Awaitable[None]]

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return b'data: {"model":"bot~1","text":%s}\n\n' % json.dumps(text).encode()


def whole(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n%s" % (len(body), body)


class ScriptedEngine:
    """A server that sends what a script says, to the byte, and then closes the connection."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.cut = 0
        self.url = ""

    @asynccontextmanager
    async def serving(self, script: Script) -> AsyncIterator[ScriptedEngine]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))

            async def write(data: bytes) -> None:
                writer.write(data)
                await writer.drain()

            try:
                await script(self.requests[-1], write)
            except OSError:
                self.cut += 1
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            server.close()


async def announce(
    region: Region, *engines: ScriptedEngine, adapters: tuple[str, ...] = (), kind: str = "vllm"
) -> tuple[EngineId, ...]:
    """Tell the region that its node has these engines and no others, with `adapters` resident.

    Returns their ids, which no engine had before. Telling it once is enough for a short test: who
    hears no more of engines that are all there is goes on using them.
    """
    seq = next(_NUMBERS)
    ids = tuple(engine_id(NODE, f"s{seq}-{number}") for number in range(len(engines)))
    names = tuple(EngineAdapter(name) for name in adapters)
    states = tuple(
        EngineState(
            engine=at,
            url=engine.url,
            base_model=BASE_MODEL,
            served_name=BASE_MODEL,
            kind=kind,
            status=EngineStatus.READY,
            sample=1,
            limits=EngineLimits(hbm_slots=2, max_lora_rank=16),
            residents=tuple(
                Residency(adapter=name, state=AdapterState.RESIDENT, source=ResidencySource.METRICS)
                for name in names
            ),
            registered=names,
        )
        for at, engine in zip(ids, engines, strict=True)
    )
    report = NodeReport(
        kind=ReportKind.FULL, region=REGION, node=NODE, incarnation=1, seq=seq, engines=states
    )
    await region.agent_bus.publish(subjects.node_report(REGION, NODE), encode(report))
    return ids
