"""Connections to engines, on both event loops: what is kept, what is bounded, what is an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop
from tests.eventually import eventually

from axiom_common.errors import UnavailableError
from axiom_common.testing.clock import settle
from axiom_gateway import engine_http
from axiom_gateway.engine_http import (
    BUFFER_BYTES_MAX,
    HEAD_BYTES_MAX,
    EngineConnection,
    EngineConnections,
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
IDLE_S = 0.2

Test = Callable[[], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run(test: Test) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test(), 10))

    return run


class Server:
    """Answers each request with the next of `answers`, keeps connections, remembers bodies."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.reads_bodies = True
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                if self.reads_bodies:
                    self.bodies.append(await reader.readexactly(length))
                writer.write(self.answers.pop(0))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    @asynccontextmanager
    async def serving(self, *, idle_s: float = IDLE_S) -> AsyncIterator[EngineConnections]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        engines = EngineConnections(connect_s=1.0, idle_s=idle_s)
        try:
            yield engines
        finally:
            engines.close()
            server.close()
            for writer in self.connections:
                writer.transport.abort()
            await settle()

    def close_connections(self) -> None:
        for writer in self.connections:
            writer.close()


async def post(engines: EngineConnections, server: Server, body: bytes = b"{}") -> EngineConnection:
    connection = await engines.post(server.url, "/v1/x", b"", body, lambda: True)
    try:
        await connection.read_head()
    except UnavailableError:
        engines.release(connection)
        raise
    return connection


async def answer(engines: EngineConnections, server: Server, body: bytes = b"{}") -> bytes:
    connection = await post(engines, server, body)
    try:
        return await rest_of(connection)
    finally:
        engines.release(connection)


async def rest_of(connection: EngineConnection) -> bytes:
    parts = []
    while part := await connection.read():
        parts.append(part)
    return b"".join(parts)


def test_a_connection_serves_one_request_after_another(run: Run) -> None:
    async def test() -> None:
        server = Server(OK, OK, OK)
        async with server.serving() as engines:
            for number in range(3):
                assert await answer(engines, server, b"%d" % number) == b"ok"
        assert server.bodies == [b"0", b"1", b"2"]
        assert len(server.connections) == 1

    run(test)


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        OK + b"evil",
    ],
)
def test_what_can_not_be_trusted_with_a_second_request_gets_none(run: Run, first: bytes) -> None:
    async def test() -> None:
        server = Server(first, OK)
        async with server.serving() as engines:
            assert await answer(engines, server) == b"ok"
            assert await answer(engines, server) == b"ok"
        assert len(server.connections) == 2

    run(test)


def test_an_answer_that_is_not_read_to_its_end_ends_its_connection(run: Run) -> None:
    async def test() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", OK)
        async with server.serving() as engines:
            engines.release(await post(engines, server))
            assert await answer(engines, server) == b"ok"
        assert len(server.connections) == 2

    run(test)


def test_an_answer_to_a_body_that_is_still_being_sent_is_read_and_the_connection_left(
    run: Run,
) -> None:
    async def test() -> None:
        server = Server(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nok", OK)
        server.reads_bodies = False
        async with server.serving() as engines:
            connection = await post(engines, server, b"x" * (32 << 20))
            assert connection.status == 413
            assert await connection.read() == b"ok"
            assert not connection.reusable
            engines.release(connection)

    run(test)


def test_a_large_body_arrives_whole(run: Run) -> None:
    async def test() -> None:
        server = Server(OK)
        body = bytes(range(256)) * (1 << 16)
        async with server.serving() as engines:
            assert await answer(engines, server, body) == b"ok"
        assert server.bodies == [body]

    run(test)


def test_connections_that_the_engine_closed_or_that_are_old_are_not_used(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        server = Server(OK, OK, OK)
        async with server.serving() as engines:
            connection = await post(engines, server)
            await connection.read()
            engines.release(connection)
            server.close_connections()
            await eventually(lambda: not connection.reusable)
            assert await answer(engines, server) == b"ok"
            assert len(server.connections) == 2
            monkeypatch.setattr(engine_http, "KEEP_ALIVE_S", -1.0)
            assert await answer(engines, server) == b"ok"
            assert len(server.connections) == 3

    run(test)


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" + OK, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nt: x\r\n\r\n",
            b"ok",
        ),
        (b"HTTP/1.1 204 OK\r\n\r\n", b""),
    ],
)
def test_every_legal_framing_is_read(run: Run, sent: bytes, body: bytes) -> None:
    async def test() -> None:
        server = Server(sent, OK)
        async with server.serving() as engines:
            assert await answer(engines, server) == body
            assert await answer(engines, server) == b"ok"
        assert len(server.connections) == 1

    run(test)


def test_an_answer_without_a_length_ends_with_its_connection(run: Run) -> None:
    async def test() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\n\r\nok")
        async with server.serving() as engines:
            connection = await post(engines, server)
            assert await connection.read() == b"ok"
            server.close_connections()
            assert await connection.read() == b""
            engines.release(connection)

    run(test)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (2 * HEAD_BYTES_MAX),
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_unavailable_in_bounded_time(run: Run, sent: bytes) -> None:
    async def test() -> None:
        server = Server(sent)
        async with server.serving() as engines:
            with pytest.raises(UnavailableError):
                await answer(engines, server)
            assert not engines._kept

    run(test)


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"5\r\nab", b"0\r\nt: " + b"x" * (2 * HEAD_BYTES_MAX), b""]
)
def test_a_body_that_breaks_off_is_told_after_what_came_of_it(run: Run, rest: bytes) -> None:
    async def test() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        async with server.serving() as engines:
            connection = await post(engines, server)
            assert await connection.read() == b"ok"
            server.connections[0].write(rest)
            with pytest.raises(UnavailableError):
                await rest_of(connection)
            engines.release(connection)

    run(test)


def test_what_nobody_reads_waits_in_the_socket(run: Run) -> None:
    async def test() -> None:
        size = 64 << 20
        server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
        async with server.serving(idle_s=5.0) as engines:
            connection = await post(engines, server)
            await eventually(lambda: not connection._reading)
            try:
                assert connection._buffered <= 2 * BUFFER_BYTES_MAX
                assert len(await rest_of(connection)) == size
            finally:
                engines.release(connection)

    run(test)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1", "ftp://x", "nothing", "http://", "http://x:99999", "http://é:80"],
)
def test_an_engine_that_can_not_be_reached_is_unavailable(run: Run, url: str) -> None:
    async def test() -> None:
        engines = EngineConnections(connect_s=1.0, idle_s=IDLE_S)
        with pytest.raises(UnavailableError):
            await engines.post(url, "/v1/x", b"", b"{}", lambda: True)

    run(test)
