"""The bus suite on the fake and on NATS, whose server is killed where the bus is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.contract.bus_suite import PENDING_MAX, Buses, BusSuite, Heard, ready
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_cli.stack.servers import ChildServer
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.testing.bus import FakeBus, FakeHub


class TestFakeBus(BusSuite):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Buses]:
        async with task_owner() as owner:
            hub = FakeHub()
            one = FakeBus(owner, hub, pending_max=PENDING_MAX)
            two = FakeBus(owner, hub, pending_max=PENDING_MAX)

            async def lose() -> None:
                one.disconnect()
                two.disconnect()

            async def restore() -> None:
                await one.reconnect()
                await two.reconnect()

            yield Buses(one, two, lose, restore)
            await one.close()
            await two.close()


class TestNatsBus(BusSuite):
    @pytest.fixture(autouse=True)
    def _server(self, own_nats: ChildServer) -> None:
        self.server = own_nats

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Buses]:
        async with task_owner() as owner:
            connections = [
                NatsConnection(self.server.url, name=name, clock=SystemClock()) for name in "ab"
            ]
            for connection in connections:
                assert await connection.start(owner)
            one, two = (NatsBus(c, pending_max=PENDING_MAX) for c in connections)

            async def lose() -> None:
                self.server.kill()

            async def restore() -> None:
                self.server.start()

            yield Buses(one, two, lose, restore)
            for bus, connection in zip((one, two), connections, strict=True):
                await bus.close()
                await connection.close()

    async def test_starts_while_the_server_is_away(self) -> None:
        self.server.kill()
        async with task_owner() as owner:
            connection = NatsConnection(self.server.url, name="early", clock=SystemClock())
            assert not await connection.start(owner)
            bus, heard = NatsBus(connection), Heard()
            await bus.subscribe("early", heard)
            assert not bus.connected
            self.server.start()
            await eventually(lambda: bus.connected)
            await bus.publish("early", b"bird")
            await eventually(lambda: heard.messages == [("early", b"bird")])
            await bus.close()
            await connection.close()

    async def test_a_server_that_hangs_counts_as_lost(self) -> None:
        async with self.open() as buses:
            heard = Heard()
            await buses.two.subscribe("hang", heard)
            await ready(buses)
            self.server.pause()
            await eventually(lambda: not buses.one.connected, within_s=6)
            self.server.resume()
            await eventually(lambda: buses.one.connected and buses.two.connected)
            await buses.one.publish("hang", b"over")
            await eventually(lambda: heard.messages == [("hang", b"over")])
