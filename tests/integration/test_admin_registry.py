"""The admin API over HTTP on a real NATS, and `axiom adapters apply` against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
from tests.servers import ChildServer
from tests.watched_nodes import watches_of

from axiom_cli.admin import Target
from axiom_cli.declarations import Result, apply_declarations, parse_declarations
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsBucket, NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.ids import RegionId
from axiom_common.runtime.desired_store import ANY_VERSION, DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.logging import Log
from axiom_common.wire import headers, keys, rest
from axiom_common.wire.requests import BUCKET_BYTES_MAX
from axiom_gateway.admin import AdminParts, admin_app
from axiom_gateway.admin_access import Access
from axiom_gateway.admin_seen import AdminView
from axiom_gateway.known_desired import KnownDesired

SECRET = "secret-of-an-admin"
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

    @property
    def target(self) -> Target:
        return Target(self.url, SECRET)

    async def put(self, name: str, body: Any, **request_headers: str) -> tuple[int, Any]:
        url = f"{self.url}/admin/v1/adapters/{name}"
        async with self.session.put(url, json=body, headers=request_headers) as response:
            return response.status, await response.json(content_type=None)

    async def put_any(self, name: str, body: Any) -> tuple[int, Any]:
        """Declare an adapter, whatever stands there."""
        status, told = await self.put(name, body)
        if status == 428:
            status, told = await self.put(name, body, **{headers.IF_MATCH: "*"})
        return status, told

    async def get(self, name: str) -> tuple[Any, str]:
        """An adapter and its ETag."""
        async with self.session.get(f"{self.url}/admin/v1/adapters/{name}") as response:
            return await response.json(), response.headers[headers.ETAG]

    async def delete(self, name: str) -> int:
        async with self.session.delete(f"{self.url}/admin/v1/adapters/{name}") as response:
            return response.status

    async def listed(self) -> dict[str, Any]:
        """All adapters, by name."""
        found: dict[str, Any] = {}
        params = {"limit": "50"}
        while True:
            url = f"{self.url}/admin/v1/adapters"
            async with self.session.get(url, params=params) as response:
                page = await response.json()
            found |= {one["name"]: one for one in page["items"]}
            if page["next"] is None:
                return found
            params["cursor"] = page["next"]


Opened = Callable[[], AbstractAsyncContextManager[Admin]]


@pytest.fixture
def nats_server(module_nats: ChildServer) -> Iterator[ChildServer]:
    yield module_nats
    module_nats.start()


@pytest.fixture
def opened(nats_server: ChildServer, region: RegionId) -> Opened:
    """The admin API of a gateway, listening. Each call is another gateway on the same bucket."""

    @asynccontextmanager
    async def admin() -> AsyncIterator[Admin]:
        async with task_owner() as owner:
            clock = SystemClock()
            connection = NatsConnection(nats_server.url, name="test", clock=clock)
            assert await connection.start(owner)
            registry = NatsRegistry(connection)
            bucket = await registry.bucket(f"desired_{region}")
            watch = DesiredWatch(bucket, Log("test", clock), lambda: None)
            owner.create_task(watch.run(), name="watch")
            parts = AdminParts(
                store=DesiredStore(bucket),
                known=KnownDesired(watch, NatsBus(connection), clock),
                access=Access(known=lambda: True, admin_secret=SECRET),
                view=lambda: AdminView(regions={}),
                watches=watches_of(),
                requests=await registry.bucket(
                    keys.request_bucket(region), bytes_max=BUCKET_BYTES_MAX
                ),
            )
            app = Starlette(routes=[Mount("/admin/v1", admin_app(parts))])
            server = HttpServer(app, host="127.0.0.1", port=0)
            serving = owner.create_task(server.serve(), name="http")
            await eventually(lambda: watch.synced)
            url = f"http://127.0.0.1:{server.port}"
            async with aiohttp.ClientSession(headers=Target(url, SECRET).headers) as session:
                yield Admin(url, session, bucket)
            server.stop()
            await serving
            await connection.close()

    return admin


async def test_of_writers_at_two_gateways_each_gets_a_revision_of_its_own(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        paths = [f"/{number}" for number in range(20)]
        calls = [(one, two)[n % 2].put_any("a/b", SPEC | {"path": p}) for n, p in enumerate(paths)]
        answers = await asyncio.gather(*calls)
        assert {status for status, _ in answers} == {200, 201}
        given = {body["revision"]: body["path"] for _, body in answers}
        assert sorted(given) == list(range(1, len(paths) + 1))
        last, _ = await one.get("a/b")
        assert (last["revision"], last["path"]) == (len(paths), given[len(paths)])


async def test_under_if_match_no_update_is_lost(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        await one.put("counter", SPEC | {"size_bytes": 0})

        async def increment(admin: Admin) -> None:
            while True:
                seen, etag = await admin.get("counter")
                wanted = seen | {"size_bytes": seen["size_bytes"] + 1}
                status, body = await admin.put("counter", wanted, **{headers.IF_MATCH: etag})
                if status == 200:
                    return
                assert (status, body["code"]) == (412, "precondition-failed")

        await asyncio.gather(*(increment(admin) for admin in (one, two) * 6))
        assert (await two.get("counter"))[0]["size_bytes"] == 12


async def test_declared_and_withdrawn_by_many_no_identity_is_given_twice(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        given: dict[int, str] = {}

        async def churn(admin: Admin, writer: int) -> None:
            for number in range(6):
                path = f"/{writer}/{number}"
                status, body = await admin.put_any("a", SPEC | {"path": path})
                if status in (200, 201):
                    assert given.setdefault(body["revision"], path) == path
                assert await admin.delete("a") in (204, 404, 409)

        await asyncio.gather(*(churn((one, two)[n % 2], n) for n in range(8)))
        highest = max(given)
        assert (await one.put("a", SPEC))[1]["revision"] > highest


async def test_of_an_adapter_and_a_base_model_declared_at_once_at_most_one_stays(
    opened: Opened,
) -> None:
    async with opened() as one, opened() as two:
        for number in range(10):
            name = f"x{number}"
            async with asyncio.TaskGroup() as group:
                group.create_task(one.put(name, SPEC))
                group.create_task(two.session.put(f"{two.url}/admin/v1/models/{name}", json={}))
        store = DesiredStore(one.bucket)
        models = {stored.value.name for stored in await store.all(BaseModelSpec)}
        assert not models & (await one.listed()).keys()


@pytest.mark.faults
async def test_nothing_acknowledged_is_lost_when_nats_is_killed_and_nothing_else_is_acknowledged(
    opened: Opened, nats_server: ChildServer
) -> None:
    async with opened() as admin:
        await admin.put("before", SPEC)
        acknowledged: dict[str, Any] = {}
        refused: list[str] = []

        async def write(names: Iterable[str]) -> None:
            for name in names:
                status, body = await admin.put(name, SPEC)
                if status == 201:
                    acknowledged[name] = body
                    if len(acknowledged) == 30:
                        nats_server.kill()
                else:
                    assert (status, body["code"]) == (503, "unavailable")
                    refused.append(name)

        async with asyncio.TaskGroup() as group:
            for writer in range(10):
                group.create_task(write([f"a{writer}-{number}" for number in range(10)]))
        assert refused
        for away in (admin.put("z", SPEC), admin.put_any("before", SPEC | {"rank": 4})):
            assert (await away)[0] == 503
        stale, _ = await admin.get("before")
        assert stale["staleness_ms"] > 0
        assert set(acknowledged) <= set(await admin.listed())
        nats_server.start()
        await succeeds(lambda: admin.bucket.get("x"), despite=UnavailableError)
        names = await admin.listed()
        for name, told in acknowledged.items():
            assert {**names[name], "staleness_ms": 0} == {**told, "staleness_ms": 0}
        assert "z" not in names
        assert names["before"]["rank"] == SPEC["rank"]


@pytest.mark.faults
async def test_the_watch_sees_what_changed_while_it_was_cut_off(
    opened: Opened, nats_server: ChildServer
) -> None:
    async with opened() as admin, task_owner() as owner:
        store = DesiredStore(admin.bucket)
        for name in ("a", "b"):
            await store.put(adapter(name))
        watch = DesiredWatch(admin.bucket, Log("test", SystemClock()), lambda: None)
        owner.create_task(watch.run(), name="watch")
        await eventually(lambda: set(watch.adapters) == {"a", "b"})
        nats_server.kill()
        nats_server.start()
        await succeeds(lambda: store.delete(AdapterSpec, "a"), despite=UnavailableError)
        await store.put(replace(adapter("b"), rank=16), if_version=ANY_VERSION)
        await store.put(adapter("c"))
        await eventually(lambda: set(watch.adapters) == {"b", "c"})
        assert watch.adapters["b"].revision == 2


async def test_a_file_is_applied_and_applying_it_again_changes_nothing(opened: Opened) -> None:
    async with opened() as admin:
        puts = parse_declarations(FILE)
        first = await apply_declarations(admin.target, puts)
        assert [(a.put.name, a.result, a.revision) for a in first] == [
            ("llama", Result.CREATED, None),
            ("acme/sql", Result.CREATED, 1),
            ("chat", Result.CREATED, 1),
        ]
        again = await apply_declarations(admin.target, puts)
        assert {a.result for a in again} == {Result.UNCHANGED}
        changed = parse_declarations(FILE.replace("rank: 16", "rank: 32"))
        assert [
            (a.result, a.revision) for a in await apply_declarations(admin.target, changed)
        ] == [
            (Result.UNCHANGED, None),
            (Result.UNCHANGED, 1),
            (Result.UPDATED, 2),
        ]
        assert sorted(await admin.listed()) == ["acme/sql", "chat"]


async def test_what_the_gateway_refuses_does_not_stop_the_rest(opened: Opened) -> None:
    async with opened() as admin:
        await apply_declarations(admin.target, parse_declarations("base_models: [{name: chat}]"))
        results = await apply_declarations(admin.target, parse_declarations(FILE))
        assert [(a.put.name, a.result) for a in results] == [
            ("llama", Result.CREATED),
            ("acme/sql", Result.CREATED),
            ("chat", Result.REFUSED),
        ]
        assert results[2].detail == "a base model has the name 'chat'"
        assert [a.failed for a in results] == [False, False, True]


async def test_an_adapter_of_an_unknown_base_model_is_applied_and_named(opened: Opened) -> None:
    async with opened() as admin:
        file = FILE.replace("base_model: llama, path: /a", "base_model: lama, path: /a")
        _, sql, chat = await apply_declarations(admin.target, parse_declarations(file))
        assert (sql.result, sql.failed) == (Result.CREATED, False)
        assert "'lama'" in sql.detail
        assert chat.detail == ""


@pytest.mark.faults
async def test_an_apply_waits_for_the_registry_a_bounded_time(
    opened: Opened, nats_server: ChildServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiom_gateway.admin_problems.RETRY_AFTER_S", 1)
    async with opened() as admin:
        nats_server.kill()
        applying = asyncio.create_task(apply_declarations(admin.target, parse_declarations(FILE)))
        await asyncio.sleep(0)
        nats_server.start()
        assert [a.result for a in await applying] == [Result.CREATED] * 3


async def test_without_a_gateway_all_is_unavailable() -> None:
    async with task_owner():
        results = await apply_declarations(Target("http://127.0.0.1:9"), parse_declarations(FILE))
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
        assert await admin.listed() == {}


async def test_with_one_key_a_write_is_done_once_at_whichever_gateway(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        for number in range(5):
            key = {headers.IDEMPOTENCY_KEY: f"key-{number}"}
            calls = [(one, two)[n % 2].put(f"a{number}", SPEC, **key) for n in range(6)]
            answers = await asyncio.gather(*calls)
            assert {status for status, _ in answers} <= {201, 409}
            versions = {told["version"] for status, told in answers if status == 201}
            assert len(versions) == 1
            assert await one.delete(f"a{number}") == 204
            status, told = await two.put(f"a{number}", SPEC, **key)
            assert (status, {told["version"]}) == (201, versions)
        assert await one.listed() == {}
