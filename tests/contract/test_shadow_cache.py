"""The shadow cache suite on the fake, on one Valkey, and on a cluster of masters with replicas."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.cache_parts import make_put, put
from tests.contract.shadow_cache_suite import A, B, Caches, ShadowCacheSuite
from tests.eventually import succeeds
from tests.servers import ChildServer, running
from tests.valkey_cluster import ValkeyCluster, cluster_command

from axiom_cli.stack.servers import VALKEY
from axiom_common.drivers import redis_shadow_cache
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.errors import SettingsError, UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.region_view import TOMBSTONE_MS
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import keys

NODES = [NodeId(f"n{n}") for n in range(40)]


class TestFakeShadowCache(ShadowCacheSuite):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Caches]:
        clock = FakeClock()
        cache = FakeShadowCache(RegionId("suite"), clock)

        async def lose() -> None:
            cache.away = True

        async def restore() -> None:
            cache.wipe()
            cache.away = False

        yield Caches(cache, lose, restore, clock.advance)


class TestValkeyShadowCache(ShadowCacheSuite):
    @pytest.fixture(autouse=True)
    def _server(self, module_valkey: ChildServer, region: RegionId) -> Iterator[None]:
        self.server = module_valkey
        self.region = region
        yield
        module_valkey.start()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Caches]:
        cache = RedisShadowCache(self.server.url, self.region)

        async def lose() -> None:
            self.server.kill()

        async def restore() -> None:
            self.server.start()

        yield Caches(cache, lose, restore, _pass_time)
        await cache.close()

    async def test_names_that_nobody_mentions_any_more_leave(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.open() as there:
            monkeypatch.setattr(redis_shadow_cache, "MENTION_MS", 300)
            await there.cache.mention([A, B])
            await _pass_time(300)
            await there.cache.mention([B])
            with redis.Redis.from_url(self.server.url) as own:
                assert own.zrange(keys.shadow_names(self.region), 0, -1) == [b"b"]

    async def test_what_stays_of_a_node_ends_by_itself(self) -> None:
        async with self.open() as there:
            await put(there.cache, A, 1, 1, b"a")
            with redis.Redis.from_url(self.server.url) as own:
                left_ms = own.pttl(keys.shadow_order(self.region, A))
            assert 0 < left_ms <= TOMBSTONE_MS

    async def test_regions_do_not_see_each_other(self) -> None:
        async with self.open() as there:
            other = RedisShadowCache(self.server.url, RegionId("other"))
            await put(there.cache, A, 1, 1, b"here")
            await put(other, A, 1, 1, b"there")
            assert await there.cache.read_all() == (b"here",)
            assert await other.read_all() == (b"there",)
            await other.close()

    async def test_a_server_that_lost_its_scripts_is_taught_again(self) -> None:
        async with self.open() as there:
            await put(there.cache, A, 1, 1, b"a")
            with redis.Redis.from_url(self.server.url) as own:
                own.script_flush()
            assert await put(there.cache, A, 1, 2, b"b")


async def test_a_cluster_may_ask_for_a_password(tmp_path: Path, region: RegionId) -> None:
    def command(data_dir: Path, port: int) -> list[str]:
        return [*cluster_command(data_dir, port), "--requirepass", "p@ss:1"]

    def serving(connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"-NOAUTH")

    kind = replace(VALKEY, command=command, serving=serving)
    with running(ChildServer(kind, tmp_path / "valkey")) as server:
        with redis.Redis(port=server.port, password="p@ss:1") as own:
            slots: Any = own
            slots.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        address = f"127.0.0.1:{server.port}"
        stranger = RedisShadowCache(f"redis+cluster://{address}", region)
        with pytest.raises(UnavailableError):
            await stranger.ping()
        await stranger.close()
        cache = RedisShadowCache(f"redis+cluster://default:p%40ss%3A1@{address}", region)
        await succeeds(cache.ping, despite=UnavailableError, within_s=10)
        assert await put(cache, A, 1, 1, b"a")
        assert await cache.read_all() == (b"a",)
        await cache.close()


@pytest.mark.parametrize(
    "url",
    ["http://x", "nonsense", "redis://x:port", "redis://[::1", "redis+cluster://nohost"],
)
def test_a_url_that_cannot_work_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="redis_url"):
        RedisShadowCache(url, RegionId("suite"))


def test_what_is_said_of_a_wrong_url_holds_no_password() -> None:
    with pytest.raises(SettingsError) as caught:
        RedisShadowCache("redis://:secret@x:port", RegionId("suite"))
    assert "secret" not in str(caught.value)


class TestClusterShadowCache(ShadowCacheSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, valkey_cluster: ValkeyCluster, region: RegionId) -> Iterator[None]:
        self.cluster = valkey_cluster
        self.region = region
        yield
        valkey_cluster.heal()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Caches]:
        cache = RedisShadowCache(self.cluster.url, self.region)

        async def lose() -> None:
            for server in self.cluster.servers:
                server.kill()

        async def restore() -> None:
            self.cluster.heal()

        yield Caches(cache, lose, restore, _pass_time)
        await cache.close()

    async def test_all_of_a_node_lies_in_one_slot_and_nodes_lie_on_all_masters(self) -> None:
        async with self.open() as there:
            for node in NODES:
                await put(there.cache, node, 1, 1, node.encode())
            assert {there.cache.shard(node) for node in NODES} == {
                f"127.0.0.1:{master.port}" for master in self.cluster.masters()
            }
            for node in NODES:
                record = keys.shadow_record(self.region, node)
                order = keys.shadow_order(self.region, node)
                master = self.cluster.master_of(record)
                assert self.cluster.ask(master, "EXISTS", record, order) == 2

    async def test_a_master_that_is_down_fails_its_own_nodes_only_and_loses_its_part(self) -> None:
        async with self.open() as there:
            for node in NODES:
                await put(there.cache, node, 1, 1, b"1")
            master = self.cluster.master_of(keys.shadow_record(self.region, NODES[0]))
            down = {node for node in NODES if there.cache.shard(node).endswith(f":{master.port}")}
            master.pause()
            outcomes = await there.cache.put_if_newer(
                [make_put(node, 1, 2, b"2") for node in NODES]
            )
            assert {
                node
                for node, outcome in zip(NODES, outcomes, strict=True)
                if isinstance(outcome, UnavailableError)
            } == down
            master.kill()

            async def all_stored() -> None:
                puts = [make_put(node, 1, 3, b"3") for node in NODES]
                for outcome in await there.cache.put_if_newer(puts):
                    if isinstance(outcome, UnavailableError):
                        raise outcome
                await there.cache.mention(NODES)

            await succeeds(all_stored, despite=UnavailableError, within_s=30)
            assert await there.cache.read_all() == (b"3",) * len(NODES)

    async def test_writing_many_nodes_costs_one_script_call_each_and_no_more(self) -> None:
        async with self.open() as there:
            await there.cache.put_if_newer([make_put(node, 1, 1, b"") for node in NODES])
            before = self._calls()
            await there.cache.put_if_newer([make_put(node, 1, 2, b"") for node in NODES])
            after = self._calls()
        # The script's own reads and writes are counted beside its call.
        assert {name: after[name] - before.get(name, 0) for name in after} == {
            **dict.fromkeys(after, 0),
            "evalsha": len(NODES),
            "get": len(NODES),
            "set": 2 * len(NODES),
        }

    def _calls(self) -> dict[str, int]:
        """Commands of clients that each master served so far, added up."""
        calls: Counter[str] = Counter()
        for master in self.cluster.masters():
            for name, stats in self.cluster.ask(master, "INFO", "commandstats").items():
                command = name.removeprefix("cmdstat_")
                if command not in ("info", "role", "ping") and "|" not in command:
                    calls[command] += stats["calls"] + stats["rejected_calls"]
        return dict(calls)


async def _pass_time(duration_ms: float) -> None:
    await asyncio.sleep(duration_ms / 1e3 + 0.05)
