"""An engine drained through the CLI while two gateways serve: nothing new reaches it after the
acknowledgement, what runs there ends by itself, and no request fails."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.servers import ChildServer
from tests.service_process import service_process

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.admin_client import ListAsked
from axiom_cli.stack.stack import Stack, running_stack
from axiom_cli.stack.topology import (
    ADMIN_KEY,
    BASE_MODEL,
    HOST,
    REGION,
    StackOptions,
)
from axiom_common.model.ids import EngineId

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ADAPTERS = 8
"""On 16 slots, and on the 12 that remain."""
CLIENTS = 16
WATCHED_S = 2.0
"""For so long after the acknowledgement nothing may arrive: a gateway that had not heard of the
order would send some dozens of requests."""


@dataclass
class Place:
    """A running stack with a second gateway."""

    stack: Stack
    gateways: tuple[str, str]
    second: ChildServer

    def key_file(self) -> Path:
        return self.stack.options.run_dir / ADMIN_KEY

    async def truth(self, engine: EngineId) -> dict[str, Any]:
        """What the engine itself knows of its requests."""
        url = f"{self.stack.engine_urls[engine]}/sim/stats"
        async with aiohttp.request("GET", url) as answer:
            return dict(await answer.json())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("drain")
    options = StackOptions(run_dir=folder / "stack", adapters=ADAPTERS)
    async with running_stack(options) as stack:
        settings = {
            "region": REGION,
            "gateway": "second",
            "nats_url": stack.nats_url,
            "redis_url": stack.redis_url,
            "host": HOST,
            "admin_key_file": str(folder / "stack" / ADMIN_KEY),
        }
        second = service_process("gateway", folder / "second", settings)
        await asyncio.to_thread(second.start)
        try:
            target = Target(second.url, stack.gateway.secret)
            async with admin_of(target) as admin:
                await _until_sees(admin, len(options.engine_ids))
            yield Place(stack, (stack.gateway.url, second.url), second)
        finally:
            await asyncio.to_thread(second.stop)


async def _until_sees(admin: Admin, engines: int) -> None:
    asked = ListAsked(filters=("status=ready",))
    deadline = time.monotonic() + 20
    while len(await admin.engines(asked)) < engines:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@dataclass
class Load:
    """Clients of both gateways, each with one stream after another: adapters and the base model."""

    gateways: tuple[str, str]
    served: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    _stop: bool = False

    async def client(self, number: int) -> None:
        async with aiohttp.ClientSession(self.gateways[number % 2]) as session:
            turn = number
            while not self._stop:
                turn += 7
                model = BASE_MODEL if turn % 5 == 0 else f"adapter-{1 + turn % ADAPTERS:02d}"
                await self._ask(session, model, tokens=8 if turn % 2 else 160)

    async def _ask(self, session: aiohttp.ClientSession, model: str, tokens: int) -> None:
        body = {
            "model": model,
            "prompt": "say",
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            async with session.post("/v1/completions", json=body) as response:
                text = await response.text()
        except aiohttp.ClientError as error:
            self.failed.append(f"{model}: {error!r}")
            return
        events = text.count("data: ")
        if response.status == 200 and text.rstrip().endswith("[DONE]") and events > tokens:
            self.served[response.headers["x-axiom-engine"]] += 1
        else:
            self.failed.append(f"{response.status} {model} {events}: {text[-200:]}")

    async def served_by(self, engine: str, more: int) -> None:
        goal, deadline = self.served[engine] + more, time.monotonic() + 20
        while self.served[engine] < goal:
            assert time.monotonic() < deadline, (self.served, self.failed[:3])
            await asyncio.sleep(0.02)


@asynccontextmanager
async def under_load(place: Place) -> AsyncIterator[Load]:
    load = Load(place.gateways)
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(load.client(number), name=f"client {number}")
        try:
            yield load
        finally:
            load._stop = True


async def axiom(place: Place, *arguments: str, url: str) -> asyncio.subprocess.Process:
    named = ("--url", url, "--key-file", str(place.key_file()))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "axiom_cli", *arguments, *named),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def acknowledged_s(process: asyncio.subprocess.Process) -> float:
    """When the command told that the drain is acknowledged."""
    assert process.stderr is not None
    told = b""
    while line := await process.stderr.readline():
        told += line
        if b"acknowledged" in line:
            return time.time()
    raise AssertionError(told.decode())


async def test_a_drain_under_load_fails_no_request_and_lets_nothing_new_in(place: Place) -> None:
    engine = place.stack.options.engine_ids[0]
    url = place.gateways[1]
    async with under_load(place) as load:
        for each in place.stack.options.engine_ids:
            await load.served_by(each, 2)
        process = await axiom(place, "engines", "drain", engine, "--json", url=url)
        at_s = await acknowledged_s(process)
        before = await place.truth(engine)
        began = time.monotonic()
        out, _ = await process.communicate()
        told = json.loads(out)["engine"]
        assert (process.returncode, told["order"], told["idle"]) == (0, "drain", True), out
        await asyncio.sleep(max(0.0, WATCHED_S - (time.monotonic() - began)))
        after = await place.truth(engine)
        others = sum(load.served.values()) - load.served[engine]
        assert after["last_arrival_unix_s"] <= at_s
        assert before["in_flight"] > 0
        assert after["in_flight"] == 0
        async with admin_of(place.stack.gateway) as admin:
            plan = await admin.plan(engine.partition(".")[0])
            assert all(not one.homes for one in plan.engines if one.engine == engine)
        released = await axiom(place, "engines", "release", engine, url=url)
        assert (await released.communicate(), released.returncode)[1] == 0
        await load.served_by(engine, 2)
        assert sum(load.served.values()) - load.served[engine] > others
    assert not load.failed, load.failed[:5]


async def test_the_commands_of_engines(place: Place) -> None:
    first, second = place.stack.options.engine_ids[:2]
    url = place.gateways[0]

    async def told(*arguments: str) -> tuple[int, str, str]:
        process = await axiom(place, "engines", *arguments, url=url)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    cordoned, tried, unknown = await asyncio.gather(
        told("cordon", first, "--note", "[b]fan[/b]"),
        told("drain", second, "--dry-run", "--json"),
        told("drain", "node-9.none", "--json"),
    )
    assert cordoned[:2] == (0, f"{first} cordoned: no new request goes there\n"), cordoned
    assert json.loads(tried[1])["engine"]["order"] == "drain"
    assert (unknown[0], json.loads(unknown[1])["error"]["code"]) == (1, "not-found")
    listed, shown, table = await asyncio.gather(
        told("list", "--filter", "order=cordon", "--json"), told("show", first), told("list")
    )
    (only,) = json.loads(listed[1])["engines"]
    assert (only["engine"], only["order"], only["note"]) == (first, "cordon", "[b]fan[/b]")
    assert shown[0] == table[0] == 0
    assert "cordon" in shown[1]
    assert all(engine in table[1] for engine in place.stack.options.engine_ids)
    released = await told("release", first)
    assert released[:2] == (0, f"{first} released\n")
    # Who ends in order is waited for no longer.
    await asyncio.to_thread(place.second.stop)
    again = await told("cordon", first)
    assert again == (0, f"{first} cordoned: no new request goes there\n", "")
