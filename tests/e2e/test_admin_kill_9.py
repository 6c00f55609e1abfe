"""Declaring through real gateways, one of them killed with -9: what it acknowledged is there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.eventually import eventually
from tests.servers import ChildServer, running
from tests.service_process import service_process

from axiom_common.model.ids import RegionId
from axiom_common.wire import headers

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

WRITES = 100
WRITERS = 10
KILLED_AFTER = 40
"""Acknowledged writes."""
STARTS_WITHIN_S = 30.0


@pytest.fixture
def secret() -> str:
    return secrets.token_urlsafe()


@pytest.fixture
def gateways(
    module_nats: ChildServer, redis_url: str, region: RegionId, tmp_path: Path, secret: str
) -> Iterator[list[ChildServer]]:
    """Two of one region."""
    key_file = tmp_path / "key"
    key_file.write_text(secret)
    key_file.chmod(0o600)
    settings = {
        "region": region,
        "nats_url": module_nats.url,
        "redis_url": redis_url,
        "admin_key_file": str(key_file),
        "start_ms": 200.0,
    }
    one, two = (
        service_process("gateway", tmp_path / name, settings | {"gateway": name})
        for name in ("one", "two")
    )
    with running(one), running(two):
        yield [one, two]


@asynccontextmanager
async def client(secret: str) -> AsyncIterator[aiohttp.ClientSession]:
    given = {headers.AUTHORIZATION: f"Bearer {secret}"}
    async with aiohttp.ClientSession(headers=given) as session:
        yield session


def spec(number: int, rank: int = 8) -> dict[str, Any]:
    return {
        "base_model": "llama",
        "path": f"/adapters/{number}",
        "rank": rank,
        "size_bytes": 1_000 + number,
    }


async def put(
    session: aiohttp.ClientSession, server: ChildServer, name: str, body: Any, **given: str
) -> tuple[int, Any]:
    url = f"{server.url}/admin/v1/adapters/{name}"
    async with session.put(url, json=body, headers=given) as answer:
        return answer.status, await answer.json(content_type=None)


async def put_any(
    session: aiohttp.ClientSession, server: ChildServer, name: str, body: Any
) -> None:
    """Declare an adapter, whatever stands there."""
    status, told = await put(session, server, name, body)
    if status == 428:
        status, told = await put(session, server, name, body, **{headers.IF_MATCH: "*"})
    assert status in (200, 201), told


def is_whole(number: int, found: Any) -> None:
    """It is as it was before the write, or as after it."""
    was_there = number % 2 == 0
    whole = {field: found[field] for field in spec(number)}
    if whole == spec(number, rank=16):
        assert found["revision"] == (2 if was_there else 1)
    else:
        assert was_there
        assert (whole, found["revision"]) == (spec(number), 1)


async def written(session: aiohttp.ClientSession, server: ChildServer) -> dict[str, Any]:
    """What the test below wrote, page by page."""
    found: dict[str, Any] = {}
    params = {"limit": "30", "filter": "path~/adapters/", "sort": "-size_bytes"}
    while True:
        url = f"{server.url}/admin/v1/adapters"
        async with session.get(url, params=params) as answer:
            page = await answer.json()
        found |= {one["name"]: one for one in page["items"] if one["name"].startswith("a")}
        if page["next"] is None:
            return found
        params["cursor"] = page["next"]


async def serves(session: aiohttp.ClientSession, server: ChildServer) -> None:
    """Wait until the gateway knows what is declared."""
    known = False

    async def look() -> None:
        nonlocal known
        while not known:
            try:
                async with session.get(f"{server.url}/admin/v1/adapters") as answer:
                    known = answer.status == 200
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        await eventually(lambda: known, within_s=STARTS_WITHIN_S)


async def test_two_applies_of_different_adapters_at_the_same_moment_both_stay(
    gateways: list[ChildServer], secret: str
) -> None:
    async with client(secret) as session:
        for server in gateways:
            await serves(session, server)
        for number in range(10):
            names = [f"pair-{number}-{side}" for side in "ab"]
            pairs = zip(gateways, names, strict=True)
            calls = [put(session, server, name, spec(number)) for server, name in pairs]
            assert [status for status, _ in await asyncio.gather(*calls)] == [201, 201]
            for server in gateways:
                for name in names:
                    async with session.get(f"{server.url}/admin/v1/adapters/{name}") as answer:
                        assert answer.status == 200


async def test_killed_in_the_middle_of_100_writes_every_acknowledged_one_is_there_and_no_half(
    gateways: list[ChildServer], secret: str
) -> None:
    one, two = gateways
    acknowledged: dict[str, Any] = {}
    unknown: set[str] = set()

    async with client(secret) as session:
        for server in gateways:
            await serves(session, server)
        # Half of the writes change what is there, half create.
        for number in range(0, WRITES, 2):
            status, _ = await put(session, two, f"a{number}", spec(number))
            assert status == 201

        async def write(numbers: range) -> None:
            for number in numbers:
                name = f"a{number}"
                given = {} if number % 2 else {headers.IF_MATCH: "*"}
                given[headers.IDEMPOTENCY_KEY] = f"write-{number}"
                try:
                    status, told = await put(session, one, name, spec(number, rank=16), **given)
                except aiohttp.ClientError:
                    unknown.add(name)
                    continue
                assert status in (200, 201), told
                acknowledged[name] = told
                if len(acknowledged) == KILLED_AFTER:
                    one.kill()

        async with asyncio.TaskGroup() as group:
            for writer in range(WRITERS):
                group.create_task(write(range(writer, WRITES, WRITERS)))
        assert KILLED_AFTER <= len(acknowledged) < WRITES
        assert unknown

        one.start()
        for server in (one, two):
            await serves(session, server)
            there = await written(session, server)
            for name, told in acknowledged.items():
                assert there[name] | {"staleness_ms": 0} == told | {"staleness_ms": 0}
            for name, found in there.items():
                is_whole(int(name.removeprefix("a")), found)
        # What nobody knows the fate of is simply applied again.
        for name in unknown:
            await put_any(session, one, name, spec(int(name.removeprefix("a")), rank=16))
        assert len(await written(session, two)) == WRITES
