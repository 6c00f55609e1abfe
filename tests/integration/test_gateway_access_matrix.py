"""Who may do what at the admin API: every route, asked by everybody, in every way to write it.

The table is the running gateway's own. What is asked is what a server's parser makes of a request
line (`test_gateway_access` has the lines themselves).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Mount, Route
from tests.gateway_region import Gateway, Region, key_header, region_of, served

from axiom_common.errors import SettingsError
from axiom_common.model.access import ApiKey, Role
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.ports.registry import Bucket
from axiom_common.wire import desired, keys, rest
from axiom_gateway.admin_access import digest_of, require_roles, role_of
from axiom_gateway.asgi import Message

ADMIN = "/admin/v1"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
SECRETS = {role: f"axk-a-secret-of-the-{role}-in-the-matrix" for role in Role}
NOBODY, WRONG = "nobody", "wrong"
CALLERS: dict[str, Mapping[str, str]] = {
    NOBODY: {},
    WRONG: key_header("axk-a-secret-that-nobody-has-been-given-yet"),
    **{role.value: key_header(secret) for role, secret in SECRETS.items()},
}
THERE = "there"
"""The name of one declared object of each kind."""
BODIES: dict[str, dict[str, Any]] = {
    "models": {},
    "adapters": {"base_model": "base", "path": "/a", "rank": 16},
    "profiles": {"wait_cap_ms": 1.0},
    "keys": {"role": "admin"},
    "explain": {"model": "base"},
}
RESOURCES = {
    *("models", "adapters", "profiles", "keys", "nodes", "engines", "plan", "config", "status"),
    *("decisions", "explain", "watch", "openapi.json"),
}
ROUTES_MIN = 30


@dataclass(frozen=True)
class Line:
    """One line of the table: how to ask for a route, and the role that it names."""

    method: str
    path: str
    role: Role

    @property
    def resource(self) -> str:
        return self.path.removeprefix(ADMIN).split("/")[1]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def table(gateway: Gateway) -> list[Line]:
    """The routes, asked for names that are there where a name is asked for."""
    lines = []
    for route in gateway.app.admin.routes:
        assert isinstance(route, APIRoute), route
        role = role_of(route)
        assert role is not None
        named = gateway.region.engines[0].id if route.path.startswith("/engines") else THERE
        path = re.sub(r"\{[^}]*\}", named, route.path)
        lines += [Line(method, ADMIN + path, role) for method in sorted(route.methods)]
    return lines


async def ask(
    gateway: Gateway, method: str, path: str, caller: Mapping[str, str], body: bytes = b""
) -> Answer:
    """Ask as a server does that has parsed a request line; the client leaves once it has asked."""
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in caller.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asked = [{"type": "http.request", "body": body, "more_body": False}]
    told: list[Message] = []

    async def receive() -> Message:
        return asked.pop() if asked else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        told.append(message)

    await gateway.asgi(scope, receive, send)
    start = told[0]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(message.get("body", b"") for message in told[1:])
    return Answer(start["status"], headers, body)


def spellings(path: str) -> Iterable[str]:
    """Other ways to write a path, all of which somebody might take for it."""
    rest_of = path.removeprefix(ADMIN)
    yield path + "/"
    yield path + "//"
    yield "/" + path
    yield path.replace("/v1", "//v1")
    yield path.replace("/admin", "/Admin")
    yield path.upper()
    yield path.replace("/admin", "/%61dmin")
    yield path.replace("/admin/", "/admin%2F")
    yield path.replace("/admin/", "/admin%252F")
    yield ADMIN + rest_of.replace("/", "%2f")
    yield ADMIN + "/." + rest_of
    yield ADMIN + "/x/.." + rest_of
    yield "/v1/.." + path
    yield ADMIN + ";x=1" + rest_of
    yield path + ";x=1"
    yield path + "%00"
    yield path + "%0d%0ax:y"
    yield path + "%20"
    yield path + "%C3%A4"
    yield path + "%ff"
    yield path + "?"
    yield path + "?role=admin&key=x&access_token=x"


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """One that knows a key of each role, a base model and an adapter."""
    async with region_of(1) as region, served(region) as gateway:
        bucket = await desired_of(region)
        declared: list[desired.Declared] = [
            *(ApiKey(name=role, role=role, digest=digest_of(SECRETS[role])) for role in Role),
            ApiKey(name=THERE, role=Role.CLIENT, digest="0" * 64),
            BaseModelSpec(name=THERE),
            AdapterSpec(name=f"{THERE}/a", base_model="base", revision=1, path="/a", rank=8),
        ]
        for value in declared:
            await bucket.put(desired.key_of(value), desired.encode(value))
        await gateway.knows(THERE, f"{THERE}/a")
        yield gateway


async def desired_of(region: Region) -> Bucket:
    return await region.registry.bucket(keys.DESIRED_BUCKET)


def may(caller: str, role: Role) -> bool:
    """Whether somebody may use a route of this role."""
    return caller not in (NOBODY, WRONG) and Role(caller).grants(role)


def body_of(line: Line) -> bytes:
    return json.dumps(BODIES.get(line.resource, {})).encode()


def refused_well(answer: Answer, status: int, code: str) -> bool:
    """Whether it is that problem, with all that one has."""
    if answer.status != status:
        return False
    problem = rest.Problem.model_validate_json(answer.body)
    assert answer.headers["content-type"] == rest.PROBLEM_MEDIA_TYPE
    assert ("www-authenticate" in answer.headers) == (status == 401)
    return problem.code == code


async def test_the_table_is_whole_and_says_what_people_were_told(gateway: Gateway) -> None:
    lines = table(gateway)
    assert len(lines) >= ROUTES_MIN
    assert {line.resource.split(":")[0] for line in lines} == RESOURCES
    verbs = {line.path.rpartition(":")[2] for line in lines if ":" in line.path}
    assert verbs >= {"cordon", "drain", "release", "rotate"}
    for line in lines:
        if line.resource == "keys":
            expected = Role.ADMIN
        elif line.method == "GET" or line.resource == "explain":
            expected = Role.VIEWER
        else:
            expected = Role.ADMIN if line.resource == "profiles" else Role.OPERATOR
        assert line.role is expected, line


async def test_each_route_is_open_to_its_role_and_to_nobody_else(
    gateway: Gateway,
) -> None:
    before = await (await desired_of(gateway.region)).list()
    for line in table(gateway):
        for caller, key in CALLERS.items():
            if may(caller, line.role):
                continue
            # With a body and precondition that would do it.
            headers = {**key, "if-match": "*", "content-type": "application/json"}
            answer = await ask(gateway, line.method, line.path, headers, body_of(line))
            code = "unauthenticated" if caller in (NOBODY, WRONG) else "forbidden"
            assert refused_well(answer, 401 if "un" in code else 403, code), (line, caller, answer)
    assert await (await desired_of(gateway.region)).list() == before
    for line in table(gateway):
        for caller, key in CALLERS.items():
            if may(caller, line.role):
                # What is not a body at all comes as far as the route, and changes nothing.
                path = f"{line.path}?dryRun=true" if line.method in WRITES else line.path
                answer = await ask(gateway, line.method, path, key, b"{")
                assert answer.status not in (401, 403), (line, caller, answer)
                assert answer.status < 500, (line, caller, answer)


async def test_a_method_that_a_path_does_not_take_is_told_to_those_with_a_key(
    gateway: Gateway,
) -> None:
    taken: dict[str, set[str]] = {}
    for line in table(gateway):
        taken.setdefault(line.path, set()).add(line.method)
    for path, methods in taken.items():
        # A name may be a path, so several routes may have this one.
        for method in set(METHODS) - methods:
            for caller, key in CALLERS.items():
                answer = await ask(gateway, method, path, key)
                if caller in (NOBODY, WRONG):
                    assert refused_well(answer, 401, "unauthenticated"), (method, path, answer)
                elif answer.status == 405:
                    assert set(answer.headers["allow"].split(", ")) >= methods, (path, answer)
                else:
                    # `POST /keys/there` is that of no other route, `there:rotate` a name as well.
                    assert answer.status in (400, 403, 404), (method, path, caller, answer)
        for method in ("HEAD", "OPTIONS", "TRACE"):
            answer = await ask(gateway, method, path, CALLERS[Role.ADMIN])
            assert answer.status == 405, (method, path)


async def test_no_spelling_is_a_way_round(gateway: Gateway) -> None:
    before = await (await desired_of(gateway.region)).list()
    asked = 0
    for line in table(gateway):
        for spelling in spellings(line.path):
            for caller, key in CALLERS.items():
                if may(caller, line.role) and line.method in WRITES:
                    continue
                headers = {**key, "if-match": "*", "content-type": "application/json"}
                answer = await ask(gateway, line.method, spelling, headers, body_of(line))
                asked += 1
                where = (line.method, spelling, caller, answer)
                assert answer.status < 500, where
                assert answer.status // 100 != 3, where
                if spelling.startswith("/v1/"):
                    assert answer.status == 404, where
                elif caller in (NOBODY, WRONG):
                    assert refused_well(answer, 401, "unauthenticated"), where
                elif not may(caller, line.role):
                    assert answer.status // 100 == 4, where
        await asyncio.sleep(0)
    assert asked > 2_000
    assert await (await desired_of(gateway.region)).list() == before


def test_a_route_without_a_role_does_not_start() -> None:
    async def answer() -> Response:
        return Response()

    def included(app: FastAPI) -> None:
        router = APIRouter()
        router.get("/x")(answer)
        app.include_router(router)

    def added(app: FastAPI) -> None:
        app.router.get("/x")(answer)

    def plain(app: FastAPI) -> None:
        app.router.routes.append(Route("/x", lambda _: Response()))

    def mounted(app: FastAPI) -> None:
        app.router.routes.append(Mount("/x", app=Response()))

    for add in (included, added, plain, mounted):
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        require_roles(app)
        add(app)
        with pytest.raises(SettingsError, match="has no role"):
            require_roles(app)
    with pytest.raises(SettingsError, match="has no role"):
        require_roles(FastAPI())
