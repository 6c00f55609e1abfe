"""The bus suite on the fake and on NATS, whose server is killed where the bus is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import nats.errors
import pytest
from tests.contract.bus_suite import PENDING_MAX, Buses, BusSuite, Heard, ready
from tests.eventually import eventually
from tests.owner import task_owner
from tests.servers import ChildServer, running

from axiom_cli.stack.servers import NATS
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
    def _server(self, module_nats: ChildServer) -> Iterator[None]:
        self.server = module_nats
        yield
        module_nats.resume()
        module_nats.start()

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

    async def test_what_the_library_stumbles_over_is_a_line_without_its_way(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with task_owner() as owner:
            connection = NatsConnection(self.server.url, name="stumbles", clock=SystemClock())
            assert await connection.start(owner)
            client = connection.session().client
            self.server.pause()
            # Its answer meets nobody, which ends the library's reading.
            with pytest.raises(nats.errors.TimeoutError):
                await client.flush(timeout=0.1)
            self.server.resume()
            await eventually(lambda: "invalid state" in _causes(caplog))
            assert [r.getMessage() for r in caplog.records] == ["nats error"]
            assert not any(record.exc_info for record in caplog.records)
            await connection.close()

    async def test_what_the_server_forbids_is_logged_and_harms_nothing_else(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        kind = replace(NATS, command=_command_with_permissions)
        with running(ChildServer(kind, tmp_path / "guarded")) as server:
            async with task_owner() as owner:
                url = server.url.replace("//", "//agent:secret@")
                connection = NatsConnection(url, name="guarded", clock=SystemClock())
                assert await connection.start(owner)
                bus, heard = NatsBus(connection), Heard()
                await bus.subscribe("mine", heard)
                await bus.publish("others", b"")
                await bus.publish("mine", b"")
                await eventually(lambda: heard.messages == [("mine", b"")])
                await eventually(lambda: "permissions violation" in _causes(caplog))
                assert bus.connected
                await bus.close()
                await connection.close()

    async def test_a_wrong_password_is_logged_and_tried_again(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        kind = replace(NATS, command=_command_with_permissions)
        with running(ChildServer(kind, tmp_path / "guarded")) as server:
            async with task_owner() as owner:
                url = server.url.replace("//", "//agent:wrong@")
                connection = NatsConnection(url, name="stranger", clock=SystemClock())
                assert not await connection.start(owner)
                assert "authorization violation" in _causes(caplog)
                await connection.close()


def _command_with_permissions(data_dir: Path, port: int) -> list[str]:
    command = NATS.command(data_dir, port)
    with Path(command[-1]).open("a") as config:
        config.write(
            "authorization { users: [ { user: agent, password: secret,"
            ' permissions: { publish: "mine", subscribe: "mine" } } ] }\n'
        )
    return command


def _causes(caplog: pytest.LogCaptureFixture) -> str:
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    return " ".join(str(f.get("cause")) for f in fields).lower()
