"""Each refusal of the admin API says which part of the request it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.admin_parts import admin_api, key_of, problem

from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NameTakenError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    UnavailableError,
    WireError,
)
from axiom_common.model.access import Role
from axiom_common.model.ids import GatewayId
from axiom_common.wire import headers, rest
from axiom_gateway.admin_keys import LastAdminKeyError
from axiom_gateway.admin_problems import CODES, AdminError, problem_of
from axiom_gateway.everywhere import NotEverywhereError
from axiom_gateway.watch import TooManyWatchersError

SPEC = {"base_model": "llama-3-8b", "path": "/adapters/sql", "rank": 16}
MATCH, NONE_MATCH = {headers.IF_MATCH: '"7"'}, {headers.IF_NONE_MATCH: "*"}
ONCE = {headers.IDEMPOTENCY_KEY: "k"}
NAMED = {"path_params": {"name": "sql"}}
COMMON: tuple[tuple[AxiomError, dict[str, Any], str], ...] = (
    (InvalidInputError("m"), {}, "body"),
    (InvalidInputError("m", path="a.b"), {}, "a.b"),
    (NameTakenError("m", path="name"), {}, "name"),
    (NotFoundError("m"), {}, "url"),
    (NotFoundError("m"), NAMED, "name"),
    (ConflictError("m"), NAMED, "name"),
    (PreconditionError("m"), NAMED, "if-match"),
    (PreconditionError("m"), {"headers": [(b"if-none-match", b"*")]}, "if-none-match"),
    (PreconditionRequiredError("m"), NAMED, "if-match"),
    (TooManyWatchersError("m"), {}, "request"),
    (UnavailableError("m"), NAMED, "request"),
    (WireError("m"), NAMED, "request"),
    (AxiomError("m"), NAMED, "request"),
    (LastAdminKeyError("n"), {}, "name"),
    (NotEverywhereError("m", (GatewayId("g"),)), {}, "request"),
)


def kinds(of: type[AdminError] = AdminError) -> Iterator[type[AdminError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def told(error: AxiomError, more: dict[str, Any]) -> rest.Problem:
    response = problem_of(error, {"type": "http", "headers": [], **more})
    return rest.Problem.model_validate_json(bytes(response.body))


def test_every_code_comes_with_a_path() -> None:
    found = [told(error, more) for error, more, _ in COMMON]
    assert [one.path for one in found] == [path for _, _, path in COMMON]
    own = {type(error) for error, _, _ in COMMON}
    for kind in kinds():
        if kind not in own:
            found.append(told(kind("m", path="p"), {}))
            assert found[-1].path == "p"
    made = {(one.status, one.code) for one in found}
    # What the framework refuses by itself is in the table below.
    assert made | {(405, "method-not-allowed")} == {
        (status, code) for status, codes in CODES.items() for code in codes
    }


def test_an_error_of_this_api_can_not_be_made_without() -> None:
    with pytest.raises(TypeError):
        AdminError("m")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "url", "content", "given", "code", "path"),
    [
        ("PUT", "/adapters/sql", "{", {}, "invalid-input", "body"),
        ("PUT", "/adapters/sql", {"rnak": 1}, {}, "invalid-input", "rnak"),
        ("GET", "/adapters?cursor=abc", "", {}, "wrong-cursor", "cursor"),
        ("GET", "/adapters", "", {"authorization": "x"}, "unauthenticated", "authorization"),
        ("PUT", "/adapters/a", "{}", key_of(Role.CLIENT), "forbidden", "authorization"),
        ("GET", "/adapters/nope", "", {}, "not-found", "name"),
        ("PATCH", "/adapters/nope", "{}", {}, "not-found", "name"),
        ("DELETE", "/adapters/nope", "", ONCE, "not-found", "name"),
        ("GET", "/nodes/nope", "", {}, "not-found", "node"),
        ("GET", "/engines/nope", "", {}, "not-found", "engine"),
        ("GET", "/nope", "", {}, "not-found", "url"),
        ("DELETE", "/status", "", {}, "method-not-allowed", "method"),
        ("POST", "/keys/key:explode", "", {}, "method-not-allowed", "method"),
        ("PUT", "/models/sql", "{}", {}, "name-taken", "name"),
        ("PUT", "/adapters/sql", {"rank": 8}, {}, "precondition-required", "if-match"),
        ("PUT", "/adapters/sql", {"rank": 8}, MATCH, "precondition-failed", "if-match"),
        ("PUT", "/adapters/sql", {}, NONE_MATCH, "precondition-failed", "if-none-match"),
        ("PUT", "/adapters/sql", {}, MATCH | NONE_MATCH, "precondition-failed", "if-match"),
        ("PUT", "/adapters/sql", "x" * (5 << 20), {}, "too-large", "body"),
        ("PUT", "/adapters/sql", "x" * (5 << 20), ONCE, "too-large", "body"),
        (
            "PATCH",
            "/adapters/sql",
            "{}",
            {headers.CONTENT_TYPE: "text/plain"},
            "unsupported-media-type",
            "content-type",
        ),
        ("DELETE", "/adapters/used", "", ONCE, "idempotency-key-reused", "idempotency-key"),
        ("PUT", "/keys/key-of-viewer", '{"role": 1}', {}, "invalid-input", "role"),
    ],
)
async def test_a_refusal_says_which_part_of_the_request_it_is_about(
    method: str, url: str, content: Any, given: dict[str, str], code: str, path: str
) -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        if code == "idempotency-key-reused":
            await it.put("used", SPEC, ONCE)
        sent = content if isinstance(content, str) else json.dumps(SPEC | content)
        refused = problem(await it.client.request(method, url, content=sent, headers=given))
        assert (refused.code, refused.path) == (code, path)


async def test_what_is_no_fault_of_the_request_says_so() -> None:
    def broken() -> Any:
        raise RuntimeError

    async with admin_api(broken) as it:
        assert problem(await it.client.get("/status")).path == "request"
        it.away()
        assert problem(await it.put("sql", SPEC)).path == "request"
