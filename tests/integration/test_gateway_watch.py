"""`GET /admin/v1/watch` of a gateway on a socket, with a real agent and simulated engines."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.eventually import eventually
from tests.gateway_region import (
    ADMIN_SECRET,
    HOST,
    NODE,
    Gateway,
    key_header,
    region_of,
    served,
)

from axiom_common.model.access import ApiKey, Role
from axiom_gateway import everywhere, watch
from axiom_gateway.admin_access import OWN_KEY, digest_of

WATCH = "/admin/v1/watch"
KEYS = "/admin/v1/keys"
KEY = ApiKey(name=OWN_KEY, role=Role.ADMIN, digest=digest_of(ADMIN_SECRET))
"""What the client of a region's gateway comes with."""


class Stream:
    """The events that a watcher gets."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self) -> tuple[str, dict[str, Any]]:
        kind = await self._field(b"event: ")
        return kind.decode(), json.loads(await self._field(b"data: "))

    async def node(self) -> dict[str, Any]:
        kind, seen = await self.next()
        assert kind == "node"
        return seen

    async def to_its_end(self) -> None:
        async with asyncio.timeout(10):
            while await self._content.readany():
                pass

    async def _field(self, name: bytes) -> bytes:
        async with asyncio.timeout(10):
            while not (line := await self._content.readline()).startswith(name):
                assert line, "the stream ended"
        return bytes(line.removeprefix(name).strip())


@asynccontextmanager
async def watching(gateway: Gateway, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    async with gateway.client.get(WATCH + query, timeout=None, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response.content)


def residents(seen: dict[str, Any]) -> set[str]:
    return {r["adapter"] for engine in seen["engines"] for r in engine["residents"]}


async def test_a_load_is_told_to_all_who_watch_and_they_may_go() -> None:
    async with region_of(1) as region, served(region) as gateway:
        await region.declare("sql")
        await gateway.knows("sql")
        async with watching(gateway) as everything, watching(gateway, f"?node={NODE}") as one:
            assert residents(await everything.node()) == residents(await one.node()) == set()
            assert (await gateway.ask("sql")).status == 200
            for stream in (everything, one):
                while "sql~1" not in residents(await stream.node()):
                    pass
            assert len(gateway.app.watches) == 2
        await eventually(lambda: len(gateway.app.watches) == 0)
        assert (await gateway.get(f"/admin/v1/nodes/{NODE}")).json["node"] == NODE


async def test_a_quiet_stream_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.02)
    async with (
        region_of(0, agent=False) as region,
        served(region) as gateway,
        gateway.client.get(WATCH) as response,
    ):
        assert await response.content.readline() == b": still here\n"


async def test_who_would_watch_a_node_that_is_not_known_is_told() -> None:
    async with region_of(1) as region, served(region) as gateway:
        await eventually(lambda: list(gateway.app.watches.nodes.node_names()) == [NODE])
        for query in ("node=nope", f"node={NODE}&node=nope"):
            refused = await gateway.get(f"{WATCH}?{query}")
            told = (refused.status, refused.json["code"], refused.json["path"])
            assert told == (404, "not-found", "node")
        assert len(gateway.app.watches) == 0


async def test_more_than_can_be_served_are_refused() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        opened = [
            gateway.app.watches.open([], replace(KEY, name=f"key-{n % 4}"))
            for n in range(watch.WATCHERS_MAX)
        ]
        refused = await gateway.get(WATCH)
        assert (refused.status, refused.json["code"]) == (429, "too-many-watchers")
        assert refused.headers["retry-after"]
        gateway.app.watches.leave(opened[0])
        async with watching(gateway):
            assert len(gateway.app.watches) == watch.WATCHERS_MAX
        too_many = "&".join(f"node=n{n}" for n in range(watch.NAMED_MAX + 1))
        assert (await gateway.get(f"{WATCH}?{too_many}")).json["path"] == "node"


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway is soon sure that it has no peers."""
    monkeypatch.setattr(everywhere, "LISTENED_MS", 100.0)


@pytest.mark.usefixtures("_alone")
async def test_one_key_does_not_take_the_watch_of_all() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        for _ in range(watch.WATCHERS_A_KEY_MAX):
            gateway.app.watches.open([], KEY)
        assert (await gateway.get(WATCH)).json["code"] == "too-many-watchers"
        secret = await made(gateway, "other", "viewer")
        async with watching(gateway, **key_header(secret)):
            assert len(gateway.app.watches) == watch.WATCHERS_A_KEY_MAX + 1


async def made(gateway: Gateway, name: str, role: str) -> str:
    """The secret of a new key."""
    async with gateway.client.put(f"{KEYS}/{name}", json={"role": role}) as response:
        assert response.status == 201
        return str((await response.json())["secret"])


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("change", ["withdrawn", "demoted", "rotated"])
async def test_a_watch_ends_with_what_its_key_was(change: str) -> None:
    async with region_of(1) as region, served(region) as gateway:
        kept = key_header(await made(gateway, "kept", "viewer"))
        ended = key_header(await made(gateway, "ended", "viewer"))
        async with watching(gateway, **kept) as one, watching(gateway, **ended) as another:
            for stream in (one, another):
                assert (await stream.node())["node"] == NODE
            await change_key(gateway, change)
            await eventually(lambda: len(gateway.app.watches) == 1)
            await another.to_its_end()
            # The other one goes on.
            gateway.app.watches.changed(NODE, False)
            assert (await one.node())["node"] == NODE
        refused = await gateway.get(WATCH, **ended)
        assert refused.status == (403 if change == "demoted" else 401)


async def change_key(gateway: Gateway, change: str) -> None:
    url, client = f"{KEYS}/ended", gateway.client
    anyhow = {"if-match": "*"}
    asking = {
        "withdrawn": lambda: client.delete(url),
        "demoted": lambda: client.put(url, json={"role": "client"}, headers=anyhow),
        "rotated": lambda: client.post(f"{url}:rotate", headers={"if-match": "*"}),
    }[change]
    async with asking() as response:
        assert response.status in (200, 204)


async def test_who_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WRITE_S", 0.2)
    async with region_of(1) as region, served(region) as gateway:
        client = deaf_client(gateway)
        await until_stuck(gateway, monkeypatch)
        await eventually(lambda: len(gateway.app.watches) == 0)
        await eventually(lambda: not deaf_connections(gateway, client))
        client.close()


async def test_a_gateway_that_stops_ends_its_watches_those_that_do_not_read_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "LAST_WORD_S", 0.2)
    async with region_of(1) as region:
        gateway = await region.start_gateway()
        await gateway.sees(region.engines[0].id)
        async with watching(gateway) as stream, asyncio.TaskGroup() as group:
            group.create_task(stream.to_its_end(), name="one that reads")
            client = deaf_client(gateway)
            await until_stuck(gateway, monkeypatch, watchers=2)
            # Far below the time that open responses have to end by themselves (22 s).
            async with asyncio.timeout(10):
                await gateway.stop()
        assert len(gateway.app.watches) == 0
        client.close()


def deaf_client(gateway: Gateway) -> socket.socket:
    """Asks, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((HOST, gateway._server.port))
    lines = [f"GET {WATCH} HTTP/1.1", "host: h", f"authorization: Bearer {ADMIN_SECRET}"]
    client.sendall("\r\n".join([*lines, "", ""]).encode())
    return client


def deaf_connections(gateway: Gateway, client: socket.socket) -> list[Any]:
    here = client.getsockname()
    connections = gateway._server._server.server_state.connections
    return [c for c in connections if c.transport.get_extra_info("peername") == here]


async def until_stuck(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, *, watchers: int = 1
) -> None:
    """Tell more than all buffers on the way hold."""
    await eventually(lambda: len(gateway.app.watches) == watchers)
    monkeypatch.setattr(watch, "node_json", lambda seen: b"x" * 16_000_000)
    gateway.app.watches.changed(NODE, False)
    connections = gateway._server._server.server_state.connections
    await eventually(
        lambda: any(c.transport.get_write_buffer_size() > 1_000_000 for c in connections)
    )
