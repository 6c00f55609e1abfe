"""Every service, NATS and Valkey killed with -9 under load and started again.

The rest goes on serving, the view is full again within 5 s, nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
import pytest_asyncio

from axiom_cli.admin import Admin, admin_of
from axiom_cli.stack.stack import Stack, running_stack
from axiom_cli.stack.topology import (
    BASE_MODEL,
    GATEWAY,
    NATS_PROCESS,
    SCHEDULER,
    TELEMETRY,
    VALKEY_PROCESS,
    StackOptions,
    agent_name,
)
from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterSpec

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.faults,
    pytest.mark.timeout(180),
]

CLIENTS = 6
ADAPTERS = 24
"""On 16 slots: some request always needs a load."""
OUTAGE_S = 2.5
"""Longer than an agent may be silent before it is suspect."""
LONG_OUTAGE_S = 6.0
"""Longer than an agent may be silent before it is dead."""
RECOVERY_S = 5.0
SLOWEST_S = 8.0
"""An agent is suspect after 2 s of silence, and a lost answer is asked for again after 2.5 s; a
request that waited for all of its `ensure_ms` would take 30 s."""
PAUSE_S = 12.0
VICTIMS = [agent_name("node-1"), TELEMETRY, SCHEDULER, VALKEY_PROCESS, NATS_PROCESS, GATEWAY]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    options = StackOptions(run_dir=tmp_path_factory.mktemp("kill9"), adapters=ADAPTERS)
    async with running_stack(options) as stack:
        yield stack


@dataclass
class Traffic:
    """Clients that each send one short streaming request after another."""

    url: str
    served: int = 0
    slowest_s: float = 0.0
    refused: list[str] = field(default_factory=list)
    unreachable: int = 0
    _stop: bool = False

    async def client(self, number: int) -> None:
        async with aiohttp.ClientSession() as session:
            turn = number
            while not self._stop:
                turn += CLIENTS
                model = BASE_MODEL if turn % 5 == 0 else f"adapter-{1 + turn % ADAPTERS:02d}"
                await self._ask(session, model)

    async def _ask(self, session: aiohttp.ClientSession, model: str) -> None:
        body = {
            "model": model,
            "stream": True,
            "max_tokens": 4,
            "messages": [{"role": "user", "content": f"what is {model}"}],
        }
        began = time.monotonic()
        try:
            async with session.post(f"{self.url}/v1/chat/completions", json=body) as response:
                text = await response.text()
        except aiohttp.ClientError:
            self.unreachable += 1
            await asyncio.sleep(0.05)
            return
        if response.status == 200 and text.rstrip().endswith("[DONE]"):
            self.served += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        else:
            self.refused.append(f"{response.status} {model}: {text[:200]}")

    def stop(self) -> None:
        self._stop = True


@dataclass
class Declarations:
    """An operator who declares one adapter after another, and remembers what was acknowledged."""

    admin: Admin
    acknowledged: list[str] = field(default_factory=list)
    _stop: bool = False

    async def declare(self, victim: str) -> None:
        number = 0
        while not self._stop:
            number += 1
            name = f"declared-while-{victim}-{number}"
            spec = AdapterSpec(
                name=name, base_model=BASE_MODEL, revision=1, path=f"/adapters/{name}", rank=16
            )
            try:
                await self.admin.put_adapter(spec)
            except UnavailableError:
                await asyncio.sleep(0.05)
                continue
            self.acknowledged.append(name)
            await asyncio.sleep(0.2)

    def stop(self) -> None:
        self._stop = True


async def view_lacks(admin: Admin, stack: Stack) -> str:
    """What the gateway's view lacks; empty when it is full and nothing is degraded."""
    try:
        status, nodes, engines = await admin.status(), await admin.nodes(), await admin.engines()
    except UnavailableError as error:
        return str(error)
    (region,) = status.regions.values()
    if region.degraded:
        return f"degraded: {region.degraded}"
    if len(nodes) != stack.options.nodes:
        return f"{len(nodes)} nodes"
    serving = {engine.engine for engine in engines if engine.status == "ready"}
    if missing := set(stack.options.engine_ids) - serving:
        return f"no engine {missing}"
    return ""


async def full_view(admin: Admin, stack: Stack, *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while lack := await view_lacks(admin, stack):
        assert time.monotonic() < deadline, f"not whole within {within_s} s: {lack}"
        await asyncio.sleep(0.05)


async def served_more(traffic: Traffic, count: int, *, within_s: float) -> None:
    goal, deadline = traffic.served + count, time.monotonic() + within_s
    while traffic.served < goal:
        assert time.monotonic() < deadline, (traffic.served, goal, traffic.refused[-3:])
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("victim", "outage_s"),
    [(victim, OUTAGE_S) for victim in VICTIMS]
    + [(NATS_PROCESS, LONG_OUTAGE_S), (agent_name("node-2"), LONG_OUTAGE_S)],
)
async def test_kill_9(stack: Stack, victim: str, outage_s: float) -> None:
    traffic = Traffic(stack.gateway.url)
    async with admin_of(stack.gateway) as admin, asyncio.TaskGroup() as group:
        await full_view(admin, stack, within_s=RECOVERY_S)
        declarations = Declarations(admin)
        for number in range(CLIENTS):
            group.create_task(traffic.client(number))
        group.create_task(declarations.declare(f"{victim}-is-away-{outage_s:.0f}s"))
        await served_more(traffic, 20, within_s=10)

        await stack.processes[victim].kill()
        started = time.monotonic()
        if victim != GATEWAY:
            await served_more(traffic, 40, within_s=15)
        await asyncio.sleep(max(0.0, started + outage_s - time.monotonic()))
        await stack.processes[victim].restart()
        await full_view(admin, stack, within_s=RECOVERY_S)

        await served_more(traffic, 20, within_s=10)
        declarations.stop()
        traffic.stop()
        acknowledged = set(declarations.acknowledged)
        adapters = await all_adapters(stack)
    assert not traffic.refused, traffic.refused[:5]
    if victim != GATEWAY:
        assert traffic.unreachable == 0
        assert traffic.slowest_s < SLOWEST_S
    assert acknowledged
    assert acknowledged <= adapters


async def test_a_paused_agent_keeps_no_request_waiting(stack: Stack) -> None:
    """A host that hangs keeps its connections: only its silence tells."""
    traffic = Traffic(stack.gateway.url)
    async with admin_of(stack.gateway) as admin, asyncio.TaskGroup() as group:
        await full_view(admin, stack, within_s=RECOVERY_S)
        for number in range(CLIENTS):
            group.create_task(traffic.client(number))
        await served_more(traffic, 20, within_s=10)
        pid = stack.processes[agent_name("node-1")].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(PAUSE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        traffic.stop()
    assert not traffic.refused, traffic.refused[:5]
    assert traffic.slowest_s < SLOWEST_S


async def all_adapters(stack: Stack) -> set[str]:
    """Names of all declared adapters, page by page."""
    names: set[str] = set()
    cursor = ""
    async with aiohttp.ClientSession(headers=stack.gateway.headers) as session:
        for _ in range(100):
            url = f"{stack.gateway.url}/admin/v1/adapters"
            params = {"limit": "50"} | ({"cursor": cursor} if cursor else {})
            async with session.get(url, params=params) as response:
                page = await response.json()
            names |= {item["name"] for item in page["items"]}
            cursor = page["next"]
            if cursor is None:
                return names
    raise AssertionError("the list has no end")
