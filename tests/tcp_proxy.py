"""A way to a server of a test that can be cut and healed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16


class TcpProxy:
    """Passes bytes on, both ways, from a port of its own that stays the same."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def heal(self) -> None:
        """From now on connections are passed on."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """All connections end, and new ones are refused."""
        if self._server is not None:
            self._server.close()
        self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            to_reader, to_writer = await asyncio.open_connection(HOST, self._to)
            with contextlib.closing(writer), contextlib.closing(to_writer):
                ways = (_pass_on(reader, to_writer), _pass_on(to_reader, writer))
                passing = [asyncio.ensure_future(way) for way in ways]
                try:
                    await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in passing:
                        way.cancel()
                    await asyncio.gather(*passing, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            # A cut, by the test or by either side.
            return
        finally:
            self._tasks.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[TcpProxy]:
    """One that passes on until the end."""
    proxy = TcpProxy(port)
    await proxy.heal()
    try:
        yield proxy
    finally:
        await proxy.cut()
