"""What every `Registry` does. A subclass opens one and says how it is lost and restored."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
from tests.eventually import eventually, succeeds

from axiom_common.errors import ConflictError, InvalidInputError, UnavailableError
from axiom_common.ports.registry import Bucket, Entry, Registry

_NUMBERS = itertools.count(1)


@dataclass
class Registries:
    """A registry, its faults, and time. `ttl_ms` is the shortest time to live that it can keep.

    `wipe` is the loss of all records, with a restart where there is a server. `bucket` is a name
    that no other test uses.
    """

    registry: Registry
    lose: Callable[[], Awaitable[None]]
    restore: Callable[[], Awaitable[None]]
    wipe: Callable[[], Awaitable[None]]
    pass_time: Callable[[float], Awaitable[None]]
    ttl_ms: float
    bucket: str = field(default_factory=lambda: f"suite-{next(_NUMBERS)}")


class RegistrySuite:
    """Inherit and implement `open`."""

    def open(self) -> AbstractAsyncContextManager[Registries]:
        """A reachable, empty registry."""
        raise NotImplementedError

    async def test_what_was_put_is_read(self) -> None:
        async with self.bucket() as (_, bucket):
            assert await bucket.get("a.b") is None
            first = await bucket.put("a.b", b"one")
            second = await bucket.put("a.b", b"")
            assert second > first
            assert await bucket.get("a.b") == Entry("a.b", b"", second)

    async def test_list_is_by_key_and_leaves_out_what_was_deleted(self) -> None:
        async with self.bucket() as (_, bucket):
            assert await bucket.list() == ()
            revisions = {key: await bucket.put(key, key.encode()) for key in ("c", "a", "gone")}
            await bucket.delete("gone")
            assert await bucket.list() == (
                Entry("a", b"a", revisions["a"]),
                Entry("c", b"c", revisions["c"]),
            )

    async def test_create_is_for_what_is_absent(self) -> None:
        async with self.bucket() as (_, bucket):
            revision = await bucket.create("k", b"mine")
            with pytest.raises(ConflictError):
                await bucket.create("k", b"other")
            assert await bucket.get("k") == Entry("k", b"mine", revision)
            await bucket.delete("k")
            assert await bucket.create("k", b"again") > revision

    async def test_update_is_for_the_revision_that_was_read(self) -> None:
        async with self.bucket() as (_, bucket):
            first = await bucket.put("k", b"1")
            second = await bucket.update("k", b"2", revision=first)
            with pytest.raises(ConflictError):
                await bucket.update("k", b"3", revision=first)
            with pytest.raises(ConflictError):
                await bucket.update("absent", b"3", revision=second)
            assert await bucket.get("k") == Entry("k", b"2", second)

    async def test_delete_is_for_the_revision_that_was_read(self) -> None:
        async with self.bucket() as (_, bucket):
            first = await bucket.put("k", b"1")
            second = await bucket.put("k", b"2")
            with pytest.raises(ConflictError):
                await bucket.delete("k", revision=first)
            assert await bucket.delete("k", revision=second) > second
            assert await bucket.get("k") is None
            await bucket.delete("never-there")

    async def test_one_of_many_wins_a_race(self) -> None:
        async with self.bucket() as (_, bucket):
            made = await _outcomes([bucket.create("k", b"%d" % n) for n in range(8)])
            assert sorted(made) == [False] * 7 + [True]
            held = await bucket.get("k")
            assert held is not None
            changed = await _outcomes(
                [bucket.update("k", b"%d" % n, revision=held.revision) for n in range(8)]
            )
            assert sorted(changed) == [False] * 7 + [True]

    async def test_a_record_with_a_time_to_live_expires_and_watches_see_it(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket) as told:
            await eventually(lambda: None in told)
            revision = await bucket.create("lease", b"me", ttl_ms=there.ttl_ms)
            revision = await bucket.update(
                "lease", b"still me", revision=revision, ttl_ms=there.ttl_ms
            )
            assert await bucket.get("lease") == Entry("lease", b"still me", revision)
            await there.pass_time(there.ttl_ms)
            await eventually(lambda: told[-1] is not None and told[-1].value is None)
            assert await bucket.get("lease") is None
            assert await bucket.list() == ()
            assert await bucket.create("lease", b"you") > revision

    async def test_a_watch_tells_what_is_there_and_then_what_changes(self) -> None:
        async with self.bucket() as (_, bucket):
            await bucket.put("gone", b"")
            await bucket.delete("gone")
            one = await bucket.put("one", b"1")
            two = await bucket.put("two", b"2")
            async with watching(bucket) as told:
                await eventually(lambda: len(told) == 3)
                assert told == [Entry("one", b"1", one), Entry("two", b"2", two), None]
                three = await bucket.put("three", b"3")
                await bucket.delete("one")
                await eventually(lambda: len(told) == 5)
                last = told[4]
                assert told[3] == Entry("three", b"3", three)
                assert last is not None
                assert (last.key, last.value) == ("one", None)
                assert last.revision > three

    async def test_a_watch_of_nothing_says_so(self) -> None:
        async with self.bucket() as (_, bucket), watching(bucket) as told:
            await eventually(lambda: told == [None])

    async def test_watches_are_independent(self) -> None:
        async with self.bucket() as (_, bucket), watching(bucket) as first:
            await eventually(lambda: first == [None])
            async with watching(bucket) as second:
                await eventually(lambda: second == [None])
            revision = await bucket.put("k", b"v")
            await eventually(lambda: first == [None, Entry("k", b"v", revision)])
            assert second == [None]

    async def test_a_watch_of_one_key_tells_of_no_other(self) -> None:
        async with self.bucket() as (there, bucket):
            await bucket.put("other", b"o")
            mine = await bucket.put("mine", b"m")
            async with (
                watching(bucket, key="mine") as told,
                watching(bucket, key="absent") as absent,
            ):
                await eventually(lambda: told == [Entry("mine", b"m", mine), None])
                await eventually(lambda: absent == [None])
                await bucket.put("other", b"o2")
                await bucket.delete("other")
                newer = await bucket.put("mine", b"m2")
                await eventually(lambda: told[2:] == [Entry("mine", b"m2", newer)])
                await there.lose()
                await there.restore()
                await eventually(lambda: told[3:] == [Entry("mine", b"m2", newer), None])
                await succeeds(lambda: bucket.delete("mine"), despite=UnavailableError)
                await eventually(lambda: told[-1] is not None and told[-1].value is None)
                await succeeds(lambda: bucket.put("absent", b"a"), despite=UnavailableError)
                await eventually(lambda: absent[-1] is not None)
                assert {entry.key for entry in told if entry} == {"mine"}
                assert {entry.key for entry in absent if entry} == {"absent"}

    async def test_a_watch_of_one_key_tells_that_it_was_lost(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket, key="k") as told:
            before = Entry("k", b"v", await bucket.put("k", b"v"))
            await eventually(lambda: before in told)
            await there.wipe()
            await eventually(lambda: told[-1] is None and told.count(None) == 2)
            lost = told[-2]
            assert lost is not None
            assert (lost.key, lost.value, lost.lost) == ("k", None, True)
            await succeeds(lambda: bucket.put("k", b"w"), despite=UnavailableError)
            await eventually(lambda: told[-1] is not None and told[-1].value == b"w")

    async def test_in_a_bounded_bucket_the_oldest_records_make_room(self) -> None:
        async with self.open() as there:
            bucket = await there.registry.bucket(there.bucket, bytes_max=16 << 10)
            keys = [f"key-{number:02d}" for number in range(20)]
            for key in keys:
                await bucket.create(key, bytes(2 << 10))
            kept = [entry.key for entry in await bucket.list()]
            assert kept == keys[-len(kept) :]
            assert 4 <= len(kept) <= 8
            assert await bucket.get(keys[0]) is None
            await bucket.create(keys[0], b"again", ttl_ms=60_000.0)

    async def test_in_a_lasting_bucket_nothing_expires(self) -> None:
        async with self.open() as there:
            bucket = await there.registry.bucket(there.bucket, lasting=True)
            first = await bucket.create("k", b"1")
            with pytest.raises(InvalidInputError):
                await bucket.update("k", b"2", revision=first, ttl_ms=there.ttl_ms)
            await bucket.delete("k", revision=first)
            assert await bucket.create("k", b"3") > first
            assert [entry.value for entry in await bucket.list()] == [b"3"]

    async def test_while_it_is_away_calls_say_so(self) -> None:
        async with self.bucket() as (there, bucket):
            await bucket.put("k", b"v")
            await there.lose()
            for call in (
                bucket.get("k"),
                bucket.list(),
                bucket.put("k", b""),
                bucket.create("l", b""),
                bucket.update("k", b"", revision=1),
                bucket.delete("k"),
            ):
                with pytest.raises(UnavailableError):
                    await call

    async def test_a_watch_survives_a_loss_and_tells_again(self) -> None:
        async with self.bucket() as (there, bucket):
            kept = await bucket.put("kept", b"k")
            async with watching(bucket) as told:
                await eventually(lambda: told == [Entry("kept", b"k", kept), None])
                await there.lose()
                await there.restore()
                await eventually(lambda: told[2:] == [Entry("kept", b"k", kept), None])
                await succeeds(lambda: bucket.put("new", b"n"), despite=UnavailableError)
                await eventually(lambda: told[-1] is not None and told[-1].key == "new")

    async def test_what_was_acknowledged_outlives_a_loss(self) -> None:
        async with self.bucket() as (there, bucket):
            acknowledged: dict[str, int] = {}

            async def write() -> None:
                for n in range(10_000):
                    acknowledged[f"k{n}"] = await bucket.put(f"k{n}", b"%d" % n)
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as group:
                writing = group.create_task(_until_unavailable(write()))
                await eventually(lambda: len(acknowledged) >= 50)
                await there.lose()
                await eventually(writing.done)
            await there.restore()
            await succeeds(bucket.list, despite=UnavailableError)
            found = {entry.key: entry.revision for entry in await bucket.list()}
            assert acknowledged.items() <= found.items()

    async def test_revisions_grow_even_when_everything_was_lost(self) -> None:
        async with self.bucket() as (there, bucket), watching(bucket) as told:
            before = [await bucket.put("k", b"%d" % n) for n in range(5)]
            await there.wipe()
            await succeeds(lambda: bucket.get("k"), despite=UnavailableError)
            assert await bucket.get("k") is None
            for late in (
                bucket.update("k", b"late", revision=before[-1]),
                bucket.delete("k", revision=before[-1]),
            ):
                with pytest.raises(ConflictError):
                    await late
            after = await bucket.create("k", b"new")
            assert before[-1] < after < 2**53
            held = Entry("k", b"new", after)
            assert await bucket.get("k") == held
            assert await bucket.list() == (held,)
            await eventually(lambda: held in told)
            assert await bucket.update("k", b"newer", revision=after) > after

    async def test_a_watch_tells_what_was_lost_and_does_not_call_it_deleted(self) -> None:
        async with self.bucket() as (there, bucket):
            for key in ("a", "b"):
                await bucket.put(key, key.encode())
            async with watching(bucket) as told:
                await eventually(lambda: told[-1:] == [None])
                await there.wipe()
                await eventually(lambda: told.count(None) == 2)
                again = told[told.index(None) + 1 :]
                assert [(e.key, e.value, e.lost) for e in again if e] == [
                    ("a", None, True),
                    ("b", None, True),
                ]
                assert again[-1] is None
                made = Entry("a", b"a", await bucket.create("a", b"a"))
                await eventually(lambda: told[-1] == made)
                del told[:]
                await there.lose()
                await there.restore()
                # What was told as lost is not told again.
                await eventually(lambda: told == [made, None])

    @contextlib.asynccontextmanager
    async def bucket(self) -> AsyncIterator[tuple[Registries, Bucket]]:
        """An empty bucket."""
        async with self.open() as there:
            yield there, await there.registry.bucket(there.bucket)


@contextlib.asynccontextmanager
async def watching(bucket: Bucket, *, key: str | None = None) -> AsyncIterator[list[Entry | None]]:
    """What a watch tells while the block runs."""
    told: list[Entry | None] = []

    async def watch() -> None:
        async for entry in bucket.watch(key=key):
            told.append(entry)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        yield told
        task.cancel()


async def _outcomes(calls: list[Awaitable[int]]) -> list[bool]:
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, int | ConflictError) for result in results), results
    return [isinstance(result, int) for result in results]


async def _until_unavailable(work: Awaitable[None]) -> None:
    with contextlib.suppress(UnavailableError):
        await work
