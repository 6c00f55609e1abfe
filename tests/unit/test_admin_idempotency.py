"""Writes with an idempotency key, at two gateways of one region."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.admin_parts import REGION, SECRETS, Api, admin_api, key_of, problem
from tests.eventually import eventually

from axiom_common.errors import UnavailableError
from axiom_common.model.access import Role
from axiom_common.testing.registry import FakeBucket
from axiom_common.wire import headers, keys, rest
from axiom_common.wire.requests import BODY_BYTES_MAX, RequestRecord, decode, encode

SPEC = {"base_model": "llama-3-8b", "path": "/adapters/sql", "rank": 16}
KEY = {headers.IDEMPOTENCY_KEY: "apply-1"}


async def kept(it: Api) -> FakeBucket:
    return await it.registry.bucket(keys.request_bucket(REGION))


@asynccontextmanager
async def two_gateways() -> AsyncIterator[tuple[Api, Api]]:
    async with admin_api() as one, admin_api(registry=one.registry) as two:
        yield one, two


def replayed(answer: httpx2.Response) -> bool:
    return answer.headers.get(headers.REPLAYED) == "true"


async def test_the_same_write_sent_again_is_done_once_and_answered_alike() -> None:
    async with two_gateways() as (one, two):
        first = await one.put("sql", SPEC, KEY)
        assert (first.status_code, replayed(first)) == (201, False)
        await one.client.delete("/adapters/sql")
        for again in (await one.put("sql", SPEC, KEY), await two.put("sql", SPEC, KEY)):
            assert (again.status_code, replayed(again)) == (201, True)
            assert again.json() == first.json()
            for name in (headers.ETAG, headers.OUTCOME, "content-type"):
                assert again.headers[name] == first.headers[name]
        assert problem(await one.client.get("/adapters/sql")).code == "not-found"


async def test_every_kind_of_write_may_be_sent_again() -> None:
    async with two_gateways() as (one, two):
        await one.put("sql", SPEC)
        any_version = {headers.IF_MATCH: "*"}
        patch = json.dumps({"rank": 8})

        async def patched(it: Api) -> httpx2.Response:
            given = any_version | {headers.IDEMPOTENCY_KEY: "p"}
            return await it.client.patch("/adapters/sql", content=patch, headers=given)

        async def deleted(it: Api) -> httpx2.Response:
            return await it.client.delete("/adapters/sql", headers={headers.IDEMPOTENCY_KEY: "d"})

        for write in (patched, deleted):
            first, again = await write(one), await write(two)
            assert (again.status_code, again.content) == (first.status_code, first.content)
            assert (replayed(first), replayed(again)) == (False, True)
        assert first.status_code == 204


@pytest.mark.parametrize(
    ("path", "body", "given"),
    [
        ("/adapters/sql", SPEC | {"rank": 8}, {}),
        ("/adapters/other", SPEC, {}),
        ("/adapters/sql?dryRun=true", SPEC, {}),
        ("/adapters/sql", SPEC, {headers.IF_MATCH: "*"}),
        ("/adapters/sql", SPEC, {headers.IF_NONE_MATCH: "*"}),
    ],
)
async def test_another_write_under_the_same_key_is_refused(
    path: str, body: Any, given: dict[str, str]
) -> None:
    async with two_gateways() as (one, two):
        await one.put("sql", SPEC, KEY)
        before = await one.bucket.list()
        for it in (one, two):
            refused = problem(
                await it.client.put(path, content=json.dumps(body), headers=KEY | given)
            )
            assert (refused.status, refused.code) == (422, "idempotency-key-reused")
        assert await one.bucket.list() == before


async def test_a_dry_run_is_no_write_under_the_key_of_one() -> None:
    async with admin_api() as it:
        would = await it.client.put(
            "/adapters/sql?dryRun=true", content=json.dumps(SPEC), headers=KEY
        )
        assert would.status_code == 201
        assert problem(await it.put("sql", SPEC, KEY)).code == "idempotency-key-reused"
        assert await it.bucket.list() == ()


async def test_a_key_is_one_callers_own() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC, KEY)
        operator = await it.put("sql", SPEC, KEY | key_of(Role.OPERATOR))
        assert (operator.status_code, replayed(operator)) == (200, False)
        assert operator.headers[headers.OUTCOME] == "unchanged"
        for role in (Role.VIEWER, Role.CLIENT):
            refused = await it.put("sql", SPEC, KEY | key_of(role))
            assert problem(refused).code == "forbidden"


@pytest.mark.parametrize("at_once", [2, 8])
async def test_of_many_at_once_one_is_done(at_once: int) -> None:
    async with two_gateways() as gateways:
        calls = [gateways[n % 2].put("sql", SPEC, KEY) for n in range(at_once)]
        answers = await asyncio.gather(*calls)
        done = [answer for answer in answers if answer.status_code == 201 and not replayed(answer)]
        assert len(done) == 1
        for other in answers:
            if other is not done[0]:
                under_way = other.status_code == 409
                assert replayed(other) or (under_way and problem(other).code == "request-under-way")
        again = await gateways[1].put("sql", SPEC, KEY)
        assert (again.json(), replayed(again)) == (done[0].json(), True)


async def test_what_was_refused_may_be_tried_again() -> None:
    async with admin_api() as it:
        for status, body, given in (
            (400, SPEC | {"rank": 0}, {}),
            (412, SPEC, {headers.IF_MATCH: '"77"'}),
        ):
            for _ in range(2):
                refused = await it.put("sql", body, KEY | given)
                assert (refused.status_code, replayed(refused)) == (status, False)
        assert await (await kept(it)).list() == ()
        assert (await it.put("sql", SPEC, KEY)).status_code == 201


async def test_a_gateway_that_dies_in_the_middle_lets_go_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lease is there without an answer, and ends by itself."""
    monkeypatch.setattr("axiom_gateway.admin_idempotency.LEASE_MS", 200.0)

    class Dying:
        """A bucket in which a write never comes back."""

        def __init__(self, bucket: FakeBucket) -> None:
            self._bucket = bucket

        def __getattr__(self, name: str) -> Any:
            return getattr(self._bucket, name)

        async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
            await asyncio.Event().wait()
            raise AssertionError

    async with admin_api(wrapped=Dying) as one, admin_api(registry=one.registry) as two:
        dying = one.owner.create_task(one.put("sql", SPEC, KEY), name="dying")
        leases = await kept(one)
        await eventually(lambda: leases._entries)
        (lease,) = await leases.list()
        assert decode(lease.value or b"").answer is None
        dying.cancel()
        assert problem(await two.put("sql", SPEC, KEY)).code == "request-under-way"
        await eventually(lambda: not leases._entries)
        assert (await two.put("sql", SPEC, KEY)).status_code == 201


async def test_an_answer_that_can_not_be_kept_is_a_good_one_all_the_same() -> None:
    class Full:
        """A bucket that takes leases and no more."""

        def __init__(self, bucket: FakeBucket) -> None:
            self._bucket = bucket

        def __getattr__(self, name: str) -> Any:
            return getattr(self._bucket, name)

        async def update(self, key: str, value: bytes, **_: Any) -> int:
            raise UnavailableError("no room")

    async with admin_api(requests=Full) as it:
        assert (await it.put("sql", SPEC, KEY)).status_code == 201
        again = await it.put("sql", SPEC, KEY)
        assert problem(again).code == "request-under-way"


async def test_while_the_registry_is_away_a_write_with_a_key_fails_clearly() -> None:
    async with admin_api() as it:
        it.away()
        refused = await it.put("sql", SPEC, KEY)
        assert problem(refused).code == "unavailable"
        await it.back()
        assert (await it.put("sql", SPEC, KEY)).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "\t"])
async def test_what_is_no_key_is_refused(key: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.put("sql", SPEC, {headers.IDEMPOTENCY_KEY: key}))
        assert (refused.status, refused.path) == (400, headers.IDEMPOTENCY_KEY)
        twice = [("idempotency-key", "a"), ("idempotency-key", "a")]
        answer = await it.client.put("/adapters/sql", content=json.dumps(SPEC), headers=twice)
        assert problem(answer).path == headers.IDEMPOTENCY_KEY
        assert await it.bucket.list() == ()


async def test_a_body_above_the_bound_is_refused_with_a_key_too() -> None:
    async with admin_api() as it:
        refused = await it.put("sql", b" " * (rest.BODY_BYTES_MAX + 1), KEY)
        assert problem(refused).code == "too-large"
        assert await (await kept(it)).list() == ()


async def test_reads_take_no_notice_of_a_key() -> None:
    async with admin_api() as it:
        for _ in range(2):
            read = await it.client.get("/adapters", headers=KEY)
            assert (read.status_code, replayed(read)) == (200, False)
        explained = await it.client.post("/nope", headers=KEY)
        assert problem(explained).code == "not-found"
        assert await (await kept(it)).list() == ()


async def test_no_secret_is_kept() -> None:
    async with admin_api() as it:
        body = json.dumps({"role": "viewer"})
        made = await it.client.put("/keys/new", content=body, headers=KEY)
        secret = made.json()["secret"]
        again = await it.client.put("/keys/new", content=body, headers=KEY)
        assert (again.status_code, replayed(again)) == (made.status_code, True)
        told = made.json()
        del told["secret"]
        assert again.json() == told
        for bucket in (await kept(it), it.bucket):
            for entry in await bucket.list():
                assert secret.encode() not in (entry.value or b"")
                assert SECRETS[Role.ADMIN].encode() not in (entry.value or b"")


async def test_a_defect_lets_go_of_the_key() -> None:
    class Broken:
        def __init__(self, bucket: FakeBucket) -> None:
            self._bucket = bucket

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("a defect")

    async with admin_api(wrapped=Broken) as it:
        for _ in range(2):
            assert problem(await it.put("sql", SPEC, KEY)).code == "internal"
        assert await (await kept(it)).list() == ()


async def test_a_record_of_a_newer_gateway_is_read_and_a_broken_one_is_told() -> None:
    async with admin_api() as it:
        await it.put("sql", SPEC, KEY)
        bucket = await kept(it)
        (entry,) = await bucket.list()
        newer = json.loads(entry.value or b"") | {"later": 1}
        await bucket.put(entry.key, json.dumps(newer).encode())
        assert replayed(await it.put("sql", SPEC, KEY))
        await bucket.put(entry.key, b"garbage")
        assert problem(await it.put("sql", SPEC, KEY)).code == "invalid-message"


def test_a_lease_is_small() -> None:
    assert len(encode(RequestRecord(asked="0" * 64))) < 256 < BODY_BYTES_MAX
