"""The child servers themselves: they serve, crash, come back on the same port, and end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nats
import pytest
import redis
from tests.servers import ChildServer, nats_server, running, valkey_server

from axiom_common.errors import UnavailableError

ROOT = Path(__file__).parents[2]


async def test_nats_keeps_streams_over_a_crash(own_nats: ChildServer) -> None:
    client = await nats.connect(own_nats.url)
    bucket = await client.jetstream().create_key_value(bucket="kept")
    revision = await bucket.put("key", b"value")
    await client.close()
    own_nats.kill()
    own_nats.start()
    client = await nats.connect(own_nats.url)
    entry = await (await client.jetstream().key_value("kept")).get("key")
    assert (entry.value, entry.revision) == (b"value", revision)
    await client.close()


def test_valkey_restarts_empty_on_its_port(own_valkey: ChildServer) -> None:
    with redis.Redis.from_url(own_valkey.url) as client:
        client.set("key", "value")
        url = own_valkey.url
        own_valkey.kill()
        own_valkey.start()
        assert own_valkey.url == url
        assert client.get("key") is None


@pytest.mark.parametrize("make", [nats_server, valkey_server])
def test_stop_ends_the_process_even_when_paused(make: object, tmp_path: Path) -> None:
    assert callable(make)
    server = make(tmp_path)
    with running(server):
        pid = server.pid
        server.pause()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_port_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = valkey_server(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(UnavailableError, match="in use"):
            server.start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_servers_end_with_their_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        "from tests.servers import nats_server\n"
        "server = nats_server(pathlib.Path(sys.argv[1]))\n"
        "server.start()\n"
        "print(server.pid, server.port, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    port = int(parent.stdout.split()[1])
    deadline = time.monotonic() + 5
    while _listens(port):
        assert time.monotonic() < deadline, "the server outlives its parent"
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
