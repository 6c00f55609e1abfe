"""The admin API in process, on the registry in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from tests.admin_parts import VIEW, admin_api, described, key_of, problem
from tests.eventually import eventually

from axiom_common.errors import ConflictError
from axiom_common.model.access import Role
from axiom_common.model.adapter import (
    AdapterSpec,
    AdapterState,
    BaseModelSpec,
    Residency,
    ResidencySource,
)
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, NodeState, PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId, NodeId, RegionId
from axiom_common.model.reason import Reason
from axiom_common.runtime.desired_store import ATTEMPTS_MAX
from axiom_common.testing.registry import FakeBucket
from axiom_common.wire import desired, headers, rest
from axiom_gateway.admin_problems import RETRY_AFTER_S
from axiom_gateway.admin_seen import AdminView

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


def no_view() -> AdminView:
    raise RuntimeError("secret of the implementation")


@pytest.mark.parametrize("name", ["sql", "acme/sql.v2", "a:b/c_d-e", "a/b/c"])
async def test_an_adapter_is_put_got_listed_and_deleted(name: str) -> None:
    async with admin_api() as it:
        created = await it.put(name, SPEC)
        assert (created.status_code, created.headers[headers.OUTCOME]) == (201, "created")
        given = {"size_bytes": 0, "tenant": "default", "revision": 1, "base_model_known": True}
        seen = {"version": 1, "staleness_ms": 0.0}
        assert created.json() == {**SPEC, **given, **seen, "name": name}
        got = await it.client.get(f"/adapters/{name}")
        assert (got.json(), got.headers["etag"]) == (created.json(), created.headers["etag"])
        listed = await it.client.get("/adapters")
        assert listed.json() == {"items": [created.json()], "next": None, "staleness_ms": 0.0}
        assert (await it.client.delete(f"/adapters/{name}")).status_code == 204
        assert problem(await it.client.get(f"/adapters/{name}")).code == "not-found"
        assert problem(await it.client.delete(f"/adapters/{name}")).status == 404


async def test_what_a_get_answers_can_be_put_and_changes_nothing() -> None:
    async with admin_api() as it:
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
    async with admin_api() as it:
        await it.put("sql", SPEC)
        changed = await it.change("sql", SPEC | change)
        assert (changed.status_code, changed.headers[headers.OUTCOME]) == (200, "updated")
        assert changed.json()["revision"] == revision
        assert (await it.client.get("/adapters/sql")).json() == changed.json()


async def test_an_identity_is_never_given_twice() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        await it.change("sql", SPEC | {"rank": 32})
        await it.client.delete("/adapters/sql")
        assert (await it.put("sql", SPEC)).json()["revision"] == 3


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"\xff\xfe", "body"),
        (b"[" * 50_000, "body"),
        (SPEC | {"rnak": 3}, "rnak"),
        (SPEC | {"rank": "16"}, "rank"),
        (SPEC | {"rank": True}, "rank"),
        (SPEC | {"rank": 0}, "rank"),
        (SPEC | {"rank": 1025}, "rank"),
        (SPEC | {"size_bytes": -1}, "size_bytes"),
        (SPEC | {"size_bytes": 1 << 70}, "size_bytes"),
        (SPEC | {"path": ""}, "path"),
        (SPEC | {"path": "/" + "x" * 1024}, "path"),
        (SPEC | {"path": "/a\nb"}, "path"),
        (SPEC | {"path": "adapters/sql"}, "path"),
        (SPEC | {"path": "/a\ud800"}, "body"),
        (SPEC | {"base_model": "a,b"}, "base_model"),
        (SPEC | {"tenant": "a b"}, "tenant"),
        (SPEC | {"name": "other"}, "name"),
        (SPEC | {"base_model": "sql"}, "base_model"),
        ({"path": "/p", "rank": 1}, "base_model"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_and_nothing_is_written(
    body: Any, path: str
) -> None:
    async with admin_api() as it:
        found = problem(await it.put("sql", body))
        assert (found.status, found.code, found.path) == (400, "invalid-input", path)
        assert await it.bucket.list() == ()


@pytest.mark.parametrize(
    "name",
    ["a~1", "a,b", "a%20b", "-a", "x" * 129, "x" * 10_000, "%F0%9F%98%80", "a//b", "a/", "a/.b"],
)
async def test_a_name_outside_the_alphabet_is_refused(name: str) -> None:
    async with admin_api() as it:
        for response in (
            await it.put(name, SPEC),
            await it.client.get(f"/adapters/{name}"),
            await it.client.patch(f"/adapters/{name}", content=b"{}"),
            await it.client.delete(f"/adapters/{name}"),
        ):
            found = problem(response)
            assert (found.status, found.code, found.path) == (400, "invalid-input", "name")
        assert await it.bucket.list() == ()


async def test_a_body_above_the_bound_is_refused() -> None:
    async with admin_api() as it:
        for size in (rest.BODY_BYTES_MAX + 1, 5 << 20):
            for method in ("PUT", "PATCH"):
                refused = await it.client.request(method, "/adapters/sql", content=b" " * size)
                found = problem(refused)
                assert (found.status, found.code) == (413, "too-large")
        fits = json.dumps(SPEC).encode().ljust(rest.BODY_BYTES_MAX)
        assert (await it.put("sql", fits)).status_code == 201


async def test_a_name_stands_for_an_adapter_or_a_base_model_only() -> None:
    async with admin_api() as it:
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
    async with admin_api() as it:
        calls = [it.put("x", SPEC), it.client.put("/models/x", content=b"{}")]
        answers = await asyncio.gather(*(calls if number % 2 else reversed(calls)))
        assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_an_adapter_of_an_unknown_base_model_is_taken_and_says_so() -> None:
    async with admin_api() as it:
        orphan = await it.put("sql", SPEC | {"base_model": "qwen"})
        assert (orphan.status_code, orphan.json()["base_model_known"]) == (201, False)
        await it.put("chat", SPEC)
        listed = (await it.client.get("/adapters")).json()["items"]
        assert {a["name"]: a["base_model_known"] for a in listed} == {"chat": True, "sql": False}
        await it.client.put("/models/qwen", content=b"{}")
        assert (await it.client.get("/adapters/sql")).json()["base_model_known"]
        assert all(
            a["base_model_known"] for a in (await it.client.get("/adapters")).json()["items"]
        )


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
    made: list[BusyBucket] = []

    def busy(bucket: FakeBucket) -> BusyBucket:
        made.append(BusyBucket(bucket))
        return made[0]

    async with admin_api(wrapped=busy) as it:
        assert problem(await it.put("sql", SPEC)).code == "conflict"
        assert made[0].tries == ATTEMPTS_MAX


async def test_writers_at_the_same_time_each_get_a_revision_of_their_own() -> None:
    async with admin_api() as it:
        ranks = range(1, 3 * ATTEMPTS_MAX)
        first = await it.put("sql", SPEC | {"rank": 1})
        others = (it.change("sql", SPEC | {"rank": rank}) for rank in ranks[1:])
        answers = [first, *await asyncio.gather(*others)]
        assert sorted(a.json()["revision"] for a in answers) == list(ranks)


async def test_base_models_are_declared_and_withdrawn() -> None:
    async with admin_api() as it:
        created = await it.client.put("/models/meta/llama-3-8b", content=b"{}")
        again = await it.client.put("/models/meta/llama-3-8b", content=created.content)
        assert (created.status_code, again.headers[headers.OUTCOME]) == (201, "unchanged")
        listed = (await it.client.get("/models")).json()["items"]
        assert listed == [{"name": "meta/llama-3-8b", "version": 1, "staleness_ms": 0.0}]
        assert (await it.client.get("/models/meta/llama-3-8b")).json() == created.json()
        assert (await it.client.delete("/models/meta/llama-3-8b")).status_code == 204
        assert problem(await it.client.get("/models/meta/llama-3-8b")).code == "not-found"


async def test_a_base_model_that_adapters_are_of_is_not_withdrawn() -> None:
    async with admin_api() as it:
        await it.client.put("/models/qwen", content=b"{}")
        for name in ("sql", "chat"):
            await it.put(name, SPEC | {"base_model": "qwen"})
        await it.put("other", SPEC)
        before = await it.bucket.list()
        for query in ("", "?dryRun=true"):
            refused = problem(await it.client.delete(f"/models/qwen{query}"))
            assert (refused.status, refused.code, refused.path) == (409, "in-use", "name")
            assert "2 adapters" in refused.detail
            assert "chat" in refused.detail
        assert await it.bucket.list() == before
        # Nothing to withdraw, whoever is of it.
        assert problem(await it.client.delete("/models/llama-3-8b")).code == "not-found"
        for name in ("sql", "chat"):
            await it.client.delete(f"/adapters/{name}")
        assert (await it.client.delete("/models/qwen")).status_code == 204


async def test_the_view_is_told() -> None:
    async with admin_api(lambda: VIEW, NODE) as it:
        assert (await it.client.get("/status")).json() == {
            "regions": {
                "eu": {
                    "nodes": 1,
                    "engines": 1,
                    "adapters": 2,
                    "degraded": ["shadow-cache-unavailable"],
                    "view_age_ms": 120.0,
                }
            },
            "staleness_ms": 120.0,
        }
        (node,) = (await it.client.get("/nodes")).json()["items"]
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
        (engine,) = (await it.client.get("/engines")).json()["items"]
        assert node["engines"] == [engine]
        (resident,) = engine["residents"]
        assert (engine["node"], engine["running"], engine["hbm_slots"]) == ("n1", 3, 4)
        assert (resident["adapter"], resident["source"]) == ("sql~1", "inferred")


async def test_every_other_error_is_a_problem_too() -> None:
    async with admin_api(no_view) as it:
        for path in ("/nope", "/nodes/", "/engines/n9.a", "/engines/nope", "/"):
            assert problem(await it.client.get(path)).code == "not-found"
        defect = await it.client.get("/status")
        assert problem(defect).code == "internal"
        assert "secret" not in defect.text
        await it.bucket.put(desired.key_for(AdapterSpec, "sql"), b"not json")
        assert problem(await it.client.get("/adapters/sql")).code == "invalid-message"


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/adapters/sql", "DELETE, GET, PATCH, PUT"), ("/adapters", "GET"), ("/status", "GET")],
)
async def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(
    path: str, methods: str
) -> None:
    async with admin_api() as it:
        for method in ("POST", "OPTIONS", "TRACE"):
            refused = await it.client.request(method, path)
            assert problem(refused).code == "method-not-allowed"
            assert sorted(refused.headers[headers.ALLOW].split(", ")) == methods.split(", ")
        head = await it.client.head(path)
        assert sorted(head.headers[headers.ALLOW].split(", ")) == methods.split(", ")


@pytest.mark.parametrize(
    "body",
    [SPEC | {"f" * 100_000: 1}, SPEC | {f"f{n}": 1 for n in range(1000)}, {"a" * 5000: {"b": 1}}],
)
async def test_a_problem_says_little_of_much_that_was_sent(body: Any) -> None:
    async with admin_api() as it:
        assert len((await it.put("sql", body)).content) < 1024
        assert len((await it.put("n" * 10_000, SPEC | {"name": "sql"})).content) < 1024


async def test_a_body_that_does_not_come_in_time_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("axiom_gateway.admin_bodies.BODY_TIMEOUT_S", 0.01)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with admin_api() as it:
        refused = await it.client.put("/adapters/sql", content=endless())
        assert problem(refused).code == "request-timeout"


async def test_a_client_that_goes_while_it_sends_is_no_defect() -> None:
    async with admin_api() as it:
        sent: list[Any] = []

        async def receive() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        ((name, value),) = key_of(Role.ADMIN).items()
        given = [(name.encode(), value.encode())]
        scope = {"type": "http", "method": "PUT", "path": "/admin/v1/adapters/sql"}
        scope |= {"headers": given, "query_string": b"", "http_version": "1.1"}
        # A defect would be raised here, for the server to log.
        await it.app(scope, receive, send)
        assert sent[0]["status"] == 400


async def test_while_the_registry_is_away_reads_say_how_old_they_are_and_writes_fail() -> None:
    async with admin_api(lambda: VIEW, NODE) as it:
        await it.put("sql", SPEC)
        before = await it.bucket.list()
        it.away()
        for path in ("/adapters", "/adapters/sql"):
            stale = (await it.client.get(path)).json()
            assert stale["staleness_ms"] > 0
        assert [one["name"] for one in (await it.client.get("/adapters")).json()["items"]] == [
            "sql"
        ]
        assert problem(await it.client.get("/adapters/nope")).code == "not-found"
        for response in (
            await it.change("sql", SPEC | {"rank": 8}),
            await it.put("new", SPEC),
            await it.client.patch("/adapters/sql", json={"rank": 8}),
            await it.client.delete("/adapters/sql"),
            await it.put("new", SPEC, {headers.IDEMPOTENCY_KEY: "k"}),
        ):
            assert problem(response).code == "unavailable"
            assert response.headers[headers.RETRY_AFTER] == str(RETRY_AFTER_S)
        for path in ("/status", "/nodes", "/engines"):
            assert (await it.client.get(path)).status_code == 200
        await it.back()
        assert await it.bucket.list() == before
        assert (await it.client.get("/adapters/sql")).json()["staleness_ms"] == 0


async def test_a_registry_that_answers_nothing_on_a_live_bus_is_stale_too() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        it.registry.disconnect()
        assert (await it.client.get("/adapters")).json()["staleness_ms"] == 0
        assert problem(await it.change("sql", SPEC | {"rank": 8})).code == "unavailable"
        assert (await it.client.get("/adapters")).json()["staleness_ms"] > 0
        it.registry.reconnect()
        await it.bucket.put(desired.key_for(BaseModelSpec, "m"), b"broken")
        await eventually(lambda: it.known.staleness_ms() == 0)


async def test_what_was_written_is_in_the_list_that_comes_next() -> None:
    async with admin_api() as it:
        for number in range(5):
            await it.put(f"a{number}", SPEC)
            names = [one["name"] for one in (await it.client.get("/adapters")).json()["items"]]
            assert f"a{number}" in names
        await it.client.delete("/adapters/a0")
        names = [one["name"] for one in (await it.client.get("/adapters")).json()["items"]]
        assert names == ["a1", "a2", "a3", "a4"]


async def test_there_are_only_so_many_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axiom_gateway.admin_declared.ADAPTERS_MAX", 2)
    async with admin_api() as it:
        await it.put("a", SPEC)
        await it.put("b", SPEC)
        refused = problem(await it.put("c", SPEC))
        assert (refused.status, refused.code) == (409, "too-many")
        assert (await it.change("a", SPEC | {"rank": 8})).status_code == 200
        await it.client.delete("/adapters/a")
        assert (await it.put("c", SPEC)).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "parameter"),
    [
        ("GET", "/adapters?adapters=x", "adapters"),
        ("GET", "/adapters?sort=name&sort=rank", "sort"),
        ("GET", "/status?x=1", "x"),
        ("GET", "/openapi.json?x=1", "x"),
        ("PUT", "/adapters/sql?dryrun=true", "dryrun"),
        ("PUT", "/adapters/sql?dryRun=maybe", "dryRun"),
        ("DELETE", "/adapters/sql?dryRun=true&dryRun=false", "dryRun"),
        ("GET", f"/adapters?{'x' * 10_000}=1", "x" * 100),
    ],
)
async def test_a_parameter_that_is_none_is_refused(method: str, path: str, parameter: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.client.request(method, path, content=json.dumps(SPEC)))
        assert (refused.status, refused.code, refused.path) == (400, "invalid-input", parameter)
        assert await it.bucket.list() == ()


async def test_roles_come_before_bodies_and_keys_before_paths() -> None:
    async with admin_api() as it:
        big = b" " * (5 << 20)
        viewer = {headers.AUTHORIZATION: key_of(Role.VIEWER)[headers.AUTHORIZATION]}
        refused = await it.client.put("/adapters/sql", content=big, headers=viewer)
        assert problem(refused).code == "forbidden"
        for path in ("/adapters/sql", "/nope"):
            stranger = await it.client.put(path, content=big, headers={"authorization": "Bearer x"})
            assert problem(stranger).code == "unauthenticated"


async def test_every_operation_is_described_with_its_errors_and_examples() -> None:
    told = await described()
    validate(told)
    assert told["openapi"].startswith("3.1")
    assert len(told["paths"]) > 15
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["security"], where
            for status, answer in operation["responses"].items():
                contents = answer.get("content", {})
                if status[0] in "45":
                    assert list(contents) == [rest.PROBLEM_MEDIA_TYPE], where
                elif status == "200" and path != "/watch":
                    schema = contents["application/json"]["schema"]
                    shape = told["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
                    assert shape["examples"], where
            for content in operation.get("requestBody", {}).get("content", {}).values():
                assert "example" in content, where
            for parameter in operation["parameters"]:
                assert parameter["in"] in ("query", "path", "header"), where
                if parameter["name"] not in ("cursor", "after"):
                    assert "example" in parameter or "examples" in parameter, (where, parameter)
    for name, schema in told["components"]["schemas"].items():
        assert "examples" in schema or "enum" in schema, name


async def test_examples_fit_their_own_schemas() -> None:
    told = await described()
    registry = Registry().with_resource(
        "urn:api", Resource.from_contents(told, default_specification=DRAFT202012)
    )

    def fits(schema: Any, example: Any) -> None:
        whole = json.loads(json.dumps(schema).replace("#/components", "urn:api#/components"))
        Draft202012Validator(whole, registry=registry).validate(example)

    for schema in told["components"]["schemas"].values():
        for example in schema.get("examples", ()):
            fits(schema, example)
    for operations in told["paths"].values():
        for operation in operations.values():
            for part in [
                *operation["parameters"],
                *operation.get("requestBody", {}).get("content", {}).values(),
            ]:
                if "example" in part:
                    fits(part["schema"], part["example"])
