"""A gateway that is cut off from NATS for longer than anybody waits for it: orders are acknowledged
without it, every answer names it, it says so itself, and once it is back it goes by the order."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.eventually import eventually
from tests.gateway_region import (
    ADMIN_SECRET,
    BASE_MODEL,
    REGION,
    Answer,
    Gateway,
    Region,
    SimEngine,
    region_of,
)
from tests.owner import TestOwner
from tests.servers import ChildServer
from tests.tcp_proxy import TcpProxy, proxy_to

from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.runtime.ops import NATS_AWAY, ORDERS_STALE
from axiom_common.state import inflight_vectors
from axiom_common.wire import headers
from axiom_gateway import everywhere, inflight
from axiom_gateway.settings import GatewaySettings

KEYS = "/admin/v1/keys"
SILENT_MS = 1_500.0
"""Instead of 3 s."""
EXPIRED_MS = 1_500.0
"""Instead of a minute."""


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inflight_vectors, inflight):
        monkeypatch.setattr(module, "EXPIRED_MS", EXPIRED_MS)
    monkeypatch.setattr(everywhere, "LISTENED_MS", 0.0)


@dataclass(frozen=True)
class Stage:
    """Two gateways, the second one behind a proxy."""

    region: Region
    one: Gateway
    two: Gateway
    proxy: TcpProxy


@asynccontextmanager
async def connected(owner: TestOwner, port: int, name: str) -> AsyncIterator[NatsConnection]:
    connection = NatsConnection(f"nats://127.0.0.1:{port}", name=name, clock=SystemClock())
    assert await connection.start(owner)
    yield connection
    await connection.close()


@asynccontextmanager
async def gateway_on(region: Region, name: str, port: int) -> AsyncIterator[Gateway]:
    async with connected(region.owner, port, name) as connection:
        bus = NatsBus(connection)
        before, region.registry = region.registry, NatsRegistry(connection)
        gateway = Gateway(region, GatewaySettings(region=REGION, gateway=name), bus=bus)
        region.registry = before
        gateway.app.state._others._vectors._silent_ms = SILENT_MS
        await gateway.start()
        await gateway.sees(*(engine.id for engine in region.engines))
        yield gateway
        await gateway.stop()
        await bus.close()


@pytest.fixture
async def stage(own_nats: ChildServer) -> AsyncIterator[Stage]:
    async with (
        region_of(2, agent=False) as region,
        proxy_to(own_nats.port) as proxy,
        connected(region.owner, own_nats.port, "agent") as connection,
    ):
        bus: Any = NatsBus(connection)
        region.agent_bus, region.registry = bus, NatsRegistry(connection)  # type: ignore[assignment]
        await region.start_agent()
        assert region.agent is not None
        async with (
            gateway_on(region, "one", own_nats.port) as one,
            gateway_on(region, "two", proxy.port) as two,
        ):
            await eventually(lambda: one.app.state.peers == two.app.state.peers == 1)
            yield Stage(region, one, two, proxy)
        await region.agent.stop()
        region.agent = None
        await bus.close()


async def order(gateway: Gateway, engine: SimEngine, verb: str) -> Answer:
    answer = await gateway.post(f"/admin/v1/engines/{engine.id}:{verb}", b"")
    assert answer.status == 200, answer.body
    return answer


async def axiom(gateway: Gateway, *arguments: str, key_file: str) -> tuple[int, str, str]:
    """The command's exit code, and what it says on stdout and stderr."""
    command = (sys.executable, "-m", "axiom_cli", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--url", gateway.url, "--key-file", key_file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_who_is_cut_off_for_long_is_named_says_so_and_obeys_once_it_is_back(
    stage: Stage, tmp_path: Any
) -> None:
    one, two, engine = stage.one, stage.two, stage.region.engines[0]
    key_file = tmp_path / "admin.key"
    key_file.write_text(ADMIN_SECRET)
    key_file.chmod(0o600)
    await stage.proxy.cut()
    await eventually(lambda: one.app.state.missing() == ("two",), within_s=20.0)
    await eventually(lambda: {NATS_AWAY, ORDERS_STALE} <= set(two.app.degraded()))
    ready = await two.ops("/readyz")
    assert (ready.status, ready.json["ready"]) == (200, True)
    assert two.counted("degraded_ratio", what=ORDERS_STALE) == 1.0

    told = (await order(one, engine, "drain")).json
    assert (told["order"], told["without"]) == ("drain", ["two"])
    # A promise to clients: it serves on.
    assert {(await two.ask(BASE_MODEL)).status for _ in range(4)} == {200}
    code, out, err = await axiom(
        one, "engines", "drain", engine.id, "--no-wait", key_file=str(key_file)
    )
    assert (code, "drained" in out) == (1, True)
    assert "acknowledged: no new request goes there but from two" in err
    assert "not confirmed by two" in err
    code, out, _ = await axiom(
        one, "engines", "cordon", engine.id, "--json", key_file=str(key_file)
    )
    assert (code, json.loads(out)["engine"]["without"]) == (1, ["two"])
    assert (await order(one, engine, "release")).json["without"] == ["two"]
    assert (await order(one, engine, "drain")).json["without"] == ["two"]

    async with one.client.put(f"{KEYS}/k", json={"role": "viewer"}) as made:
        assert (made.status, (await made.json())["without"]) == (201, ["two"])
    code, out, err = await axiom(one, "keys", "delete", "k", "--json", key_file=str(key_file))
    assert (code, json.loads(out)["without"]) == (1, ["two"])
    assert "not confirmed by two" in err

    await stage.proxy.heal()
    await eventually(lambda: not two.app.state.may_send(engine.id), within_s=20.0)
    last_s = engine.sim.last_arrival_s
    answers = [await two.ask(BASE_MODEL) for _ in range(8)]
    assert {(a.status, a.engine) for a in answers} == {(200, stage.region.engines[1].id)}
    assert engine.sim.last_arrival_s == last_s
    await eventually(lambda: one.app.state.peers == 1)
    assert (await order(one, engine, "drain")).json["without"] == []
    await eventually(lambda: ORDERS_STALE not in two.app.degraded())
    async with one.client.put(f"{KEYS}/k", json={"role": "viewer"}) as made:
        assert (made.status, (await made.json())["without"]) == (201, [])
    async with one.client.delete(f"{KEYS}/k") as gone:
        assert (gone.status, headers.WITHOUT in gone.headers) == (204, False)
