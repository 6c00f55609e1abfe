"""What every `Journal` does. A subclass opens one that keeps little, and says what it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from tests.eventually import succeeds

from axiom_common.errors import UnavailableError
from axiom_common.ports.journal import Journal

BYTES_MAX = 1 << 20
SUBJECT = "journal.one"


@dataclass
class Opened:
    """A journal of `BYTES_MAX` bytes, what it keeps, oldest first, and its faults."""

    journal: Journal
    kept: Callable[[], Awaitable[list[tuple[str, bytes]]]]
    lose: Callable[[], Awaitable[None]]
    restore: Callable[[], Awaitable[None]]

    async def keeps(self, *expected: bytes) -> None:
        """Wait until it keeps these, and no others."""

        async def look() -> None:
            assert await self.kept() == [(SUBJECT, payload) for payload in expected]

        await succeeds(look, despite=AssertionError, within_s=10)


class JournalSuite:
    """Inherit and implement `open`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """A journal that can be reached and keeps nothing yet."""
        raise NotImplementedError

    async def test_what_is_appended_is_kept_in_order(self) -> None:
        async with self.open() as opened:
            for payload in (b"a", b"b", b"c"):
                await opened.journal.append(SUBJECT, payload)
            await opened.keeps(b"a", b"b", b"c")

    async def test_beyond_its_bound_the_oldest_goes_first(self) -> None:
        async with self.open() as opened:
            sent = [bytes([n]) * (BYTES_MAX // 8) for n in range(24)]
            for payload in sent:
                await opened.journal.append(SUBJECT, payload)

            async def look() -> None:
                kept = [payload for _, payload in await opened.kept()]
                assert kept[-1:] == sent[-1:]
                assert kept == sent[-len(kept) :]
                assert 0 < sum(map(len, kept)) <= BYTES_MAX

            await succeeds(look, despite=AssertionError, within_s=10)

    async def test_away_it_says_so_at_once_and_comes_back_with_what_it_kept(self) -> None:
        async with self.open() as opened:
            await opened.journal.append(SUBJECT, b"before")
            await opened.keeps(b"before")
            await opened.lose()

            async def refused() -> None:
                try:
                    await opened.journal.append(SUBJECT, b"lost")
                except UnavailableError:
                    return
                raise AssertionError("nobody is there to take it")

            await succeeds(refused, despite=AssertionError, within_s=10)
            await opened.restore()
            await succeeds(
                lambda: opened.journal.append(SUBJECT, b"after"),
                despite=UnavailableError,
                within_s=10,
            )
            kept = await opened.kept()
            assert kept[0] == (SUBJECT, b"before")
