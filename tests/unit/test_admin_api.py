"""The admin API in process, on the registry in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.owner import task_owner
from tests.watched_nodes import watches_of

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import ConflictError
from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, NodeState, PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.model.reason import Reason
from axiom_common.runtime.desired_store import ATTEMPTS_MAX
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.wire import headers, keys, rest
from axiom_gateway.admin import AdminView, SeenRegion, admin_app
from axiom_gateway.admin_problems import RETRY_AFTER_S

SPEC = {"base_model": "llama-3-8b", "path": "/adapters/sql", "rank": 16}
ENGINE = EngineState(
    engine=EngineId("n1.a"),
    url="http://h:1",
    base_model="llama-3-8b",
    served_name="llama",
    status=EngineStatus.READY,
    limits=EngineLimits(hbm_slots=4, host_slots=8, max_lora_rank=64),
    running=3,
    kv_usage=0.25,
    residents=(
        Residency(
            adapter=EngineAdapter("sql~1"),
            state=AdapterState.RESIDENT,
            source=ResidencySource.INFERRED,
            age_ms=20.0,
        ),
    ),
)
NODE = NodeState(
    region=RegionId("eu"),
    node=NodeId("n1"),
    incarnation=4,
    seq=9,
    engines=(ENGINE,),
    plan=PlanStatus(revision=3, fence=7, accepted=False, reason=Reason.LOWER_FENCE),
)
VIEW = AdminView(
    regions={
        RegionId("eu"): SeenRegion(
            nodes=1,
            engines=1,
            adapters=2,
            base_models=frozenset({"llama-3-8b"}),
            degraded=("shadow-cache-unavailable",),
            view_age_ms=120.0,
        )
    }
)


@dataclass
class Api:
    client: httpx2.AsyncClient
    registry: FakeRegistry
    bucket: FakeBucket

    async def put(
        self, name: str, body: Any, request_headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body)
        return await self.client.put(f"/adapters/{name}", content=content, headers=request_headers)


def no_view() -> AdminView:
    raise RuntimeError("secret of the implementation")


@asynccontextmanager
async def api(view: Callable[[], AdminView] = lambda: VIEW) -> AsyncIterator[Api]:
    async with task_owner() as owner:
        registry = FakeRegistry(owner, SystemClock())
        bucket = await registry.bucket(keys.DESIRED_BUCKET)
        app = Starlette(routes=[Mount("/admin/v1", admin_app(bucket, view, watches_of(NODE)))])
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://gateway/admin/v1"
        ) as client:
            yield Api(client, registry, bucket)


def problem(response: httpx2.Response) -> rest.Problem:
    """The problem in an answer; fails where the answer is none."""
    assert response.headers["content-type"] == rest.PROBLEM_MEDIA_TYPE
    found = rest.Problem.model_validate_json(response.content)
    assert found.status == response.status_code
    assert "Traceback" not in response.text
    return found


@pytest.mark.parametrize("name", ["sql", "acme/sql.v2", "a:b/c_d-e", "a/b/c"])
async def test_an_adapter_is_put_got_listed_and_deleted(name: str) -> None:
    async with api() as it:
        created = await it.put(name, SPEC)
        assert (created.status_code, created.headers[headers.OUTCOME]) == (201, "created")
        given = {"size_bytes": 0, "tenant": "default", "revision": 1, "base_model_known": True}
        assert created.json() == {**SPEC, **given, "name": name}
        got = await it.client.get(f"/adapters/{name}")
        assert (got.json(), got.headers["etag"]) == (created.json(), created.headers["etag"])
        listed = await it.client.get("/adapters")
        assert listed.json() == {"adapters": [created.json()], "next": None}
        assert (await it.client.delete(f"/adapters/{name}")).status_code == 204
        assert problem(await it.client.get(f"/adapters/{name}")).code == "not-found"
        assert problem(await it.client.delete(f"/adapters/{name}")).status == 404


async def test_what_a_get_answers_can_be_put_and_changes_nothing() -> None:
    async with api() as it:
        first = await it.put("sql", SPEC)
        again = await it.put("sql", first.json())
        assert (again.status_code, again.headers[headers.OUTCOME]) == (200, "unchanged")
        assert (again.json(), again.headers["etag"]) == (first.json(), first.headers["etag"])


@pytest.mark.parametrize(
    ("change", "revision"),
    [
        ({"rank": 32}, 2),
        ({"path": "/new"}, 2),
        ({"size_bytes": 5}, 2),
        ({"base_model": "other"}, 2),
        ({"tenant": "acme"}, 1),
    ],
)
async def test_new_weights_raise_the_revision(change: dict[str, Any], revision: int) -> None:
    async with api() as it:
        await it.put("sql", SPEC)
        changed = await it.put("sql", SPEC | change)
        assert (changed.status_code, changed.headers[headers.OUTCOME]) == (200, "updated")
        assert changed.json()["revision"] == revision
        assert (await it.client.get("/adapters/sql")).json() == changed.json()


async def test_an_identity_is_never_given_twice() -> None:
    async with api() as it:
        await it.put("sql", SPEC)
        await it.put("sql", SPEC | {"rank": 32})
        await it.client.delete("/adapters/sql")
        assert (await it.put("sql", SPEC)).json()["revision"] == 3


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"[" * 50_000, None),
        (SPEC | {"rnak": 3}, "rnak"),
        (SPEC | {"rank": "16"}, "rank"),
        (SPEC | {"rank": True}, "rank"),
        (SPEC | {"rank": 0}, "rank"),
        (SPEC | {"rank": 1025}, "rank"),
        (SPEC | {"size_bytes": -1}, "size_bytes"),
        (SPEC | {"size_bytes": 1 << 70}, "size_bytes"),
        (SPEC | {"path": ""}, "path"),
        (SPEC | {"path": "x" * 1025}, "path"),
        (SPEC | {"path": "a\nb"}, "path"),
        (SPEC | {"path": "a\ud800"}, None),
        (SPEC | {"base_model": "a,b"}, "base_model"),
        (SPEC | {"tenant": "a b"}, "tenant"),
        (SPEC | {"name": "other"}, "name"),
        (SPEC | {"base_model": "sql"}, "base_model"),
        ({"path": "/p", "rank": 1}, "base_model"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_and_nothing_is_written(
    body: Any, path: str | None
) -> None:
    async with api() as it:
        found = problem(await it.put("sql", body))
        assert (found.status, found.code, found.path) == (400, "invalid-input", path)
        assert await it.bucket.list() == ()


@pytest.mark.parametrize(
    "name", ["a~1", "a,b", "a%20b", "-a", "x" * 129, "%F0%9F%98%80", "a//b", "a/", "a/.b"]
)
async def test_a_name_outside_the_alphabet_is_refused(name: str) -> None:
    async with api() as it:
        for response in (
            await it.put(name, SPEC),
            await it.client.get(f"/adapters/{name}"),
            await it.client.delete(f"/adapters/{name}"),
        ):
            found = problem(response)
            assert (found.status, found.code, found.path) == (400, "invalid-input", "name")


async def test_a_body_above_the_bound_is_refused() -> None:
    async with api() as it:
        found = problem(await it.put("sql", b" " * (rest.BODY_BYTES_MAX + 1)))
        assert (found.status, found.code) == (413, "too-large")
        fits = json.dumps(SPEC).encode().ljust(rest.BODY_BYTES_MAX)
        assert (await it.put("sql", fits)).status_code == 201


async def test_a_name_stands_for_an_adapter_or_a_base_model_only() -> None:
    async with api() as it:
        await it.client.put("/models/llama", content=b"{}")
        await it.put("sql", SPEC)
        for taken in (
            await it.put("llama", SPEC),
            await it.client.put("/models/sql", content=b"{}"),
        ):
            found = problem(taken)
            assert (found.status, found.code, found.path) == (409, "name-taken", "name")


@pytest.mark.parametrize("number", range(5))
async def test_of_an_adapter_and_a_base_model_declared_at_once_one_stays(number: int) -> None:
    async with api() as it:
        calls = [it.put("x", SPEC), it.client.put("/models/x", content=b"{}")]
        answers = await asyncio.gather(*(calls if number % 2 else reversed(calls)))
        assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_an_adapter_of_an_unknown_base_model_is_taken_and_says_so() -> None:
    async with api() as it:
        orphan = await it.put("sql", SPEC | {"base_model": "qwen"})
        assert (orphan.status_code, orphan.json()["base_model_known"]) == (201, False)
        await it.put("chat", SPEC)
        listed = (await it.client.get("/adapters")).json()["adapters"]
        assert {a["name"]: a["base_model_known"] for a in listed} == {"chat": True, "sql": False}
        await it.client.put("/models/qwen", content=b"{}")
        assert (await it.client.get("/adapters/sql")).json()["base_model_known"]
        assert all(
            a["base_model_known"] for a in (await it.client.get("/adapters")).json()["adapters"]
        )


async def test_if_match_guards_put_and_delete() -> None:
    async with api() as it:
        absent = await it.put("sql", SPEC, {headers.IF_MATCH: "*"})
        assert problem(absent).code == "precondition-failed"
        first = (await it.put("sql", SPEC)).headers["etag"]
        second = await it.put("sql", SPEC | {"rank": 8}, {headers.IF_MATCH: first})
        assert second.status_code == 200
        for stale in (
            await it.put("sql", SPEC, {headers.IF_MATCH: first}),
            await it.put("sql", SPEC, {headers.IF_MATCH: '"0"'}),
            await it.put("sql", SPEC, {headers.IF_MATCH: f'"{"9" * 16}"'}),
            await it.client.delete("/adapters/sql", headers={headers.IF_MATCH: first}),
        ):
            assert problem(stale).status == 412
        assert (await it.client.get("/adapters/sql")).headers["etag"] == second.headers["etag"]
        for wrong in ("12", '""', 'W/"1"', '"1", "2"', f'"{"9" * 5000}"'):
            refused = problem(await it.put("sql", SPEC, {headers.IF_MATCH: wrong}))
            assert (refused.status, refused.path) == (400, headers.IF_MATCH)
        gone = await it.client.delete("/adapters/sql", headers={headers.IF_MATCH: "*"})
        assert gone.status_code == 204


async def test_if_none_match_creates_only() -> None:
    async with api() as it:
        only_new = {headers.IF_NONE_MATCH: "*"}
        assert (await it.put("sql", SPEC, only_new)).status_code == 201
        assert problem(await it.put("sql", SPEC | {"rank": 8}, only_new)).status == 412
        assert (await it.client.get("/adapters/sql")).json()["rank"] == SPEC["rank"]
        for wrong in ({headers.IF_NONE_MATCH: '"1"'}, only_new | {headers.IF_MATCH: "*"}):
            refused = problem(await it.put("sql", SPEC | {"rank": 8}, wrong))
            assert (refused.status, refused.path) == (400, headers.IF_NONE_MATCH)


async def test_while_the_registry_is_away_nothing_is_acknowledged() -> None:
    async with api() as it:
        await it.put("sql", SPEC)
        before = await it.bucket.list()
        it.registry.disconnect()
        for response in (
            await it.put("sql", SPEC | {"rank": 8}),
            await it.client.get("/adapters"),
            await it.client.delete("/adapters/sql"),
        ):
            assert problem(response).code == "unavailable"
            assert response.headers[headers.RETRY_AFTER] == str(RETRY_AFTER_S)
        assert (await it.client.get("/status")).status_code == 200
        it.registry.reconnect()
        assert await it.bucket.list() == before


class BusyBucket:
    """A bucket where somebody else always writes first."""

    def __init__(self, bucket: FakeBucket) -> None:
        self._bucket = bucket
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        self.tries += 1
        raise ConflictError("somebody was faster")


async def test_a_write_that_never_wins_ends_as_a_conflict() -> None:
    async with api() as it:
        busy = BusyBucket(it.bucket)
        app = Starlette(routes=[Mount("/admin/v1", admin_app(busy, lambda: VIEW, watches_of()))])
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://gateway/admin/v1"
        ) as client:
            response = await client.put("/adapters/sql", content=json.dumps(SPEC))
        assert problem(response).code == "conflict"
        assert busy.tries == ATTEMPTS_MAX


async def test_writers_at_the_same_time_each_get_a_revision_of_their_own() -> None:
    async with api() as it:
        ranks = range(1, 3 * ATTEMPTS_MAX)
        answers = await asyncio.gather(*(it.put("sql", SPEC | {"rank": r}) for r in ranks))
        assert sorted(a.json()["revision"] for a in answers) == list(ranks)


async def test_lists_come_in_pages() -> None:
    async with api() as it:
        names = [f"a{n}" for n in range(5)]
        for name in reversed(names):
            await it.put(name, SPEC)
        seen: list[str] = []
        after = ""
        while True:
            page = (await it.client.get("/adapters", params={"limit": 2, "after": after})).json()
            seen += [adapter["name"] for adapter in page["adapters"]]
            after = page["next"]
            if after is None:
                break
        assert seen == names
        assert problem(await it.client.get("/adapters?limit=0")).path == "limit"


async def test_base_models_are_declared_and_withdrawn() -> None:
    async with api() as it:
        created = await it.client.put("/models/meta/llama-3-8b", content=b"{}")
        again = await it.client.put("/models/meta/llama-3-8b", content=created.content)
        assert (created.status_code, again.headers[headers.OUTCOME]) == (201, "unchanged")
        assert (await it.client.get("/models")).json() == {
            "models": [{"name": "meta/llama-3-8b"}],
            "next": None,
        }
        assert (await it.client.get("/models/meta/llama-3-8b")).json() == created.json()
        assert (await it.client.delete("/models/meta/llama-3-8b")).status_code == 204
        assert problem(await it.client.get("/models/meta/llama-3-8b")).code == "not-found"


async def test_the_view_is_told() -> None:
    async with api() as it:
        assert (await it.client.get("/status")).json() == {
            "regions": {
                "eu": {
                    "nodes": 1,
                    "engines": 1,
                    "adapters": 2,
                    "degraded": ["shadow-cache-unavailable"],
                    "view_age_ms": 120.0,
                }
            }
        }
        (node,) = (await it.client.get("/nodes")).json()["nodes"]
        assert node["plan"] == {
            "revision": 3,
            "fence": 7,
            "accepted": False,
            "reason": "lower-fence",
        }
        assert (await it.client.get("/nodes/n1")).json()["engines"] == node["engines"]
        assert problem(await it.client.get("/nodes/n2")).code == "not-found"
        assert problem(await it.client.get("/nodes/n.1")).path == "node"
        assert problem(await it.client.get("/watch?node=n.1")).path == "node"
        (engine,) = (await it.client.get("/engines")).json()["engines"]
        assert node["engines"] == [engine]
        (resident,) = engine["residents"]
        assert (engine["node"], engine["running"], engine["hbm_slots"]) == ("n1", 3, 4)
        assert (resident["adapter"], resident["source"]) == ("sql~1", "inferred")


async def test_every_other_error_is_a_problem_too() -> None:
    async with api(no_view) as it:
        for path in ("/nope", "/nodes/", "/"):
            assert problem(await it.client.get(path)).code == "not-found"
        defect = await it.client.get("/status")
        assert problem(defect).code == "internal"
        assert "secret" not in defect.text
        await it.bucket.put(desired.key_for(AdapterSpec, "sql"), b"not json")
        assert problem(await it.client.get("/adapters/sql")).code == "invalid-message"


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/adapters/sql", "GET, PUT, DELETE"), ("/adapters", "GET"), ("/status", "GET")],
)
async def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(
    path: str, methods: str
) -> None:
    async with api() as it:
        for method in ("POST", "PATCH", "OPTIONS", "TRACE"):
            refused = await it.client.request(method, path)
            assert problem(refused).code == "method-not-allowed"
            assert refused.headers[headers.ALLOW] == methods
        assert (await it.client.head(path)).headers[headers.ALLOW] == methods


@pytest.mark.parametrize(
    "body",
    [SPEC | {"f" * 100_000: 1}, SPEC | {f"f{n}": 1 for n in range(1000)}, {"a" * 5000: {"b": 1}}],
)
async def test_a_problem_says_little_of_much_that_was_sent(body: Any) -> None:
    async with api() as it:
        assert len((await it.put("sql", body)).content) < 1024
        assert len((await it.put("n" * 10_000, SPEC | {"name": "sql"})).content) < 1024


async def test_a_body_that_does_not_come_in_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("axiom_gateway.admin_bodies.BODY_TIMEOUT_S", 0.01)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with api() as it:
        refused = await it.client.put("/adapters/sql", content=endless())
        assert problem(refused).code == "request-timeout"


async def test_a_client_that_goes_while_it_sends_is_no_defect() -> None:
    async with task_owner() as owner:
        bucket = await FakeRegistry(owner, SystemClock()).bucket(keys.DESIRED_BUCKET)
        sent: list[Any] = []

        async def receive() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "PUT", "path": "/adapters/sql", "headers": []}
        scope |= {"query_string": b"", "http_version": "1.1"}
        # A defect would be raised here, for the server to log.
        await admin_app(bucket, lambda: VIEW, watches_of())(scope, receive, send)
        assert sent[0]["status"] == 400


async def test_the_api_describes_itself() -> None:
    async with api() as it:
        described = (await it.client.get("/openapi.json")).json()
        put = described["paths"]["/adapters/{name}"]["put"]
        schema = put["requestBody"]["content"]["application/json"]["schema"]
        assert set(schema["required"]) == {"base_model", "path", "rank"}
