"""Schedulers as processes on a real NATS: one writes; killed or paused, another takes over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.eventually import eventually, succeeds
from tests.owner import TestOwner, task_owner
from tests.scheduler_region import Reporter, adapter, node_state, plans_in
from tests.servers import ChildServer

from axiom_cli.stack.servers import ServerKind
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsBucket, NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.model.reason import Reason
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.wire import keys
from axiom_common.wire.schemas import PlanRecord, encode
from axiom_node_agent.reconciler import PlanBook, judged

TTL_MS, RETRY_MS = 2_000, 100
TAKEN_OVER_S = TTL_MS / 1e3 + 1.5
"""The server keeps times to live in whole seconds and looks once a second."""
NODES = ("n1", "n2")
SIX = [f"a{number}" for number in range(6)]


def _scheduler(folder: Path) -> ChildServer:
    def command(data_dir: Path, port: int) -> list[str]:
        config = str(data_dir / "scheduler.yaml")
        return [sys.executable, "-m", "axiom_scheduler", "--config", config, "--port", str(port)]

    def serves(connection: socket.socket) -> bool:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200")

    kind = ServerKind(name="scheduler", scheme="http", command=command, serving=serves)
    return ChildServer(kind, folder)


@dataclass
class Region:
    """A region with nodes that report, and schedulers as processes."""

    region: RegionId
    folder: Path
    nats_url: str
    redis_url: str
    plan_bucket: NatsBucket
    desired: DesiredStore
    schedulers: dict[str, ChildServer] = field(default_factory=dict)
    books: dict[str, PlanBook] = field(default_factory=dict)
    """What agents make of the plans they see."""

    def start(self, name: str) -> ChildServer:
        folder = self.folder / name
        folder.mkdir()
        settings = {
            "region": self.region,
            "nats_url": self.nats_url,
            "redis_url": self.redis_url,
            "scheduler": name,
            "lease_ttl_ms": TTL_MS,
            "lease_margin_ms": 400,
            "lease_renew_ms": 500,
            "lease_retry_ms": RETRY_MS,
            "settle_ms": 300,
        }
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(settings))
        self.schedulers[name] = server = _scheduler(folder)
        server.start()
        return server

    def ready(self, name: str) -> dict[str, Any]:
        """What a scheduler says of itself, whether it is ready or not."""
        url = f"{self.schedulers[name].url}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as not_ready:
            with not_ready:
                answer = json.load(not_ready)
        return answer

    def leads(self, name: str) -> bool:
        return bool(self.ready(name)["leads"])

    def roles(self) -> tuple[str, str]:
        """The one that leads, and the other."""
        (leader,) = [name for name in self.schedulers if self.leads(name)]
        (follower,) = self.schedulers.keys() - {leader}
        return leader, follower

    async def plans(self) -> dict[str, Plan]:
        entries = await self.plan_bucket.list()
        return plans_in({e.key: e.value for e in entries if e.value is not None})

    async def planned(self, names: list[str]) -> dict[str, Plan]:
        """The plans, once they give each of the names one home."""
        async with asyncio.timeout(10):
            while True:
                plans = await self.plans()
                homes = [a.name for p in plans.values() for e in p.engines for a in e.load]
                if sorted(homes) == names and len(plans) == len(NODES):
                    return plans
                await asyncio.sleep(0.02)


@asynccontextmanager
async def region_on(
    nats: ChildServer, redis_url: str, region: RegionId, folder: Path
) -> AsyncIterator[Region]:
    async with task_owner() as owner:
        connection = NatsConnection(nats.url, name="test", clock=SystemClock())
        assert await connection.start(owner)
        bus, registry = NatsBus(connection), NatsRegistry(connection)
        it = Region(
            region=region,
            folder=folder,
            nats_url=nats.url,
            redis_url=redis_url,
            plan_bucket=await registry.bucket(keys.PLAN_BUCKET),
            desired=DesiredStore(await registry.bucket(keys.DESIRED_BUCKET)),
        )
        _agents(owner, it, bus)
        try:
            yield it
        finally:
            for server in it.schedulers.values():
                if server.pid is not None:
                    os.kill(server.pid, signal.SIGCONT)
                server.stop()
            await bus.close()
            await connection.close()


def _agents(owner: TestOwner, it: Region, bus: NatsBus) -> None:
    """Nodes that beat, see their plans, and judge them as agents do."""
    reporters = {n: Reporter(bus, node_state(n, engines=2, region=it.region)) for n in NODES}
    it.books = {n: PlanBook() for n in NODES}

    async def beat() -> None:
        while True:
            for reporter in reporters.values():
                with contextlib.suppress(UnavailableError):
                    await reporter.beat()
            await asyncio.sleep(0.1)

    async def watch() -> None:
        async for entry in it.plan_bucket.watch():
            if entry is None or entry.value is None:
                continue
            for node, plan in plans_in({entry.key: entry.value}).items():
                if node in reporters:
                    it.books[node] = judged(it.books[node], plan)

    owner.create_task(beat(), name="beat")
    owner.create_task(watch(), name="watch")


Pair = Callable[[], AbstractAsyncContextManager[Region]]


@pytest.fixture
def pair(own_nats: ChildServer, redis_url: str, region: RegionId, tmp_path: Path) -> Pair:
    """Two schedulers, one leading, with `SIX` placed."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Region]:
        async with region_on(own_nats, redis_url, region, tmp_path) as it:
            for name in SIX:
                await it.desired.put(adapter(name))
            await asyncio.gather(*(asyncio.to_thread(it.start, name) for name in ("s1", "s2")))
            await it.planned(SIX)
            await eventually(lambda: all(it.ready(s)["nodes"] == len(NODES) for s in it.schedulers))
            yield it

    return opened


@pytest.mark.faults
async def test_killed_the_leader_is_followed_and_what_it_had_on_its_way_is_refused(
    pair: Pair,
) -> None:
    async with pair() as two:
        before = await two.plans()
        leader, follower = two.roles()
        killed_at = time.monotonic()
        two.schedulers[leader].kill()
        await eventually(lambda: two.leads(follower), within_s=TAKEN_OVER_S)
        assert time.monotonic() - killed_at <= TAKEN_OVER_S
        fence = two.ready(follower)["fence"]
        await eventually(lambda: all(b.fence_max == fence for b in two.books.values()))
        after = await two.plans()
        assert {n: p.engines for n, p in after.items()} == {n: p.engines for n, p in before.items()}
        assert all(fence > plan.fence for plan in before.values())
        for node, plan in before.items():
            late = encode(PlanRecord(plan=plan))
            await two.plan_bucket.put(keys.plan_key(two.region, NodeId(node)), late)
        await eventually(
            lambda: all(
                book.status is not None and book.status.reason is Reason.LOWER_FENCE
                for book in two.books.values()
            )
        )
        assert {node: book.plan for node, book in two.books.items()} == after
        names = [*SIX, *(f"b{number}" for number in range(8))]
        for name in names[len(SIX) :]:
            await two.desired.put(adapter(name))
        plans = await two.planned(names)
        assert {plan.fence for plan in plans.values()} == {fence}


@pytest.mark.faults
async def test_a_leader_that_was_paused_writes_nothing_when_it_wakes(pair: Pair) -> None:
    """The paused process still believes it leads until it looks at its clock."""
    async with pair() as two:
        before = await two.plans()
        leader, follower = two.roles()
        paused = two.schedulers[leader].pid
        assert paused is not None
        os.kill(paused, signal.SIGSTOP)
        await eventually(lambda: two.leads(follower), within_s=TAKEN_OVER_S)
        fence = two.ready(follower)["fence"]
        # News that both get: the paused one finds it in its sockets when it wakes.
        await two.desired.put(adapter("b"))
        await two.planned([*SIX, "b"])
        os.kill(paused, signal.SIGCONT)
        await eventually(lambda: two.ready(leader)["adapters"] == 7)
        assert (two.leads(leader), two.leads(follower)) == (False, True)
        await two.desired.put(adapter("c"))
        plans = await two.planned([*SIX, "b", "c"])
        assert {plan.fence for plan in plans.values()} == {fence}
        assert all(plans[node].revision > before[node].revision for node in plans)


@pytest.mark.faults
async def test_nats_killed_the_leader_goes_on_and_told_to_end_it_makes_way(
    pair: Pair, own_nats: ChildServer
) -> None:
    async with pair() as two:
        before = await two.plans()
        own_nats.kill()
        own_nats.start()
        await succeeds(two.plans, despite=UnavailableError)
        after = await two.plans()
        assert {n: p.engines for n, p in after.items()} == {n: p.engines for n, p in before.items()}
        await two.desired.put(adapter("b"))
        await two.planned([*SIX, "b"])
        leader, follower = two.roles()
        told_to_end = two.schedulers[leader].pid
        assert told_to_end is not None
        os.kill(told_to_end, signal.SIGTERM)
        await eventually(lambda: two.schedulers[leader].pid is None)
        # At once, not after the time to live: the lease was given back.
        await eventually(lambda: two.leads(follower), within_s=TTL_MS / 1e3 / 2)


def test_settings_that_can_not_work_are_one_clear_line(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(yaml.safe_dump({"lease_renew_ms": 2_600}))
    ended = subprocess.run(
        [sys.executable, "-m", "axiom_scheduler", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "lease_renew_ms" in ended.stderr
