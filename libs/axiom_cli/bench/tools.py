"""The stand-in for engines and the load on routers: two small C programs, and what they say.

Python could not keep the fastest peers busy. They are compiled once into the folder of the peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from axiom_cli.bench.processes import running
from axiom_cli.stack.servers import HOST
from axiom_common.errors import NotFoundError, UnavailableError

CHUNKS = 64
"""Events of a stream, before its last one."""
GAP_US = 5_000
"""Between two events; the first one is due so long after the request."""
LOAD_GRACE_S = 80.0
_SOURCES = Path(__file__).parent / "native"
_FIRST_PORTS = range(20_000, 32_000, 2_000)
_COMPILE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Where the two programs lie."""

    engine: Path
    load: Path


def built_tools(folder: Path) -> Tools:
    """Compile what is missing or older than its source; NotFoundError without a compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    return Tools(engine=_built("engine", folder), load=_built("load", folder))


def _built(name: str, folder: Path) -> Path:
    source, program = _SOURCES / f"{name}.c", folder / name
    if program.is_file() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    try:
        subprocess.run(
            ["cc", "-O2", "-o", program, source],
            check=True,
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise NotFoundError("no C compiler here: install one that is called cc") from error
    except subprocess.SubprocessError as error:
        raise UnavailableError(f"cc can't build {source.name}: {error}") from error
    return program


@contextlib.asynccontextmanager
async def engines(tools: Tools, count: int, *, core: int, log_path: Path) -> AsyncIterator[range]:
    """That many engines, one a port; gives the ports."""
    ports = _free_ports(count)
    argv = [str(word) for word in (tools.engine, ports.start, count, CHUNKS, GAP_US)]
    async with running(argv, log_path=log_path, core=core) as process:
        while not _listens(ports[-1]):
            process.check()
            await asyncio.sleep(0.01)
        yield ports


class LoadResult(msgspec.Struct, frozen=True):
    """What the load generator saw. Times in ms, to the first and the last byte of a body."""

    done: int
    bad: int
    late: int
    events: int
    seconds: float
    first_byte_ms_p50: float
    first_byte_ms_p99: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`rate` a second, 0: each connection as fast as it is answered. `models` is how many numbers
    may replace the mark in the body."""

    body: Path
    connections: int
    seconds: float
    rate: float = 0.0
    models: int = 1


async def put_load(tools: Tools, port: int, load: Load) -> LoadResult:
    """Put a load on a router, from this process's core; UnavailableError when that fails."""
    words = (port, load.body, load.connections, load.seconds, load.rate, load.models)
    process = await asyncio.create_subprocess_exec(
        tools.load,
        *map(str, words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(load.seconds + LOAD_GRACE_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise UnavailableError("the load generator does not come to its end") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise UnavailableError(f"the load generator failed: {err.decode(errors='replace')[:200]}")
    result = msgspec.json.decode(out, type=LoadResult)
    if not result.done or result.bad * 100 > result.done:
        seen = err.decode(errors="replace").partition("\n")[0]
        raise UnavailableError(f"{result.bad} of {result.done} answers were bad: {seen}")
    return result


async def is_answered(port: int, body: bytes) -> bool:
    """Whether a router answers a request with 200 now."""
    try:
        async with asyncio.timeout(5.0):
            reader, writer = await asyncio.open_connection(HOST, port)
            with contextlib.closing(writer):
                writer.write(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n"
                    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                return b" 200 " in await reader.readline()
    except (OSError, TimeoutError):
        return False


def _free_ports(count: int) -> range:
    for first in _FIRST_PORTS:
        ports = range(first, first + count)
        if not any(_is_taken(port) for port in ports):
            return ports
    raise UnavailableError(f"no {count} free ports in a row from {_FIRST_PORTS.start} on")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
