"""The shadow cache suite on the fake, on one Valkey and on a cluster of three."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from tests.contract.shadow_cache_suite import A, B, Caches, ShadowCacheSuite, put
from tests.servers import ChildServer, running

from axiom_cli.stack.servers import VALKEY
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.errors import SettingsError
from axiom_common.model.ids import RegionId
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import keys

MASTERS = 3
SLOTS = 16384


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

    async def test_names_of_expired_records_are_removed(self) -> None:
        async with self.open() as there:
            await put(there.cache, A, 1, 1, b"a", ttl_ms=50)
            await put(there.cache, B, 1, 1, b"b")
            await _pass_time(50)
            assert await there.cache.read_all() == (b"b",)
            with redis.Redis.from_url(self.server.url) as own:
                assert own.smembers(keys.shadow_nodes(self.region)) == {b"b"}

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


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ChildServer]]:
    kind = replace(VALKEY, command=_cluster_command)
    with ExitStack() as stack:
        masters = [
            stack.enter_context(running(ChildServer(kind, tmp_path_factory.mktemp(f"m{n}"))))
            for n in range(MASTERS)
        ]
        _join(masters)
        yield masters


class TestClusterShadowCache(ShadowCacheSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, masters: list[ChildServer], region: RegionId) -> None:
        self.masters = masters
        self.region = region

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Caches]:
        hosts = ",".join(f"127.0.0.1:{master.port}" for master in self.masters)
        cache = RedisShadowCache(f"redis+cluster://{hosts}", self.region)

        async def lose() -> None:
            for master in self.masters:
                master.kill()

        async def restore() -> None:
            for master in self.masters:
                master.start()

        yield Caches(cache, lose, restore, _pass_time)
        await cache.close()


async def _pass_time(duration_ms: float) -> None:
    await asyncio.sleep(duration_ms / 1e3 + 0.05)


def _cluster_command(data_dir: Path, port: int) -> list[str]:
    command = VALKEY.command(data_dir, port)
    # The default bus port, 10000 above, may lie beyond the last port.
    command += ["--cluster-enabled", "yes", "--cluster-port", str(port - 10_000)]
    return [*command, "--cluster-node-timeout", "2000"]


def _join(masters: list[ChildServer]) -> None:
    clients = [redis.Redis.from_url(master.url) for master in masters]
    for n, client in enumerate(clients):
        first, last = n * SLOTS // MASTERS, (n + 1) * SLOTS // MASTERS - 1
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for other in masters[:n]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.port - 10_000)
    deadline = time.monotonic() + 20
    while not all(
        info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(MASTERS)
        for info in (client.execute_command("CLUSTER INFO") for client in clients)
    ):
        assert time.monotonic() < deadline, "the cluster does not form"
        time.sleep(0.02)
    for client in clients:
        client.close()
