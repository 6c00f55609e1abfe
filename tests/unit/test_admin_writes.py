"""How things are changed over the admin API: preconditions, merge patches, dry runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.admin_parts import admin_api, problem

from axiom_common.wire import headers, rest
from axiom_gateway.admin_writes import merge

SPEC = {"base_model": "llama-3-8b", "path": "/adapters/sql", "rank": 16}
DRY = {"dryRun": "true"}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_rfc_lists(target: Any, patch: Any, result: Any) -> None:
    """RFC 7396, appendix A."""
    before = json.dumps(target)
    assert merge(target, patch) == result
    assert json.dumps(target) == before


async def test_what_exists_is_changed_only_by_who_says_which_version_they_saw() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        before = await it.bucket.list()
        for response in (
            await it.put("sql", SPEC | {"rank": 8}),
            await it.client.patch("/adapters/sql", json={"rank": 8}),
            await it.client.patch("/adapters/sql", json={"rank": 8}, params=DRY),
        ):
            refused = problem(response)
            assert (refused.status, refused.code) == (428, "precondition-required")
        for response in (
            await it.put("sql", SPEC),
            await it.client.patch("/adapters/sql", json={"rank": SPEC["rank"]}),
            await it.client.patch("/adapters/sql", json={}),
        ):
            assert (response.status_code, response.headers[headers.OUTCOME]) == (200, "unchanged")
        assert await it.bucket.list() == before


async def test_if_match_guards_every_change() -> None:
    async with admin_api() as it:
        absent = await it.change("sql", SPEC)
        assert problem(absent).code == "precondition-failed"
        first = (await it.put("sql", SPEC)).headers["etag"]
        second = await it.put("sql", SPEC | {"rank": 8}, {headers.IF_MATCH: first})
        assert second.status_code == 200
        assert second.json()["version"] == int(second.headers["etag"].strip('"'))
        unmatched = (
            first,
            '"0"',
            f'"{"9" * 16}"',
            f'"{"9" * 5000}"',
            'W/"2"',
            '""',
            '"abc"',
            f'{first}, "0"',
        )
        for etag in unmatched:
            stale = {headers.IF_MATCH: etag}
            for response in (
                await it.put("sql", SPEC, stale),
                await it.client.patch("/adapters/sql", json={"rank": 3}, headers=stale),
                await it.client.delete("/adapters/sql", headers=stale),
                await it.client.delete("/adapters/sql", headers=stale, params=DRY),
            ):
                refused = problem(response)
                assert (refused.status, refused.code) == (412, "precondition-failed")
        assert (await it.client.get("/adapters/sql")).headers["etag"] == second.headers["etag"]
        for wrong in ("12", '"1" "2"', '"1",', "W/*", '"1', "*, *", '"1", *'):
            refused = problem(await it.put("sql", SPEC, {headers.IF_MATCH: wrong}))
            assert (refused.status, refused.path) == (400, headers.IF_MATCH)
        patched = await it.client.patch(
            "/adapters/sql",
            json={"rank": 4},
            headers={headers.IF_MATCH: f'"a,b",{second.headers["etag"]} , W/"1"'},
        )
        assert (patched.status_code, patched.json()["rank"]) == (200, 4)
        gone = await it.client.delete("/adapters/sql", headers={headers.IF_MATCH: "*"})
        assert gone.status_code == 204


async def test_if_none_match_creates_only() -> None:
    async with admin_api() as it:
        only_new = {headers.IF_NONE_MATCH: "*"}
        assert (await it.put("sql", SPEC, only_new)).status_code == 201
        assert problem(await it.put("sql", SPEC | {"rank": 8}, only_new)).status == 412
        assert (await it.client.get("/adapters/sql")).json()["rank"] == SPEC["rank"]
        wrong = problem(await it.put("sql", SPEC, {headers.IF_NONE_MATCH: '"1"'}))
        assert (wrong.status, wrong.path) == (400, headers.IF_NONE_MATCH)
        for name in ("sql", "other"):
            both = await it.put(name, SPEC, only_new | {headers.IF_MATCH: "*"})
            assert problem(both).status == 412


@pytest.mark.parametrize("named", ["{etag}", 'W/{etag}, "x"', '"x" , {etag}', "*"])
async def test_who_has_seen_it_is_told_no_more_than_that(named: str) -> None:
    async with admin_api() as it:
        etag = (await it.put("sql", SPEC)).headers["etag"]
        seen = {headers.IF_NONE_MATCH: named.format(etag=etag)}
        answer = await it.client.get("/adapters/sql", headers=seen)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        await it.change("sql", SPEC | {"rank": 8})
        newer = await it.client.get("/adapters/sql", headers={headers.IF_NONE_MATCH: etag})
        assert newer.json()["rank"] == 8


async def test_a_patch_changes_what_it_names() -> None:
    async with admin_api() as it:
        created = (await it.put("sql", SPEC | {"tenant": "acme", "size_bytes": 7})).json()
        for patch, change in (
            ({"rank": 32}, {"rank": 32, "revision": 2}),
            ({"tenant": None}, {"tenant": "default"}),
            ({"size_bytes": None, "path": "/n"}, {"size_bytes": 0, "path": "/n", "revision": 3}),
            ({"version": 77, "staleness_ms": 5, "revision": 9}, {}),
        ):
            answer = await it.client.patch(
                "/adapters/sql", json=patch, headers={headers.IF_MATCH: "*"}
            )
            created |= change | {"version": answer.json()["version"]}
            assert (answer.status_code, answer.json()) == (200, created)
        assert (await it.client.get("/adapters/sql")).json() == created


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b'"rank"', "body"),
        (b"[" * 50_000, "body"),
        (b'{"rank": 1' + b"0" * 5_000 + b"}", "body"),
        (b'{"rank": NaN}', "rank"),
        (b'{"rank": {"a": 1}}', "rank"),
        (b'{"rank": null}', "rank"),
        (b'{"rank": "8"}', "rank"),
        (b'{"rnak": 8}', "rnak"),
        (b'{"rnak": null}', "rnak"),
        (b'{"name": "other"}', "name"),
        (b'{"base_model": "sql"}', "base_model"),
        (json.dumps({"x" * 9_000: 1}).encode(), "x" * 100),
    ],
)
async def test_a_patch_that_does_not_fit_is_refused(patch: bytes, path: str) -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        before = await it.bucket.list()
        given = {headers.IF_MATCH: "*"}
        response = await it.client.patch("/adapters/sql", content=patch, headers=given)
        refused = problem(response)
        assert (refused.status, refused.code) == (400, "invalid-input")
        assert refused.path == path
        assert len(response.content) < 1024
        assert await it.bucket.list() == before


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("application/merge-patch+json; charset=utf-8", 200),
        ("Application/Merge-Patch+JSON", 200),
        ("application/json-patch+json", 415),
        ("text/plain", 415),
    ],
)
async def test_a_patch_is_a_merge_patch(kind: str | None, status: int) -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        given = {headers.IF_MATCH: "*"} | ({"content-type": kind} if kind else {})
        answer = await it.client.patch("/adapters/sql", content=b'{"rank": 8}', headers=given)
        assert answer.status_code == status
        if status == 415:
            assert problem(answer).code == "unsupported-media-type"


@pytest.mark.parametrize(
    ("method", "url", "content"),
    [
        ("PUT", "/adapters/new", json.dumps(SPEC)),
        ("PUT", "/models/new", "{}"),
        ("PUT", "/profiles/new", "{}"),
        ("PUT", "/keys/new", '{"role": "viewer"}'),
        ("POST", "/keys/k:rotate", "{}"),
    ],
)
async def test_a_body_that_says_it_is_no_json_is_refused(
    method: str, url: str, content: str
) -> None:
    async with admin_api() as it:
        await it.client.put("/keys/k", json={"role": "viewer"})
        before = await it.bucket.list()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
            given = {headers.IF_MATCH: "*", headers.CONTENT_TYPE: kind}
            refused = problem(await it.client.request(method, url, content=content, headers=given))
            assert (refused.code, refused.path) == ("unsupported-media-type", headers.CONTENT_TYPE)
        assert await it.bucket.list() == before
        for number, kind in enumerate(
            ("application/octet-stream", "Application/JSON ; charset=utf-8")
        ):
            given = {headers.CONTENT_TYPE: kind}
            given |= {headers.IF_MATCH: "*"} if method == "POST" else {}
            fresh = url if method == "POST" else f"{url}{number}"
            taken = await it.client.request(method, fresh, content=content, headers=given)
            assert taken.status_code // 100 == 2


async def test_of_no_body_its_type_does_not_matter() -> None:
    """Some clients name one with every POST."""
    async with admin_api() as it:
        await it.client.put("/keys/k", json={"role": "viewer"})
        given = {headers.IF_MATCH: "*", headers.CONTENT_TYPE: "application/x-www-form-urlencoded"}
        rotated = await it.client.post("/keys/k:rotate", content=b"", headers=given)
        assert rotated.status_code == 200


async def test_there_is_nothing_to_patch_where_nothing_is() -> None:
    async with admin_api() as it:
        assert problem(await it.client.patch("/adapters/sql", json={})).code == "not-found"
        given = {headers.IF_MATCH: "*"}
        answer = await it.client.patch("/adapters/sql", json={}, headers=given)
        assert problem(answer).code == "precondition-failed"


async def test_a_dry_run_answers_as_the_write_would_and_writes_nothing() -> None:
    async with admin_api() as it:
        await it.put("old", SPEC)
        await it.client.put("/models/m", content=b"{}")
        before = await it.bucket.list()
        asked: list[tuple[str, str, Any, dict[str, str]]] = [
            ("PUT", "new", SPEC, {}),
            ("PUT", "old", SPEC, {}),
            ("PUT", "old", SPEC | {"rank": 8}, {}),
            ("PUT", "old", SPEC | {"rank": 8}, {headers.IF_MATCH: '"77"'}),
            ("PUT", "old", SPEC | {"rank": 0}, {}),
            ("PUT", "m", SPEC, {}),
            ("PATCH", "nope", {}, {}),
            ("DELETE", "nope", None, {}),
            ("PUT", "old", SPEC | {"rank": 8}, {headers.IF_MATCH: "*"}),
            ("PATCH", "old", {"rank": 9}, {headers.IF_MATCH: "*"}),
            ("DELETE", "old", None, {}),
        ]

        def without_version(body: bytes) -> Any:
            told = json.loads(body) if body else {}
            told.pop("version", None)
            return told

        dry = []
        for method, name, body, given in asked:
            content = None if body is None else json.dumps(body)
            dry.append(
                await it.client.request(
                    method, f"/adapters/{name}", content=content, headers=given, params=DRY
                )
            )
            assert await it.bucket.list() == before
        for (method, name, body, given), would in zip(asked, dry, strict=True):
            if method == "PATCH" and name == "old":
                continue  # The change before it has raised the revision meanwhile.
            content = None if body is None else json.dumps(body)
            real = await it.client.request(
                method, f"/adapters/{name}", content=content, headers=given
            )
            assert would.status_code == real.status_code
            assert without_version(would.content) == without_version(real.content)


async def test_two_applies_of_different_adapters_at_the_same_moment_both_stay() -> None:
    async with admin_api() as it:
        answers = await asyncio.gather(*(it.put(f"a{n}", SPEC) for n in range(20)))
        assert {answer.status_code for answer in answers} == {201}
        names = [one["name"] for one in (await it.client.get("/adapters")).json()["items"]]
        assert sorted(names) == sorted(f"a{n}" for n in range(20))


async def test_what_a_get_answers_can_be_put_under_its_etag() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC)
        got = await it.client.get("/adapters/sql")
        wanted = got.json() | {"rank": 4}
        put = await it.put("sql", wanted, {headers.IF_MATCH: got.headers["etag"]})
        assert (put.status_code, put.json()["rank"]) == (200, 4)
        assert rest.Adapter.model_validate_json(put.content).version > got.json()["version"]
