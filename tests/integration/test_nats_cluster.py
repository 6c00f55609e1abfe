"""All services on a NATS cluster in production form: with their own keys, under their own rights,
through the loss of the server that leads, and after one was cut off for being slow."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.contract.registry_suite import watching
from tests.contract.simulated_engine import adapter_folders, simulated_engine
from tests.eventually import eventually, succeeds
from tests.nats_cluster import REGION, NatsCluster, cut_off, flood_until, leader_of
from tests.owner import task_owner
from tests.servers import ChildServer
from tests.service_process import log_lines, readiness, service_process

from axiom_cli.key_files import key_file
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId
from axiom_common.wire import keys, subjects

N1 = NodeId("n1")
KEY_FILE = "admin.key"
ADAPTER = "helper"
BACK_WITHIN_S = 20.0
"""An election takes 5 s; the rest is for a loaded machine."""
START_WITHIN_S = 30.0


@dataclass
class Fleet:
    """One node, one gateway, telemetry, a scheduler, as processes."""

    services: dict[str, ChildServer]
    adapters: Path
    secret: str

    def __getattr__(self, service: str) -> ChildServer:
        return self.services[service]

    def refusals(self) -> list[dict[str, Any]]:
        """What the server did not let them do."""
        return [
            {"service": name} | line
            for name, server in self.services.items()
            for line in log_lines(server)
            if line["event"] == "nats refuses"
        ]


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, nats_cluster: NatsCluster, redis_url: str
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    adapters = adapter_folders(folder / "adapters", [ADAPTER])
    engine = simulated_engine(folder / "engine")
    agent = {"name": "e1", "hbm_slots": 2, "host_slots": 4, "max_lora_rank": 8}
    with contextlib.ExitStack() as stack:

        def start(server: ChildServer) -> ChildServer:
            server.start()
            stack.callback(server.stop)
            return server

        def service(kind: str, user: str, **settings: Any) -> ChildServer:
            given = nats_cluster.settings(user) | {"redis_url": redis_url} | settings
            return start(service_process(kind, folder / kind, given))

        start(engine)
        key_file(folder / KEY_FILE)
        services = {
            "agent": service(
                "node_agent",
                "n1",
                node="n1",
                poll_ms=50,
                engines=[agent | {"url": engine.url}],
            ),
            "telemetry": service("telemetry", "telemetry"),
            "gateway": service(
                "gateway", "gateway", gateway="g1", admin_key_file=str(folder / KEY_FILE)
            ),
            "scheduler": service("scheduler", "scheduler", settle_ms=300),
        }
        yield Fleet(services, adapters, key_file(folder / KEY_FILE))


@pytest.fixture
def whole(nats_cluster: NatsCluster) -> Iterator[NatsCluster]:
    """The cluster, all of whose servers run again at the end."""
    yield nats_cluster
    nats_cluster.start()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def complete(http: aiohttp.ClientSession, fleet: Fleet, model: str) -> int:
    body = {"model": model, "prompt": "a few words", "max_tokens": 2}
    async with http.post(f"{fleet.gateway.url}/v1/completions", json=body) as answer:
        return answer.status


async def served(http: aiohttp.ClientSession, fleet: Fleet, model: str) -> None:
    """A request is served, as soon as the fleet is there."""
    deadline = time.monotonic() + START_WITHIN_S
    while (status := await complete(http, fleet, model)) != 200:
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.05)


async def test_all_services_do_their_work_under_their_own_rights(
    fleet: Fleet, http: aiohttp.ClientSession
) -> None:
    await eventually(
        lambda: all(readiness(server)["ready"] for server in fleet.services.values()),
        within_s=START_WITHIN_S,
    )
    await served(http, fleet, "tiny")
    url, key = f"{fleet.gateway.url}/admin/v1", {"authorization": f"Bearer {fleet.secret}"}
    async with http.put(f"{url}/models/tiny", json={}, headers=key) as answer:
        assert answer.status in (200, 201), await answer.text()
    spec = {"base_model": "tiny", "path": str(fleet.adapters / ADAPTER), "rank": 8}
    async with http.put(f"{url}/adapters/{ADAPTER}", json=spec, headers=key) as answer:
        assert answer.status in (200, 201), await answer.text()
    await served(http, fleet, ADAPTER)
    await eventually(lambda: readiness(fleet.agent)["plan_revision"], within_s=START_WITHIN_S)
    await eventually(
        lambda: readiness(fleet.telemetry)["nodes"] == 1 and readiness(fleet.scheduler)["leads"],
        within_s=START_WITHIN_S,
    )
    assert readiness(fleet.agent)["degraded"] == []
    assert fleet.refusals() == []


async def test_the_loss_of_the_server_that_leads_is_over_in_seconds(
    fleet: Fleet, whole: NatsCluster, http: aiohttp.ClientSession
) -> None:
    await served(http, fleet, "tiny")
    heard: list[bytes] = []

    async def hear(_: str, payload: bytes) -> None:
        heard.append(payload)

    async with task_owner() as owner:
        leader = await leader_of(whole, keys.DESIRED_BUCKET)
        connection = whole.connection("gateway", name="gateway.test", url=_others(whole, leader))
        assert await connection.start(owner)
        bucket = await whole.registry("gateway", connection).bucket(keys.DESIRED_BUCKET)
        bus = NatsBus(connection)
        await bus.subscribe(subjects.node_report(REGION, N1), hear)
        await succeeds(
            lambda: bucket.put("test.before", b""),
            despite=UnavailableError,
            within_s=BACK_WITHIN_S,
        )
        async with watching(bucket) as told:
            await eventually(lambda: None in told, within_s=BACK_WITHIN_S)
            whole.servers[leader].kill()
            killed_s = time.monotonic()
            await succeeds(
                lambda: bucket.put("test.after", b""),
                despite=UnavailableError,
                within_s=BACK_WITHIN_S,
            )
            await eventually(
                lambda: any(entry and entry.key == "test.after" for entry in told),
                within_s=BACK_WITHIN_S,
            )
            heard.clear()
            await eventually(lambda: heard, within_s=BACK_WITHIN_S)
            await eventually(lambda: "test.before" in {entry.key for entry in told if entry})
        assert time.monotonic() - killed_s < 2 * BACK_WITHIN_S
        await eventually(
            lambda: not {"nats-away", "registry-away"} & _degraded(fleet), within_s=BACK_WITHIN_S
        )
        await served(http, fleet, "tiny")
        await bus.close()
        await connection.close()
    assert fleet.refusals() == []


async def test_who_is_cut_off_for_being_slow_comes_back(
    fleet: Fleet, nats_cluster: NatsCluster
) -> None:
    await eventually(lambda: readiness(fleet.telemetry)["nodes"] == 1, within_s=START_WITHIN_S)
    before = Counter(line["event"] for line in log_lines(fleet.telemetry))
    asked = resyncs(fleet.telemetry)

    def since(event: str) -> int:
        return Counter(line["event"] for line in log_lines(fleet.telemetry))[event] - before[event]

    cut = cut_off(nats_cluster)
    flood = await nats_cluster.client("n3", inbox="node-agent.n3")
    fleet.telemetry.pause()
    try:
        await flood_until(flood, lambda: cut_off(nats_cluster) > cut)
    finally:
        fleet.telemetry.resume()
        await flood.close()
    await eventually(lambda: since("nats lost") and since("nats connected"), within_s=BACK_WITHIN_S)
    await eventually(lambda: resyncs(fleet.telemetry) > asked, within_s=BACK_WITHIN_S)
    await eventually(lambda: readiness(fleet.telemetry)["degraded"] == [], within_s=BACK_WITHIN_S)
    assert readiness(fleet.telemetry)["nodes"] == 1
    assert fleet.refusals() == []


def resyncs(telemetry: ChildServer) -> float:
    """How often it asked agents for their whole state."""
    with urllib.request.urlopen(f"{telemetry.url}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    [value] = re.findall(r"^axiom_telemetry_resyncs_total (\S+)", page, flags=re.MULTILINE)
    return float(value)


def _degraded(fleet: Fleet) -> set[str]:
    return {fault for server in fleet.services.values() for fault in readiness(server)["degraded"]}


def _others(cluster: NatsCluster, name: str) -> str:
    """The servers but one: what is tested is the cluster, and not the way back to it."""
    urls = cluster.url.split(",")
    return ",".join(
        url
        for url, server in zip(urls, cluster.topology.servers, strict=True)
        if server.name != name
    )
