"""API keys over REST, in process: made, changed, told once, and the last admin's that stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from tests.admin_parts import Api, admin_api, problem

from axiom_common.model.access import ApiKey, Role
from axiom_common.model.ids import GatewayId
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.testing.registry import FakeBucket
from axiom_common.wire import headers
from axiom_gateway import admin_keys
from axiom_gateway.admin import AdminParts
from axiom_gateway.admin_access import OWN_KEY, digest_of
from axiom_gateway.everywhere import Unconfirmed

ANYHOW = {headers.IF_MATCH: "*"}


async def put(
    it: Api, name: str, role: str, query: str = "", **request_headers: str
) -> httpx2.Response:
    url, body = f"/keys/{name}{query}", {"role": role}
    return await it.client.put(url, json=body, headers=request_headers)


async def stored(it: Api, name: str) -> ApiKey | None:
    found = await DesiredStore(it.bucket).get(ApiKey, name)
    return found.value if found is not None else None


@pytest.mark.parametrize("role", Role)
async def test_a_key_is_made_and_its_secret_told_once(role: Role) -> None:
    async with admin_api() as it:
        made = await put(it, "team/ci:x", role)
        assert made.status_code == 201
        secret = made.json()["secret"]
        assert secret.startswith("axk-")
        assert len(secret) == len("axk-") + 43
        assert made.headers["cache-control"] == "no-store"
        key = await stored(it, "team/ci:x")
        assert key is not None
        assert (key.role, key.digest) == (role, digest_of(secret))
        assert key.created_ms == made.json()["created_ms"] > 1.6e12
        told = [
            await it.client.get("/keys/team/ci:x"),
            await it.client.get("/keys"),
            await put(it, "team/ci:x", role),
            await it.client.patch("/keys/team/ci:x", json={"role": role}, headers=ANYHOW),
        ]
        for answer in told:
            assert answer.status_code == 200
            assert secret not in answer.text
            assert key.digest not in answer.text
        assert told[2].headers[headers.OUTCOME] == "unchanged"
        assert secret.encode() not in b"".join(e.value or b"" for e in await it.bucket.list())


async def test_a_role_is_changed_at_the_version_that_was_seen_and_the_secret_stays() -> None:
    async with admin_api() as it:
        first = await put(it, "k", "viewer")
        before = await stored(it, "k")
        assert problem(await put(it, "k", "operator")).code == "precondition-required"
        second = await put(it, "k", "operator", **{headers.IF_MATCH: first.headers["etag"]})
        assert (second.status_code, second.json()["role"]) == (200, "operator")
        assert second.json()["secret"] is None
        stale = await put(it, "k", "client", **{headers.IF_MATCH: first.headers["etag"]})
        assert problem(stale).status == 412
        patched = await it.client.patch("/keys/k", json={"role": "client"}, headers=ANYHOW)
        assert patched.json()["role"] == "client"
        after = await stored(it, "k")
        assert before is not None
        assert after is not None
        assert (after.digest, after.created_ms) == (before.digest, before.created_ms)


async def test_a_keys_tenant_stays_until_another_one_is_named() -> None:
    async with admin_api() as it:
        body = {"role": "client", "tenant": "acme"}
        made = await it.client.put("/keys/k", json=body)
        assert (made.status_code, made.json()["tenant"]) == (201, "acme")
        patched = await it.client.patch("/keys/k", json={"role": "viewer"}, headers=ANYHOW)
        rotated = await it.client.post("/keys/k:rotate", headers=ANYHOW)
        assert (patched.json()["tenant"], rotated.json()["tenant"]) == ("acme", "acme")
        listed = await it.client.get("/keys?filter=tenant=acme")
        assert [key["name"] for key in listed.json()["items"]] == ["k"]
        moved = await it.client.patch("/keys/k", json={"tenant": "other"}, headers=ANYHOW)
        assert moved.json()["tenant"] == "other"
        key = await stored(it, "k")
        assert key is not None
        assert (key.role, key.tenant) == (Role.VIEWER, "other")
        wrong = await it.client.patch("/keys/k", json={"tenant": "a b"}, headers=ANYHOW)
        assert (problem(wrong).status, problem(wrong).path) == (400, "tenant")
        whole = await put(it, "k", "viewer", **ANYHOW)
        assert whole.json()["tenant"] == "default"


async def test_a_rotated_key_has_another_secret_and_the_same_role() -> None:
    async with admin_api() as it:
        old = (await put(it, "k", "operator")).json()["secret"]
        rotated = await it.client.post("/keys/k:rotate", headers=ANYHOW)
        assert rotated.status_code == 200
        assert rotated.headers["cache-control"] == "no-store"
        new = rotated.json()["secret"]
        assert new != old
        key = await stored(it, "k")
        assert key is not None
        assert (key.role, key.digest) == (Role.OPERATOR, digest_of(new))
        stale = await it.client.post("/keys/k:rotate", headers={headers.IF_MATCH: '"1"'})
        assert problem(stale).status == 412
        assert problem(await it.client.post("/keys/nobody:rotate")).status == 404
        assert await stored(it, "k") == key


@pytest.mark.parametrize(
    ("content", "given", "status", "path"),
    [
        (b"", {}, 428, "if-match"),
        (b'{"zz": 1}', ANYHOW, 400, "zz"),
        (b"not json", ANYHOW, 400, "body"),
        (b"0" * (5 << 20), ANYHOW, 413, "body"),
    ],
)
async def test_a_rotation_that_says_too_little_or_too_much_changes_nothing(
    content: bytes, given: dict[str, str], status: int, path: str
) -> None:
    async with admin_api() as it:
        await put(it, "k", "operator")
        key = await stored(it, "k")
        refused = problem(await it.client.post("/keys/k:rotate", content=content, headers=given))
        assert (refused.status, refused.path) == (status, path)
        assert await stored(it, "k") == key


async def test_a_dry_run_makes_nothing_and_tells_no_secret() -> None:
    async with admin_api() as it:
        tried = await put(it, "k", "admin", "?dryRun=true")
        assert (tried.status_code, tried.json()["secret"]) == (201, None)
        assert await stored(it, "k") is None
        secret = (await put(it, "k", "viewer")).json()["secret"]
        assert (await it.client.post("/keys/k:rotate?dryRun=true", headers=ANYHOW)).json()[
            "secret"
        ] is None
        assert (await it.client.delete("/keys/k?dryRun=true")).status_code == 204
        key = await stored(it, "k")
        assert key is not None
        assert key.digest == digest_of(secret)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"role": "root"}, "role"),
        ({"role": "Admin"}, "role"),
        ({"role": None}, "role"),
        ({}, "role"),
        ({"role": "viewer", "digest": "0" * 64}, "digest"),
        ({"role": "viewer", "name": "other"}, "name"),
        ({"role": "viewer", "secret": "axk-mine"}, "secret"),
        ({"role": "viewer", "secret": ""}, "secret"),
    ],
)
async def test_a_wrong_body_is_refused(body: dict[str, Any], path: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.client.put("/keys/k", content=json.dumps(body)))
        assert (refused.status, refused.path) == (400, path)
        assert await stored(it, "k") is None


async def test_no_patch_and_no_other_object_takes_a_secret() -> None:
    async with admin_api() as it:
        await put(it, "k", "viewer")
        key = await stored(it, "k")
        for url in ("/keys/k", "/models/m", "/profiles/p"):
            await it.client.put(url, json={})
            sent = {"secret": "axk-mine"}
            refused = problem(await it.client.patch(url, json=sent, headers=ANYHOW))
            assert (refused.status, refused.path) == (400, "secret")
        assert await stored(it, "k") == key


async def test_what_a_get_answers_can_be_put_and_changes_nothing() -> None:
    async with admin_api() as it:
        await put(it, "k", "operator")
        seen = (await it.client.get("/keys/k")).json()
        assert seen["secret"] is None
        again = await it.client.put("/keys/k", json=seen)
        assert (again.status_code, again.headers[headers.OUTCOME]) == (200, "unchanged")


async def test_a_gateways_own_key_has_its_name_alone() -> None:
    async with admin_api() as it:
        assert problem(await put(it, OWN_KEY, "viewer")).code == "name-taken"


async def test_the_secret_of_nobody_can_be_asked_for() -> None:
    """No filter and no order by what is not shown."""
    async with admin_api() as it:
        await put(it, "k", "viewer")
        for query in ("filter=digest~0", "filter=digest<f", "sort=digest"):
            refused = problem(await it.client.get(f"/keys?{query}"))
            assert refused.status == 400, query


async def test_the_last_admins_key_stays() -> None:
    async with admin_api() as it:
        await put(it, "one", "admin")
        await put(it, "viewer", "viewer")
        refused = [
            await it.client.delete("/keys/one"),
            await it.client.delete("/keys/one?dryRun=true"),
            await put(it, "one", "operator", **ANYHOW),
            await it.client.patch("/keys/one", json={"role": "viewer"}, headers=ANYHOW),
        ]
        for answer in refused:
            assert (answer.status_code, problem(answer).code) == (409, "last-admin-key")
        key = await stored(it, "one")
        assert key is not None
        assert key.role is Role.ADMIN
        assert (await it.client.post("/keys/one:rotate", headers=ANYHOW)).status_code == 200
        await put(it, "two", "admin")
        assert (await it.client.delete("/keys/one")).status_code == 204
        assert problem(await it.client.delete("/keys/two")).code == "last-admin-key"


@pytest.mark.parametrize("how", ["delete", "demote"])
async def test_of_the_last_two_that_are_taken_away_at_once_one_goes(how: str) -> None:
    async def take_away(name: str) -> httpx2.Response:
        if how == "delete":
            return await it.client.delete(f"/keys/{name}")
        return await put(it, name, "viewer", **ANYHOW)

    async with admin_api() as it:
        names = ("one", "two", "three")
        before = {name: (await put(it, name, "admin")).json()["version"] for name in names}
        answers = await asyncio.gather(*(take_away(name) for name in names))
        refused = [answer for answer in answers if answer.status_code // 100 != 2]
        assert [problem(answer).code for answer in refused] == ["last-admin-key"]
        stays = names[answers.index(refused[0])]
        seen = (await it.client.get(f"/keys/{stays}")).json()
        # Not even put back: it was in force all the time.
        assert (seen["role"], seen["version"]) == ("admin", before[stays])


@pytest.mark.parametrize("how", ["delete", "demote"])
async def test_of_two_gateways_that_take_away_the_last_two_one_is_put_back(how: str) -> None:
    """The other gateway's write lands between this one's look and its own."""

    class Racing:
        """Withdraws `two` right before `one` goes."""

        def __init__(self, bucket: FakeBucket) -> None:
            self._bucket = bucket
            self.armed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._bucket, name)

        async def _other(self) -> None:
            if self.armed:
                self.armed = False
                await DesiredStore(self._bucket).delete(ApiKey, "two")

        async def delete(self, key: str, *, revision: int | None = None) -> int:
            await self._other()
            return await self._bucket.delete(key, revision=revision)

        async def update(
            self, key: str, value: bytes, *, revision: int, ttl_ms: float | None = None
        ) -> int:
            await self._other()
            return await self._bucket.update(key, value, revision=revision, ttl_ms=ttl_ms)

    racing: list[Racing] = []

    def wrapped(bucket: FakeBucket) -> Racing:
        racing.append(Racing(bucket))
        return racing[0]

    async with admin_api(wrapped=wrapped) as it:
        await put(it, "one", "admin")
        await put(it, "two", "admin")
        before = await stored(it, "one")
        racing[0].armed = True
        if how == "delete":
            answer = await it.client.delete("/keys/one")
        else:
            answer = await put(it, "one", "viewer", **ANYHOW)
        assert problem(answer).code == "last-admin-key"
        assert await stored(it, "one") == before
        assert await stored(it, "two") is None


async def test_there_are_as_many_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_keys, "KEYS_MAX", 2)
    async with admin_api() as it:
        for name in ("a", "b"):
            assert (await put(it, name, "viewer")).status_code == 201
        assert problem(await put(it, "c", "viewer")).code == "too-many"
        await it.client.delete("/keys/a")
        assert (await put(it, "c", "viewer")).status_code == 201


def confirming(told: Unconfirmed) -> Callable[[AdminParts], AdminParts]:
    """Parts whose other gateways confirm so much of each change."""

    async def confirm(_: int) -> Unconfirmed:
        return told

    return lambda parts: parts.__class__(**{**fields_of(parts), "confirm": confirm})


async def test_a_change_that_holds_but_for_who_is_not_waited_for_says_so() -> None:
    missing = confirming(Unconfirmed(missing=(GatewayId("gw-2"), GatewayId("gw-3"))))
    async with admin_api(more=missing) as it:
        tried = {headers.IDEMPOTENCY_KEY: "once"}
        answers = [
            await put(it, "k", "viewer"),
            await it.client.post("/keys/k:rotate", headers=ANYHOW),
            await put(it, "k", "client", **ANYHOW),
            await it.client.patch("/keys/k", json={"role": "viewer"}, headers=ANYHOW),
        ]
        assert [a.json()["without"] for a in answers] == 4 * [["gw-2", "gw-3"]]
        dry = await it.client.delete("/keys/k?dryRun=true")
        assert headers.WITHOUT not in dry.headers
        for _ in range(2):
            gone = await it.client.delete("/keys/k", headers=tried)
            assert (gone.status_code, gone.headers[headers.WITHOUT]) == (204, "gw-2, gw-3")
        assert (await it.client.get("/keys/k")).status_code == 404


async def test_what_others_did_not_confirm_is_said_unless_a_secret_would_be_lost() -> None:
    unconfirmed = confirming(Unconfirmed((GatewayId("gw-2"),), (GatewayId("gw-1"),)))
    async with admin_api(more=unconfirmed) as it:
        for telling in (
            await put(it, "k", "viewer"),
            await it.client.post("/keys/k:rotate", headers=ANYHOW),
        ):
            assert telling.json()["secret"]
            assert telling.json()["without"] == ["gw-1", "gw-2"]
        for refused in (
            await put(it, "k", "client", **ANYHOW),
            await it.client.patch("/keys/k", json={"role": "viewer"}, headers=ANYHOW),
            await it.client.delete("/keys/k"),
        ):
            told = problem(refused)
            assert (told.status, told.code) == (503, "not-everywhere")
            assert "gw-2" in told.detail
            assert refused.headers[headers.RETRY_AFTER]
        assert await stored(it, "k") is None


def fields_of(parts: AdminParts) -> dict[str, Any]:
    return {name: getattr(parts, name) for name in parts.__dataclass_fields__}


async def test_with_the_registry_away_nothing_is_told_to_be_made() -> None:
    async with admin_api() as it:
        await put(it, "k", "viewer")
        it.away()
        for answer in (
            await put(it, "new", "viewer"),
            await it.client.delete("/keys/k"),
            await it.client.post("/keys/k:rotate", headers=ANYHOW),
        ):
            assert problem(answer).code == "unavailable"
            assert "axk-" not in answer.text
        listed = (await it.client.get("/keys")).json()
        assert [item["name"] for item in listed["items"]] == ["k"]
        await it.back()
        assert await stored(it, "new") is None
