"""The admin API over HTTP on a real NATS, and `axiom adapters apply` against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.eventually import eventually, succeeds
from tests.owner import task_owner
from tests.scheduler_region import adapter

from axiom_cli.adapters import Result, apply_declarations, parse_declarations
from axiom_cli.stack.servers import ChildServer
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsBucket, NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.runtime.desired_store import ATTEMPTS_MAX, DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.logging import Log
from axiom_common.wire import keys, rest
from axiom_gateway.admin import AdminView, admin_app

SPEC = {"base_model": "llama", "path": "/a", "rank": 8}
FILE = """
base_models:
  - name: llama
adapters:
  - {name: acme/sql, base_model: llama, path: /a, rank: 8}
  - {name: chat, base_model: llama, path: /b, rank: 16}
"""


@dataclass
class Admin:
    url: str
    session: aiohttp.ClientSession
    bucket: NatsBucket

    async def put(self, name: str, body: Any) -> tuple[int, Any]:
        async with self.session.put(f"{self.url}/admin/v1/adapters/{name}", json=body) as response:
            return response.status, await response.json(content_type=None)

    async def names(self) -> list[str]:
        async with self.session.get(f"{self.url}/admin/v1/adapters") as response:
            return [a["name"] for a in (await response.json())["adapters"]]


Opened = Callable[[], AbstractAsyncContextManager[Admin]]


@pytest.fixture
def opened(own_nats: ChildServer) -> Opened:
    """The admin API of a gateway, listening."""

    @asynccontextmanager
    async def admin() -> AsyncIterator[Admin]:
        async with task_owner() as owner:
            connection = NatsConnection(own_nats.url, name="test", clock=SystemClock())
            assert await connection.start(owner)
            bucket = await NatsRegistry(connection, call_timeout_ms=500).bucket(keys.DESIRED_BUCKET)
            app = admin_app(bucket, lambda: AdminView(regions={}))
            server = HttpServer(
                Starlette(routes=[Mount("/admin/v1", app)]), host="127.0.0.1", port=0
            )
            serving = owner.create_task(server.serve(), name="http")
            async with aiohttp.ClientSession() as session:
                yield Admin(f"http://127.0.0.1:{server.port}", session, bucket)
            server.stop()
            await serving
            await connection.close()

    return admin


async def test_writers_at_the_same_time_each_get_a_revision_of_their_own(opened: Opened) -> None:
    async with opened() as admin:
        ranks = range(1, ATTEMPTS_MAX + 1)
        answers = await asyncio.gather(*(admin.put("a/b", SPEC | {"rank": r}) for r in ranks))
        assert all(status in (200, 201) for status, _ in answers)
        assert sorted(body["revision"] for _, body in answers) == list(ranks)
        stored = await DesiredStore(admin.bucket).adapter("a/b")
        assert stored is not None
        assert stored.value.revision == len(ranks)


@pytest.mark.faults
async def test_nothing_acknowledged_is_lost_when_nats_is_killed_and_nothing_else_is_acknowledged(
    opened: Opened, own_nats: ChildServer
) -> None:
    async with opened() as admin:
        acknowledged: list[str] = []

        async def write() -> None:
            for number in range(10_000):
                status, body = await admin.put(f"a{number}", SPEC)
                if status != 201:
                    assert (status, body["code"]) == (503, "unavailable")
                    return
                acknowledged.append(f"a{number}")

        writing = asyncio.create_task(write())
        await eventually(lambda: len(acknowledged) >= 20)
        own_nats.kill()
        await writing
        assert (await admin.put("z", SPEC))[0] == 503
        own_nats.start()
        await succeeds(lambda: admin.bucket.get("x"), despite=UnavailableError)
        names = await admin.names()
        assert set(acknowledged) <= set(names)
        # At most the write that was under way when the server died is there without an answer.
        assert len(names) <= len(acknowledged) + 1
        assert "z" not in names


@pytest.mark.faults
async def test_the_watch_sees_what_changed_while_it_was_cut_off(
    opened: Opened, own_nats: ChildServer
) -> None:
    async with opened() as admin, task_owner() as owner:
        store = DesiredStore(admin.bucket)
        for name in ("a", "b"):
            await store.put_adapter(adapter(name))
        watch = DesiredWatch(admin.bucket, Log("test", SystemClock()), lambda: None)
        owner.create_task(watch.run(), name="watch")
        await eventually(lambda: set(watch.adapters) == {"a", "b"})
        own_nats.kill()
        own_nats.start()
        await succeeds(lambda: store.delete_adapter("a"), despite=UnavailableError)
        await store.put_adapter(replace(adapter("b"), rank=16))
        await store.put_adapter(adapter("c"))
        await eventually(lambda: set(watch.adapters) == {"b", "c"})
        assert watch.adapters["b"].revision == 2


async def test_a_file_is_applied_and_applying_it_again_changes_nothing(opened: Opened) -> None:
    async with opened() as admin:
        puts = parse_declarations(FILE)
        first = await apply_declarations(admin.url, puts)
        assert [(a.put.name, a.result, a.revision) for a in first] == [
            ("llama", Result.CREATED, None),
            ("acme/sql", Result.CREATED, 1),
            ("chat", Result.CREATED, 1),
        ]
        again = await apply_declarations(admin.url, puts)
        assert {a.result for a in again} == {Result.UNCHANGED}
        changed = parse_declarations(FILE.replace("rank: 16", "rank: 32"))
        assert [(a.result, a.revision) for a in await apply_declarations(admin.url, changed)] == [
            (Result.UNCHANGED, None),
            (Result.UNCHANGED, 1),
            (Result.UPDATED, 2),
        ]
        assert await admin.names() == ["acme/sql", "chat"]


async def test_what_the_gateway_refuses_does_not_stop_the_rest(opened: Opened) -> None:
    async with opened() as admin:
        await apply_declarations(admin.url, parse_declarations("base_models: [{name: chat}]"))
        results = await apply_declarations(admin.url, parse_declarations(FILE))
        assert [(a.put.name, a.result) for a in results] == [
            ("llama", Result.CREATED),
            ("acme/sql", Result.CREATED),
            ("chat", Result.REFUSED),
        ]
        assert results[2].detail == "a base model has this name"
        assert [a.failed for a in results] == [False, False, True]


@pytest.mark.faults
async def test_an_apply_waits_for_the_registry_a_bounded_time(
    opened: Opened, own_nats: ChildServer
) -> None:
    async with opened() as admin:
        own_nats.kill()
        applying = asyncio.create_task(apply_declarations(admin.url, parse_declarations(FILE)))
        await asyncio.sleep(0)
        own_nats.start()
        assert [a.result for a in await applying] == [Result.CREATED] * 3


async def test_without_a_gateway_all_is_unavailable() -> None:
    async with task_owner():
        results = await apply_declarations("http://127.0.0.1:9", parse_declarations(FILE))
    assert {a.result for a in results} == {Result.UNAVAILABLE}
    assert all("no gateway answers at http://127.0.0.1:9" in a.detail for a in results)


async def test_a_body_above_the_bound_is_refused_before_it_is_read_whole(opened: Opened) -> None:
    async with opened() as admin:
        chunk = b" " * 65_536
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 64 * rest.BODY_BYTES_MAX:
                sent += len(chunk)
                yield chunk

        url = f"{admin.url}/admin/v1/adapters/a"
        try:
            async with admin.session.put(url, data=endless()) as response:
                assert response.status == 413
        except aiohttp.ClientOSError:
            # The server closes the connection while the client still sends; that is an answer too.
            pass
        assert sent < 64 * rest.BODY_BYTES_MAX
        assert await admin.names() == []
