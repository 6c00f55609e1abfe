"""The journal suite on the fake and on NATS, whose server is killed where the journal is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from tests.contract.journal_suite import BYTES_MAX, SUBJECT, JournalSuite, Opened
from tests.eventually import succeeds
from tests.owner import task_owner
from tests.servers import ChildServer

from axiom_common.drivers import nats_journal
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.nats_journal import NatsJournal
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.testing.journal import FakeJournal

NAME = "journal"


class TestFakeJournal(JournalSuite):
    @asynccontextmanager
    async def open(self) -> AsyncIterator[Opened]:
        journal = FakeJournal(bytes_max=BYTES_MAX)

        async def kept() -> list[tuple[str, bytes]]:
            return list(journal.messages)

        async def lose() -> None:
            journal.disconnect()

        async def restore() -> None:
            journal.reconnect()

        yield Opened(journal, kept, lose, restore)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    client = Client()
    await client.connect(url)
    try:
        yield client
    finally:
        await client.close()


async def all_of(url: str) -> list[tuple[str, bytes]]:
    """What the server keeps in the stream."""
    async with client_of(url) as client:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(NAME)).state
        found = []
        # An empty stream begins at 0, which is no message.
        for seq in range(max(1, state.first_seq), state.last_seq + 1):
            # The oldest may go while this looks.
            with suppress(NotFoundError):
                message = await jetstream.get_msg(NAME, seq)
                found.append((str(message.subject), message.data or b""))
        return found


class TestNatsJournal(JournalSuite):
    @pytest.fixture(autouse=True)
    def _server(self, module_nats: ChildServer) -> Iterator[None]:
        self.server = module_nats
        yield
        module_nats.start()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Opened]:
        async with client_of(self.server.url) as client:
            with suppress(NotFoundError):
                await client.jetstream().delete_stream(NAME)
        async with task_owner() as owner:
            connection = NatsConnection(self.server.url, name="j", clock=SystemClock())
            assert await connection.start(owner)
            journal = NatsJournal(
                connection,
                SystemClock(),
                NAME,
                subject="journal.*",
                bytes_max=BYTES_MAX,
                age_ms=60_000.0,
                message_bytes_max=1 << 19,
            )

            async def lose() -> None:
                self.server.kill()

            async def restore() -> None:
                self.server.start()

            async def kept() -> list[tuple[str, bytes]]:
                return await all_of(self.server.url)

            try:
                yield Opened(journal, kept, lose, restore)
            finally:
                await connection.close()

    async def test_the_stream_is_bounded_and_nobody_deletes_a_message(self) -> None:
        async with self.open() as opened:
            await opened.journal.append(SUBJECT, b"a")
            async with client_of(self.server.url) as client:
                config = (await client.jetstream().stream_info(NAME)).config
        assert (config.max_bytes, config.max_age) == (BYTES_MAX, 60.0)
        assert (config.discard, config.deny_delete) == ("old", True)

    async def test_a_stream_that_was_deleted_is_made_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nats_journal, "LOOK_EVERY_MS", 0.0)
        async with self.open() as opened:
            await opened.journal.append(SUBJECT, b"a")
            await opened.keeps(b"a")
            async with client_of(self.server.url) as client:
                await client.jetstream().delete_stream(NAME)
            await succeeds(lambda: opened.journal.append(SUBJECT, b"b"), despite=UnavailableError)
            await opened.keeps(b"b")
