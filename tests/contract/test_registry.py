"""The registry suite on the fake and on JetStream, whose server is killed where it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import nats
import pytest
from tests.contract.registry_suite import Registries, RegistrySuite, watching
from tests.eventually import eventually, succeeds
from tests.owner import task_owner
from tests.servers import ChildServer

from axiom_common.drivers import nats_registry
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_registry import NatsRegistry
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import ConflictError, UnavailableError
from axiom_common.ports.registry import Entry
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.registry import FakeRegistry


class TestFakeRegistry(RegistrySuite):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Registries]:
        async with task_owner() as owner:
            clock = FakeClock()
            registry = FakeRegistry(owner, clock)

            async def lose() -> None:
                registry.disconnect()

            async def restore() -> None:
                registry.reconnect()

            async def wipe() -> None:
                registry.wipe()

            yield Registries(registry, lose, restore, wipe, clock.advance, ttl_ms=1000)


class TestNatsRegistry(RegistrySuite):
    direct = False

    @pytest.fixture(autouse=True)
    def _server(self, module_nats: ChildServer) -> Iterator[None]:
        self.server = module_nats
        yield
        module_nats.resume()
        module_nats.start()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Registries]:
        async with task_owner() as owner:
            connection = NatsConnection(self.server.url, name="registry", clock=SystemClock())
            assert await connection.start(owner)

            async def lose() -> None:
                self.server.kill()

            async def restore() -> None:
                self.server.start()

            async def wipe() -> None:
                self.server.kill()
                self.server.wipe()
                self.server.start()

            async def pass_time(duration_ms: float) -> None:
                # The server's own clock runs; tests wait for what it does.
                await asyncio.sleep(duration_ms / 1e3)

            registry = NatsRegistry(connection, direct=self.direct)
            yield Registries(registry, lose, restore, wipe, pass_time, ttl_ms=1000)
            await connection.close()

    async def test_a_handle_works_once_the_server_is_there(self) -> None:
        self.server.kill()
        async with task_owner() as owner:
            connection = NatsConnection(self.server.url, name="early", clock=SystemClock())
            await connection.start(owner)
            bucket = await NatsRegistry(connection).bucket("early")
            with pytest.raises(UnavailableError):
                await bucket.get("k")
            async with watching(bucket) as told:
                self.server.start()
                await succeeds(lambda: bucket.put("k", b"v"), despite=UnavailableError)
                held = await bucket.get("k")
                await eventually(lambda: held in told)
            await connection.close()

    async def test_a_watch_tells_what_vanished_without_a_word(self) -> None:
        async with self.bucket() as (there, bucket):
            for key in ("kept", "vanished"):
                await bucket.put(key, b"")
            async with watching(bucket) as told:
                await eventually(lambda: told[-1:] == [None])
                own = await nats.connect(self.server.url)
                await own.jetstream().purge_stream(
                    f"KV_{there.bucket}", subject=f"$KV.{there.bucket}.vanished"
                )
                await own.close()
                await there.lose()
                await there.restore()
                await eventually(lambda: told.count(None) == 2)
                again = told[told.index(None) + 1 :]
                assert [(e.key, e.value, e.lost) for e in again if e] == [
                    ("kept", b"", False),
                    ("vanished", None, False),
                ]

    async def test_a_watch_whose_subscription_dies_in_silence_begins_again(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket) as told:
            await eventually(lambda: told == [None])
            own = await nats.connect(self.server.url)
            streams = own.jetstream()
            for consumer in await streams.consumers_info(f"KV_{there.bucket}"):
                await streams.delete_consumer(f"KV_{there.bucket}", consumer.name)
            await own.close()
            revision = await bucket.put("k", b"v")
            await eventually(lambda: Entry("k", b"v", revision) in told)

    async def test_many_readers_at_once_each_see_all_and_leave_nothing_behind(self) -> None:
        async with self.bucket() as (there, bucket):
            for number in range(20):
                await bucket.put(f"k{number}", b"v")

            async def watched() -> int:
                count = 0
                async with contextlib.aclosing(bucket.watch()) as told:
                    async for entry in told:
                        if entry is None:
                            break
                        count += 1
                return count

            async def listed() -> int:
                return len(await bucket.list())

            for _ in range(20):
                reads = [*(watched() for _ in range(4)), *(listed() for _ in range(4))]
                assert set(await asyncio.gather(*reads)) == {20}
            own = await nats.connect(self.server.url)
            info = await own.jetstream().stream_info(f"KV_{there.bucket}")
            await own.close()
            assert info.state.consumer_count == 0

    async def test_a_server_that_hangs_is_unavailable(self) -> None:
        async with self.bucket() as (_, bucket):
            await bucket.put("k", b"v")
            self.server.pause()
            async with asyncio.timeout(4):
                with pytest.raises(UnavailableError):
                    await bucket.put("k", b"w")
            self.server.resume()
            await succeeds(lambda: bucket.put("k", b"x"), despite=UnavailableError)

    async def test_a_bucket_deleted_under_way_is_made_again_as_a_lost_one(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket) as told:
            before = await bucket.put("k", b"v")
            await eventually(lambda: Entry("k", b"v", before) in told)
            own = await nats.connect(self.server.url)
            await own.jetstream().delete_key_value(there.bucket)
            await own.close()
            await eventually(lambda: [e.key for e in told if e and e.lost] == ["k"])
            assert await bucket.create("k", b"again") > before

    async def test_a_watch_of_one_key_needs_no_polls_and_survives_a_lost_word(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nats_registry, "KEY_QUIETS", 10_000)
        async with self.bucket() as (_, bucket), watching(bucket, key="k") as told:
            await eventually(lambda: told == [None])
            first = await bucket.put("k", b"1")
            await eventually(lambda: told[1:] == [Entry("k", b"1", first)])
            monkeypatch.setattr(nats_registry, "changed_on", lambda bucket, key: "nowhere")
            monkeypatch.setattr(nats_registry, "KEY_QUIETS", 1)
            async with watching(bucket, key="k") as polled:
                await eventually(lambda: polled[-1:] == [None])
                second = await bucket.put("k", b"2")
                await eventually(lambda: polled[-1] == Entry("k", b"2", second))

    async def test_a_watch_of_one_key_notices_a_bucket_that_was_made_anew(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket, key="k") as told:
            for _ in range(3):
                before = await bucket.put("k", b"v")
            await eventually(lambda: Entry("k", b"v", before) in told)
            own = await nats.connect(self.server.url)
            await own.jetstream().delete_key_value(there.bucket)
            again = await own.jetstream().create_key_value(bucket=there.bucket, direct=True)
            await again.put("k", b"w")
            await own.close()
            await eventually(lambda: [e.value for e in told if e][-1] == b"w")
            last = [entry for entry in told if entry][-1]
            assert last.revision > before

    async def test_who_missed_that_a_bucket_was_made_anew_finds_out_by_a_conflict(self) -> None:
        async with self.bucket() as (there, bucket):
            before = [await bucket.put("k", b"%d" % n) for n in range(3)]
            own = await nats.connect(self.server.url)
            await own.jetstream().delete_key_value(there.bucket)
            await own.jetstream().create_key_value(bucket=there.bucket, history=1)
            await own.close()
            with pytest.raises(ConflictError):
                await bucket.update("k", b"late", revision=before[-1])
            assert await bucket.create("k", b"new") > before[-1]


class TestNatsRegistryReadDirectly(RegistrySuite):
    """As an agent reads it; on one server no replica lags."""

    direct = True
    _server = TestNatsRegistry._server
    open = TestNatsRegistry.open
