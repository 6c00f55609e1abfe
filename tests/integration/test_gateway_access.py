"""Who gets in at a gateway on a socket: the lines of requests, keys as they change, the first key,
keys on /v1, and what an engine is told of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
import pytest_asyncio
from tests.eventually import eventually
from tests.gateway_region import (
    ADMIN_SECRET,
    BASE_MODEL,
    CHAT,
    COMPLETIONS,
    Answer,
    Gateway,
    Region,
    key_header,
    region_of,
    served,
)
from tests.scripted_engine import ScriptedEngine, Write, announce, whole

from axiom_common.model.access import ApiKey
from axiom_common.ports.registry import Entry
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.logging import Log
from axiom_common.testing.registry import FakeRegistry
from axiom_common.wire import keys, rest
from axiom_gateway import everywhere, first_key
from axiom_gateway.first_key import FIRST_KEY

KEYS = "/admin/v1/keys"
MODELS = "/admin/v1/models"
BEARER = f"authorization: Bearer {ADMIN_SECRET}"
ASKED = {"model": BASE_MODEL, "prompt": "hi", "max_tokens": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region() -> AsyncIterator[Region]:
    async with region_of(engines=1) as region:
        yield region


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(region: Region) -> AsyncIterator[Gateway]:
    """One whose client sends no key by itself."""
    async with served(region) as gateway:
        gateway.client.headers.clear()
        yield gateway


async def raw(gateway: Gateway, line: str, *fields: str, body: bytes = b"") -> Answer:
    """The answer to exactly these lines, from a client that reads once it has sent all."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    length = [f"content-length: {len(body)}"] if body else []
    head = [f"{line} HTTP/1.1", "host: h", "connection: close", *length, *fields, "", ""]
    writer.write("\r\n".join(head).encode("latin-1") + body)
    await writer.drain()
    async with asyncio.timeout(20):
        told = await reader.read(-1)
    writer.close()
    head_of, _, rest_of = told.partition(b"\r\n\r\n")
    lines = head_of.decode("latin-1").split("\r\n")
    named = dict(line.lower().split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split()[1]), named, rest_of)


def problem(answer: Answer) -> rest.Problem:
    assert answer.headers["content-type"] == rest.PROBLEM_MEDIA_TYPE
    return rest.Problem.model_validate_json(answer.body)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "without", "with_key"),
    [
        ("/admin/v1/models", 401, 200),
        ("/admin/v1/%6dodels", 401, 200),
        ("/%61dmin/v1/models", 401, 200),
        ("/admin%2fv1/models", 401, 200),
        ("http://h/admin/v1/models", 401, 200),
        ("/admin/v1", 401, 404),
        ("/admin/v1/", 401, 404),
        ("/admin", 401, 404),
        ("/admin/v1/models/", 401, 400),
        ("/admin/v1//models", 401, 404),
        ("//admin/v1/models", 401, 404),
        ("/Admin/v1/models", 401, 404),
        ("/ADMIN/V1/MODELS", 401, 404),
        ("/admin/v1;x/models", 401, 404),
        ("/admin/v1/models;x", 401, 404),
        ("/admin/v1/../v1/models", 401, 404),
        ("/./admin/v1/models", 401, 404),
        ("/admin%252fv1/models", 401, 404),
        ("/admin/v1/mod%C3%A8ls", 401, 404),
        ("/admin/v1/models%00", 401, 404),
        ("/admin/v1/%ff", 401, 404),
        ("/v1/../admin/v1/models", 404, 404),
        ("/v1/..%2fadmin/v1/models", 404, 404),
        ("/healthz", 404, 404),
        ("/readyz", 404, 404),
        ("/metrics", 404, 404),
        ("/openapi.json", 404, 404),
        ("/docs", 404, 404),
        ("/", 404, 404),
        ("//", 404, 404),
        ("/v1", 404, 404),
        ("/V1/models", 404, 404),
        ("*", 404, 404),
    ],
)
async def test_only_a_key_opens_a_path_however_it_is_written(
    gateway: Gateway, path: str, without: int, with_key: int
) -> None:
    shut, opened = await raw(gateway, f"GET {path}"), await raw(gateway, f"GET {path}", BEARER)
    assert (shut.status, opened.status) == (without, with_key)
    for answer in (shut, opened):
        if answer.status != 200 and not path.startswith("/v1/"):
            assert problem(answer).status == answer.status
    assert ("www-authenticate" in shut.headers) == (without == 401)


@pytest.mark.asyncio(loop_scope="module")
async def test_bytes_that_no_path_has_are_no_request(gateway: Gateway) -> None:
    assert (await raw(gateway, "GET /admin/v1/mod\xe8ls", BEARER)).status == 400


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([f"Authorization: bearer {ADMIN_SECRET}"], 200),
        ([f"AUTHORIZATION: BEARER   {ADMIN_SECRET}  "], 200),
        ([], 401),
        (["authorization:"], 401),
        (["authorization: Bearer"], 401),
        (["authorization: Bearer  "], 401),
        ([f"authorization: {ADMIN_SECRET}"], 401),
        ([f"authorization: Basic {ADMIN_SECRET}"], 401),
        ([f"authorization: Bearer\t{ADMIN_SECRET}"], 401),
        ([f"authorization: Bearer{ADMIN_SECRET}"], 401),
        ([f"authorization: Bearer {ADMIN_SECRET} x"], 401),
        ([f"authorization: Bearer {ADMIN_SECRET}, Bearer {ADMIN_SECRET}"], 401),
        ([f"authorization: Bearer {ADMIN_SECRET[:-1]}"], 401),
        ([f"authorization: Bearer {ADMIN_SECRET.upper()}"], 401),
        ([f"authorization: Bearer {ADMIN_SECRET}\xe4"], 401),
        (["authorization: Bearer \xff\xfe"], 401),
        (["authorization: Bearer " + "x" * 10_000], 401),
        ([BEARER, BEARER], 401),
        ([BEARER, "authorization: Bearer x"], 401),
        (["authorization: Bearer x", BEARER], 401),
        ([f"x-api-key: {ADMIN_SECRET}"], 401),
        ([f"proxy-authorization: Bearer {ADMIN_SECRET}"], 401),
        ([f"cookie: authorization=Bearer {ADMIN_SECRET}"], 401),
    ],
)
async def test_a_key_is_one_header_of_one_form(
    gateway: Gateway, fields: list[str], status: int
) -> None:
    answer = await raw(gateway, f"GET {MODELS}", *fields)
    assert answer.status == status
    assert ADMIN_SECRET.encode() not in answer.body


@pytest.mark.asyncio(loop_scope="module")
async def test_who_sends_a_body_that_nobody_reads_is_answered_all_the_same(
    gateway: Gateway,
) -> None:
    viewer = await made(gateway, "a-viewer", "viewer")
    for field, status in (
        ("x: y", 401),
        (f"authorization: Bearer {viewer}", 403),
        (BEARER, 413),
    ):
        for line in (f"PUT {MODELS}/big", f"PATCH {MODELS}/big"):
            answer = await raw(gateway, line, field, body=b" " * (5 << 20))
            assert answer.status == status, line
    assert (await raw(gateway, "PUT /nowhere", body=b" " * (5 << 20))).status == 404


async def made(gateway: Gateway, name: str, role: str, secret: str = ADMIN_SECRET) -> str:
    """The secret of a new key."""
    url = f"{KEYS}/{name}"
    async with gateway.client.put(url, json={"role": role}, headers=key_header(secret)) as answer:
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["secret"])


async def asked(gateway: Gateway, secret: str, method: str = "GET", path: str = MODELS) -> int:
    """The status that somebody with this secret gets."""
    body = {"json": {}} if method in ("PUT", "PATCH") else {}
    headers = key_header(secret) | ({"if-match": "*"} if body else {})
    async with gateway.client.request(method, path, headers=headers, **body) as response:
        return response.status


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_is_good_at_all_gateways_from_its_answer_on_and_void_from_the_next(
    region: Region, gateway: Gateway
) -> None:
    async with served(region, gateway="peer") as peer:
        peer.client.headers.clear()
        for round_ in range(3):
            secret = await made(gateway, f"k{round_}", "operator")
            assert [await asked(at, secret) for at in (gateway, peer)] == [200, 200]
            body, anyhow = {"role": "client"}, key_header(ADMIN_SECRET) | {"if-match": "*"}
            url = f"{KEYS}/k{round_}"
            async with gateway.client.patch(url, json=body, headers=anyhow) as changed:
                assert changed.status == 200
            assert [await asked(at, secret) for at in (gateway, peer)] == [403, 403]
            assert await asked(peer, ADMIN_SECRET, "DELETE", url) == 204
            assert [await asked(at, secret) for at in (gateway, peer)] == [401, 401]


class Held:
    """A registry whose watches tell no change while `gate` is shut."""

    def __init__(self, registry: FakeRegistry) -> None:
        self._registry = registry
        self.gate = asyncio.Event()

    async def bucket(self, name: str, **given: Any) -> Any:
        held, bucket = self, await self._registry.bucket(name, **given)

        class HeldBucket:
            def __getattr__(self, method: str) -> Any:
                return getattr(bucket, method)

            async def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
                present = True
                async for entry in bucket.watch(key=key):
                    if not present:
                        await held.gate.wait()
                    present = present and entry is not None
                    yield entry

        return HeldBucket()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_change_that_a_peer_does_not_go_by_yet_is_not_acknowledged(
    region: Region, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everywhere, "EVERYWHERE_MS", 300.0)
    secret = await made(gateway, "lagging", "viewer")
    registry = region.registry
    held = Held(registry)
    region.registry = held  # type: ignore[assignment]
    try:
        async with served(region, gateway="peer-2") as peer:
            peer.client.headers.clear()
            assert await asked(peer, secret) == 200
            url, admin = f"{KEYS}/lagging", key_header(ADMIN_SECRET)
            async with gateway.client.delete(url, headers=admin) as refused:
                told = await refused.json()
            assert (refused.status, told["code"]) == (503, "not-everywhere")
            assert "peer-2" in told["detail"]
            assert [await asked(at, secret) for at in (gateway, peer)] == [401, 200]
            # A secret is told all the same: nobody could ask for it again.
            async with gateway.client.put(url, json={"role": "viewer"}, headers=admin) as answer:
                told = await answer.json()
            assert (answer.status, told["without"]) == (201, ["peer-2"])
            assert told["secret"]
            held.gate.set()
            assert await asked(gateway, ADMIN_SECRET, "DELETE", url) == 204
            assert await asked(peer, secret) == 401
    finally:
        region.registry = registry


async def test_no_word_of_a_clients_about_itself_reaches_an_engine() -> None:
    async def script(_: bytes, write: Write) -> None:
        await write(whole(200, b'{"model":"base","choices":[]}'))

    secrets = [
        f"authorization: Bearer {ADMIN_SECRET}",
        f"proxy-authorization: Bearer {ADMIN_SECRET}",
        f"x-api-key: {ADMIN_SECRET}",
        f"cookie: key={ADMIN_SECRET}",
    ]
    async with (
        region_of(engines=0, agent=False) as lonely,
        served(lonely) as alone,
        ScriptedEngine().serving(script) as engine,
    ):
        await alone.sees(*await announce(lonely, engine))
        body = json.dumps(ASKED).encode()
        answer = await raw(alone, f"POST {COMPLETIONS}", *secrets, body=body)
        assert answer.status == 200
        # aiohttp's own form of it, and the openai client's.
        assert (await alone.ask(BASE_MODEL)).status == 200
        async with openai.AsyncOpenAI(base_url=f"{alone.url}/v1", api_key=ADMIN_SECRET) as own:
            await own.completions.create(model=BASE_MODEL, prompt="hi")
        assert len(engine.requests) == 3
        for request in engine.requests:
            assert ADMIN_SECRET.encode() not in request
            for word in (b"authorization", b"cookie", b"x-api-key"):
                assert word not in request.lower()


@asynccontextmanager
async def locked(region: Region) -> AsyncIterator[Gateway]:
    """A gateway of the region that takes requests with a key only."""
    async with served(region, gateway="locked", require_key=True) as gateway:
        gateway.client.headers.clear()
        yield gateway


@pytest.mark.asyncio(loop_scope="module")
async def test_where_v1_takes_keys_only_any_role_will_do(region: Region) -> None:
    async with locked(region) as gateway:
        wrong: list[dict[str, str]] = [{}, key_header("axk-wrong"), {"authorization": "Basic x"}]
        for headers in wrong:
            for answer in (
                await gateway.post(COMPLETIONS, ASKED, **headers),
                await gateway.post(CHAT, b"{", **headers),
                await gateway.get("/v1/models", **headers),
                await gateway.get(f"/v1/models/{BASE_MODEL}", **headers),
                await gateway.get("/v1/nothing", **headers),
            ):
                assert answer.status == 401
                assert (answer.error["code"], answer.error["param"]) == ("invalid_api_key", None)
                assert answer.error["type"] == "invalid_request_error"
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for role in ("client", "viewer", "operator", "admin"):
            headers = key_header(await made(gateway, f"{role}-of-v1", role))
            assert (await gateway.post(COMPLETIONS, ASKED, **headers)).status == 200
            assert (await gateway.get("/v1/models", **headers)).status == 200
            assert (await gateway.get("/v1/nothing", **headers)).status == 404
        big = await raw(gateway, f"POST {COMPLETIONS}", body=b" " * (5 << 20))
        assert (big.status, big.error["code"]) == (401, "invalid_api_key")
        twice = await raw(gateway, "GET /v1/models", BEARER, BEARER)
        assert twice.status == 401
        url = f"{gateway.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-x", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
                await client.completions.create(model=BASE_MODEL, prompt="hi")
        async with openai.AsyncOpenAI(base_url=url, api_key=ADMIN_SECRET) as client:
            assert (await client.completions.create(model=BASE_MODEL, prompt="hi")).choices


@pytest.mark.asyncio(loop_scope="module")
async def test_where_v1_takes_none_what_clients_send_in_its_place_is_not_looked_at(
    gateway: Gateway,
) -> None:
    given: list[dict[str, str]] = [{}, key_header("sk-none"), {"authorization": "\xff"}]
    for headers in given:
        assert (await gateway.post(COMPLETIONS, ASKED, **headers)).status == 200


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("require_key", [False, True])
async def test_a_key_sees_the_adapters_of_its_tenant_only(
    region: Region, require_key: bool
) -> None:
    name, admin = f"tenants-{require_key}".lower(), key_header(ADMIN_SECRET)
    async with served(region, gateway=name, require_key=require_key) as gateway:
        own = {tenant: f"{tenant}-of-{name}" for tenant in ("default", "acme", "other")}
        secrets = {}
        for tenant, adapter in own.items():
            body = {"base_model": BASE_MODEL, "path": "/a", "rank": 8, "tenant": tenant}
            url = f"/admin/v1/adapters/{adapter}"
            async with gateway.client.put(url, json=body, headers=admin) as declared:
                assert declared.status == 201
            body = {"role": "client", "tenant": tenant}
            async with gateway.client.put(f"{KEYS}/{adapter}", json=body, headers=admin) as made:
                secrets[tenant] = (await made.json())["secret"]
        await gateway.knows(*own.values())
        gateway.client.headers.clear()
        asking = [(key_header(secrets[tenant]), tenant) for tenant in own]
        asking.append((admin, "default"))
        if not require_key:
            asking += [({}, "default"), (key_header("sk-none"), "default")]
        for headers, tenant in asking:
            listed = (await gateway.get("/v1/models", **headers)).json["data"]
            shown = {model["id"] for model in listed}
            assert shown & set(own.values()) == {own[tenant]}
            for other, adapter in own.items():
                status = 200 if other == tenant else 404
                one = await gateway.get(f"/v1/models/{adapter}", **headers)
                sent = await gateway.post(COMPLETIONS, ASKED | {"model": adapter}, **headers)
                assert (one.status, sent.status) == (status, status)
        explained = await gateway.post("/admin/v1/explain", {"model": own["acme"]}, **admin)
        assert explained.status == 200
        async with gateway.client.delete(f"{KEYS}/{own['acme']}", headers=admin) as gone:
            assert gone.status == 204
        void = await gateway.get(f"/v1/models/{own['acme']}", **key_header(secrets["acme"]))
        assert void.status == (401 if require_key else 404)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key is made soon, and a gateway soon sure that it has no peers."""
    monkeypatch.setattr(everywhere, "LISTENED_MS", 100.0)
    monkeypatch.setattr(first_key, "RESTORE_MS", 100.0)
    monkeypatch.setattr(first_key, "POLL_MS", 20.0)


def secrets_in(shown: list[str]) -> list[str]:
    return [text.rpartition(" ")[2] for text in shown if "axk-" in text]


@pytest.mark.usefixtures("_soon")
async def test_the_first_admins_key_is_made_once_and_shown_once() -> None:
    async with region_of(0, agent=False) as region:
        async with served(region, admin_secret=None) as gateway:
            await eventually(lambda: len(gateway.shown) == 2)
            (secret,) = secrets_in(gateway.shown)
            assert "in force" in gateway.shown[1]
            assert await asked(gateway, secret) == 200
            for _, found in await records(region):
                assert secret.encode() not in found
            # It lasts, and a second one is not made.
            await made(gateway, "another", "admin", secret)
            assert await asked(gateway, secret, "DELETE", f"{KEYS}/{FIRST_KEY}") == 204
        async with served(region, admin_secret=None) as again:
            await asyncio.wait_for(first_key_task(again), 5)
            assert again.shown == []


async def records(region: Region) -> list[tuple[str, bytes]]:
    bucket = await region.registry.bucket(keys.DESIRED_BUCKET)
    return [(entry.key, entry.value or b"") for entry in await bucket.list()]


async def first_key_task(gateway: Gateway) -> None:
    """Until it has looked whether there is a key."""
    (task,) = (task for task in gateway.app._tasks if task.get_name() == "first key")
    await task


@pytest.mark.usefixtures("_soon")
async def test_of_gateways_that_start_together_one_makes_the_key_and_the_others_say_so() -> None:
    async with region_of(0, agent=False) as region:
        names = ("a", "b", "c")
        gateways = [await region.start_gateway(gateway=n, admin_secret=None) for n in names]
        await asyncio.wait_for(asyncio.gather(*(first_key_task(g) for g in gateways)), 10)
        (stood,) = [key for key, _ in await records(region) if key.startswith("api-key.")]
        assert stood == f"api-key.{FIRST_KEY}"
        shown = [secret for g in gateways for secret in secrets_in(g.shown)]
        good = [secret for secret in shown if await asked(gateways[0], secret) == 200]
        assert len(good) == 1
        for gateway in gateways:
            secrets = secrets_in(gateway.shown)
            said = [text for text in gateway.shown if text.endswith("void, another was first")]
            assert len(said) == len([secret for secret in secrets if secret not in good])
        for gateway in gateways:
            await gateway.stop()


@pytest.mark.usefixtures("_soon")
async def test_with_the_registry_away_nothing_is_known_of_keys_but_a_gateways_own() -> None:
    async with region_of(0, agent=False) as region:
        region.registry.disconnect()
        keyless = await region.start_gateway(admin_secret=None, require_key=True, start_ms=1)
        own = await region.start_gateway(gateway="own", require_key=True, start_ms=1)
        refused = await keyless.get(MODELS, **key_header("axk-somebody"))
        assert (refused.status, refused.json["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"]
        refused = await keyless.get("/v1/models", **key_header("axk-somebody"))
        assert (refused.status, refused.error["code"]) == (503, "keys-unknown")
        assert refused.headers["retry-after"]
        # Who sends none needs none looked up.
        assert (await keyless.get(MODELS)).status == 401
        assert await asked(own, ADMIN_SECRET, path="/admin/v1/status") == 200
        assert await asked(own, ADMIN_SECRET, path="/v1/models") == 200
        assert keyless.shown == []
        region.registry.reconnect()
        await eventually(lambda: any("in force" in text for text in keyless.shown))
        (secret,) = secrets_in(keyless.shown)
        assert await asked(keyless, secret) == 200
        await keyless.stop()
        await own.stop()


@pytest.mark.usefixtures("_soon")
async def test_a_lost_store_brings_no_first_key_and_no_withdrawn_one_back() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        gateway.client.headers.clear()
        kept = await made(gateway, "kept", "admin")
        gone = await made(gateway, "gone", "admin")
        assert await asked(gateway, ADMIN_SECRET, "DELETE", f"{KEYS}/gone") == 204
        bucket = await region.registry.bucket(keys.DESIRED_BUCKET)
        scheduler = DesiredWatch(bucket, Log("test", region.clock), lambda: None)
        region.owner.create_task(scheduler.run(), name="scheduler's watch")
        await eventually(lambda: "kept" in scheduler.api_keys)
        region.registry.wipe()
        await eventually(lambda: scheduler.lost)
        # What was lost stays in force where it is known.
        assert await asked(gateway, kept) == 200
        await DesiredStore(bucket).restore(scheduler.lost, revision_floor=0)
        async with served(region, gateway="new", admin_secret=None) as new:
            await asyncio.wait_for(first_key_task(new), 5)
            assert new.shown == []
            for at in (gateway, new):
                assert await asked(at, kept) == 200
                assert await asked(at, gone) == 401
        stored = await DesiredStore(bucket).all(ApiKey)
        assert [one.value.name for one in stored] == ["kept"]


@pytest.mark.usefixtures("_soon")
async def test_a_gateways_own_key_takes_the_last_admins_away_and_is_in_no_list() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        await made(gateway, "only", "admin")
        assert await asked(gateway, ADMIN_SECRET, "DELETE", f"{KEYS}/only") == 204
        listed: Any = (await gateway.get(KEYS)).json
        assert listed["items"] == []
        assert await records(region) == []
