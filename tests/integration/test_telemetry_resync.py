"""The view is the truth again: after each fault that a region's telemetry meets, and soon.

Two telemetry processes share the nodes of a crowd between a real NATS and a real Redis Cluster; a
gateway sees the crowd too. The truth is what the crowd's nodes are. All tests share the processes:
whatever a test does to them, the next begins by finding all well again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.eventually import eventually
from tests.servers import ChildServer
from tests.telemetry_parts import (
    ELECTION_S,
    SeenRegion,
    Telemetry,
    both_share,
    change_all,
    seen_region,
    two_telemetries,
)
from tests.valkey_cluster import ValkeyCluster

from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.wire import keys
from axiom_common.wire.reports import encode_node_report
from axiom_common.wire.subjects import all_node_reports
from axiom_telemetry.state import RECORD_TTL_MS

pytestmark = pytest.mark.faults

REGION = RegionId("resync")
NODES = 24
_INCARNATIONS = itertools.count(1, 10)


@pytest.fixture(scope="module")
def telemetries(
    module_nats: ChildServer,
    valkey_cluster: ValkeyCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[Telemetry]]:
    settings = {
        "region": REGION,
        "nats_url": module_nats.url,
        "redis_url": valkey_cluster.url,
    }
    with two_telemetries(settings, tmp_path_factory) as telemetries:
        yield telemetries


@pytest.fixture
async def seen(
    module_nats: ChildServer, valkey_cluster: ValkeyCluster, telemetries: list[Telemetry]
) -> AsyncIterator[SeenRegion]:
    module_nats.start()
    valkey_cluster.heal()
    for telemetry in telemetries:
        telemetry.server.start()

    clock = SystemClock()
    async with seen_region(
        REGION,
        told=[NatsConnection(module_nats.url, name="crowd", clock=clock)],
        heard=NatsConnection(module_nats.url, name="gateway.gw", clock=clock),
        redis_url=valkey_cluster.url,
        nodes=[NodeId(f"n{number}") for number in range(NODES)],
        # Each crowd begins after all that the one before has said.
        incarnation=next(_INCARNATIONS),
    ) as seen:
        await seen.true(within_s=ELECTION_S)
        await both_share(telemetries, NODES)
        yield seen
    valkey_cluster.heal()


async def test_a_change_is_seen(seen: SeenRegion) -> None:
    await change_all(seen, 7)
    await seen.true()


async def test_a_gap(seen: SeenRegion) -> None:
    for node in seen.crowd.states:
        seen.crowd.changed(node, waiting=11)
    await seen.true()
    assert seen.crowd.resyncs > 0


async def test_a_new_incarnation_whose_first_words_are_lost(seen: SeenRegion) -> None:
    for node, state in list(seen.crowd.states.items()):
        seen.crowd.begin(node, incarnation=state.incarnation + 1)
        seen.crowd.changed(node, waiting=13)
    await seen.true()


async def test_a_reconnect(seen: SeenRegion, module_nats: ChildServer) -> None:
    module_nats.kill()
    await change_all(seen, 17)
    module_nats.start()
    await eventually(lambda: seen.bus.connected)
    await seen.true()


async def test_a_redis_that_was_flushed(seen: SeenRegion, valkey_cluster: ValkeyCluster) -> None:
    for master in valkey_cluster.masters():
        valkey_cluster.ask(master, "FLUSHALL")
    await seen.true()


async def test_a_redis_failover_that_loses_writes(
    seen: SeenRegion, valkey_cluster: ValkeyCluster
) -> None:
    order = keys.shadow_order(REGION, NodeId("n0"))
    master = valkey_cluster.master_of(order)
    replica = valkey_cluster.replica_of(master)
    # Paused alone, it would find what it missed in its socket.
    replica.pause()
    valkey_cluster.ask(master, "CLIENT", "KILL", "TYPE", "replica")
    await change_all(seen, 19)
    await seen.true(view=False)
    written = valkey_cluster.ask(master, "GET", order)
    master.kill()
    replica.resume()
    valkey_cluster.ask(replica, "READONLY")
    assert valkey_cluster.ask(replica, "GET", order) != written
    await eventually(lambda: replica in valkey_cluster.masters(), within_s=30.0)
    await seen.true(within_s=ELECTION_S)


async def test_a_redis_that_restarts_whole_and_empty(
    seen: SeenRegion, valkey_cluster: ValkeyCluster
) -> None:
    for server in valkey_cluster.servers:
        server.kill()
    await change_all(seen, 23)
    valkey_cluster.heal()
    await seen.true(within_s=ELECTION_S)


async def test_a_telemetry_that_is_killed_is_taken_over_from(
    seen: SeenRegion, telemetries: list[Telemetry]
) -> None:
    killed, other = telemetries
    killed.server.kill()
    await change_all(seen, 29)
    await seen.true()
    assert await other.metric("axiom_telemetry_nodes_forgotten_total") == 0
    killed.server.start()
    await both_share(telemetries, NODES)
    await change_all(seen, 31)
    await seen.true()


async def test_what_was_said_before_changes_nothing(seen: SeenRegion) -> None:
    said: list[tuple[NodeId, bytes]] = []

    async def keep(subject: str, payload: bytes) -> None:
        said.append((NodeId(subject.rpartition(".")[2]), payload))

    await seen.bus.subscribe(all_node_reports(REGION), keep)
    await change_all(seen, 37)
    for node in list(seen.crowd.states)[::2]:
        await seen.crowd.tell_all(node)
    await change_all(seen, 41)
    await seen.true()
    for node, payload in said * 3:
        await seen.crowd.publish(node, payload)
    for _ in range(50):
        assert seen.wrong_in(seen.viewed()) == []
        await asyncio.sleep(0.02)
    await seen.true()


async def test_nothing_late_revives_a_node_that_left(
    seen: SeenRegion, telemetries: list[Telemetry], valkey_cluster: ValkeyCluster
) -> None:
    node = NodeId("n3")
    state = seen.crowd.states[node]
    changed = seen.crowd.changed(node, waiting=99)
    late = [encode_node_report(state), encode_node_report(changed)]
    await seen.crowd.leave(node)
    order, record = keys.shadow_order(REGION, node), keys.shadow_record(REGION, node)
    master = valkey_cluster.master_of(order)
    last = b"%d:%d" % (state.incarnation, state.seq + 2)
    await eventually(lambda: valkey_cluster.ask(master, "GET", order) == last)
    assert valkey_cluster.ask(master, "PTTL", record) <= RECORD_TTL_MS
    assert valkey_cluster.ask(master, "PTTL", order) > 10 * RECORD_TTL_MS
    valkey_cluster.ask(master, "DEL", record)
    # Also an instance that knows nothing of it, since it began after the node had left.
    for telemetry in telemetries:
        telemetry.server.kill()
        telemetry.server.start()
    await both_share(telemetries, NODES - 1)
    for payload in late * 3:
        await seen.crowd.publish(node, payload)
    await change_all(seen, 43)
    await seen.true()
    assert valkey_cluster.ask(master, "GET", order) == last
    assert valkey_cluster.ask(master, "EXISTS", record) == 0
