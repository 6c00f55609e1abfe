"""The view is the truth again after a NATS cluster elected a leader, and after it cut off whoever
was slow: nodes under their own rights, two telemetry processes, a gateway."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.eventually import eventually
from tests.nats_cluster import NODES, REGION, NatsCluster, cut_off, flood_until, leader_of
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

from axiom_common.model.ids import NodeId
from axiom_common.wire import keys

pytestmark = pytest.mark.faults

_INCARNATIONS = itertools.count(1_000, 10)


@pytest.fixture(scope="module")
def telemetries(
    nats_cluster: NatsCluster,
    module_valkey: ChildServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[Telemetry]]:
    # A cache of its own: that of others remembers what real agents of these nodes said last.
    settings = nats_cluster.settings("telemetry") | {"redis_url": module_valkey.url}
    with two_telemetries(settings, tmp_path_factory) as telemetries:
        yield telemetries


@pytest.fixture
async def seen(
    nats_cluster: NatsCluster, module_valkey: ChildServer, telemetries: list[Telemetry]
) -> AsyncIterator[SeenRegion]:
    async with seen_region(
        REGION,
        told=[nats_cluster.connection(node, name=f"node-agent.{node}") for node in NODES],
        heard=nats_cluster.connection("gateway", name="gateway.gw"),
        redis_url=module_valkey.url,
        nodes=[NodeId(node) for node in NODES],
        incarnation=next(_INCARNATIONS),
    ) as seen:
        await both_share(telemetries, len(NODES))
        yield seen
    nats_cluster.start()


async def test_a_leader_change(
    seen: SeenRegion, nats_cluster: NatsCluster, telemetries: list[Telemetry]
) -> None:
    leader = await leader_of(nats_cluster, keys.lease_bucket(REGION))
    nats_cluster.servers[leader].kill()
    await change_all(seen, 7)
    await seen.true(within_s=ELECTION_S)
    # Leases may have ended meanwhile: that too must pass by itself.
    await both_share(telemetries, len(NODES))
    await change_all(seen, 9)
    await seen.true()


async def test_a_slow_consumer_that_is_cut_off(
    seen: SeenRegion, nats_cluster: NatsCluster, telemetries: list[Telemetry]
) -> None:
    cut = cut_off(nats_cluster)
    flood = await nats_cluster.client("n3", inbox="node-agent.n3")
    slow = telemetries[0].server
    slow.pause()
    try:
        await flood_until(flood, lambda: cut_off(nats_cluster) > cut)
        await change_all(seen, 11)
    finally:
        slow.resume()
        await flood.close()
    await eventually(lambda: seen.bus.connected)
    await seen.true(within_s=ELECTION_S)
    await both_share(telemetries, len(NODES))
    await change_all(seen, 13)
    await seen.true()
