"""What every `ShadowCache` does. A subclass opens an empty one and says how time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from tests.cache_parts import make_put, put
from tests.eventually import succeeds

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId
from axiom_common.ports.shadow_cache import ShadowCache

A, B = NodeId("a"), NodeId("b")
SHORT_TTL_MS = 200


@dataclass
class Caches:
    """A cache, its faults, and time. What it held may be lost by `lose`."""

    cache: ShadowCache
    lose: Callable[[], Awaitable[None]]
    restore: Callable[[], Awaitable[None]]
    pass_time: Callable[[float], Awaitable[None]]


class ShadowCacheSuite:
    """Inherit and implement `open`."""

    def open(self) -> AbstractAsyncContextManager[Caches]:
        """A reachable, empty cache."""
        raise NotImplementedError

    async def test_all_nodes_are_read(self) -> None:
        async with self.open() as there:
            assert await there.cache.read_all() == ()
            nodes = [NodeId(f"n{n}") for n in range(600)]
            puts = [make_put(node, 1, 1, node.encode()) for node in nodes]
            outcomes = await there.cache.put_if_newer(puts)
            assert outcomes == (True,) * len(nodes)
            await there.cache.mention(nodes)
            assert sorted(await there.cache.read_all()) == sorted(n.encode() for n in nodes)

    async def test_who_is_not_mentioned_is_not_read(self) -> None:
        async with self.open() as there:
            await there.cache.put_if_newer([make_put(A, 1, 1, b"a"), make_put(B, 1, 1, b"b")])
            await there.cache.mention([])
            assert await there.cache.read_all() == ()
            await there.cache.mention([B])
            assert await there.cache.read_all() == (b"b",)

    async def test_each_of_many_has_its_own_outcome(self) -> None:
        async with self.open() as there:
            assert await put(there.cache, A, 5, 5, b"a")
            puts = [make_put(A, 5, 5, b"x"), make_put(B, 1, 1, b"b"), make_put(A, 5, 6, b"a6")]
            assert await there.cache.put_if_newer(puts) == (False, True, True)
            assert await there.cache.put_if_newer([]) == ()
            await there.cache.mention([A, B])
            assert sorted(await there.cache.read_all()) == [b"a6", b"b"]

    @pytest.mark.parametrize(
        ("incarnation", "seq", "stored"),
        [
            (5, 11, True),
            (6, 1, True),
            (5, 10, False),
            (5, 9, False),
            (4, 99, False),
            (10, 0, True),
        ],
    )
    async def test_only_what_is_newer_is_stored(
        self, incarnation: int, seq: int, stored: bool
    ) -> None:
        async with self.open() as there:
            assert await put(there.cache, A, 5, 10, b"old")
            assert await put(there.cache, A, incarnation, seq, b"new") is stored
            assert await there.cache.read_all() == ((b"new" if stored else b"old"),)

    async def test_the_newest_wins_whatever_the_order(self) -> None:
        async with self.open() as there:
            orders = [(i, s) for i in (1, 2, 3) for s in range(1, 6)]
            await asyncio.gather(
                *(put(there.cache, A, i, s, b"%d.%d" % (i, s)) for i, s in orders[::-1] + orders)
            )
            assert await there.cache.read_all() == (b"3.5",)

    async def test_a_record_expires_after_its_last_store(self) -> None:
        async with self.open() as there:
            await put(there.cache, A, 1, 1, b"a", ttl_ms=SHORT_TTL_MS)
            await put(there.cache, B, 1, 1, b"b", ttl_ms=SHORT_TTL_MS)
            await put(there.cache, B, 1, 2, b"b2")
            # Refused, so it prolongs nothing.
            await put(there.cache, A, 1, 1, b"a")
            await there.pass_time(SHORT_TTL_MS)
            assert await there.cache.read_all() == (b"b2",)

    async def test_nothing_old_brings_a_node_back_whose_record_expired(self) -> None:
        async with self.open() as there:
            await put(there.cache, A, 3, 7, b"a", ttl_ms=SHORT_TTL_MS)
            await there.pass_time(SHORT_TTL_MS)
            for incarnation, seq in ((3, 7), (3, 6), (2, 99)):
                assert not await put(there.cache, A, incarnation, seq, b"late")
            assert await there.cache.read_all() == ()
            assert await put(there.cache, A, 3, 8, b"alive")
            assert await there.cache.read_all() == (b"alive",)

    async def test_while_it_is_away_calls_say_so(self) -> None:
        async with self.open() as there:
            await there.cache.ping()
            await there.lose()
            with pytest.raises(UnavailableError):
                await there.cache.ping()
            with pytest.raises(UnavailableError):
                await there.cache.mention([A])
            with pytest.raises(UnavailableError):
                await there.cache.read_all()
            puts = [make_put(A, 1, 1, b""), make_put(B, 1, 1, b"")]
            for outcome in await there.cache.put_if_newer(puts):
                assert isinstance(outcome, UnavailableError)
                assert str(outcome)
            await there.restore()
            await succeeds(there.cache.ping, despite=UnavailableError, within_s=10)
            assert await put(there.cache, A, 2, 1, b"a")
            assert b"a" in await there.cache.read_all()
