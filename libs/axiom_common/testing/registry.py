"""The registry in memory, with the semantics of JetStream KV."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from axiom_common.drivers.watch_progress import WatchProgress
from axiom_common.errors import ConflictError, InvalidInputError, UnavailableError
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Entry
from axiom_common.runtime.lifecycle import Owner

WATCH_PENDING_MAX = 4096


class FakeRegistry:
    """A `Registry`. `disconnect`, `reconnect` and `wipe` are the faults; only `wipe` loses records.

    `owner` runs the expiry of records with a time to live.
    """

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self._buckets: dict[str, FakeBucket] = {}
        self._up = asyncio.Event()
        self._up.set()

    async def bucket(
        self, name: str, *, lasting: bool = False, bytes_max: int | None = None
    ) -> FakeBucket:
        """Open or make bucket `name`."""
        if name not in self._buckets:
            self._buckets[name] = FakeBucket(
                name, self._owner, self._clock, self._up, lasting=lasting, bytes_max=bytes_max
            )
        return self._buckets[name]

    def disconnect(self) -> None:
        """Lose the server: all calls fail, watches wait."""
        self._up.clear()

    def reconnect(self) -> None:
        """Come back: watches tell again."""
        self._up.set()
        for bucket in self._buckets.values():
            bucket.tell_again()

    def wipe(self) -> None:
        """Lose every record, as a server whose disk was lost."""
        for bucket in self._buckets.values():
            bucket.wipe()


class FakeBucket:
    """A `Bucket`."""

    def __init__(
        self,
        name: str,
        owner: Owner,
        clock: Clock,
        up: asyncio.Event,
        *,
        lasting: bool,
        bytes_max: int | None,
    ) -> None:
        self._name = name
        self._owner = owner
        self._clock = clock
        self._up = up
        self._lasting = lasting
        self._bytes_max = bytes_max
        self._revision = 0
        self._life = 0
        self._entries: dict[str, Entry] = {}
        self._watches: list[asyncio.Queue[Entry | None]] = []

    async def get(self, key: str) -> Entry | None:
        """The record, or None."""
        self._check_up()
        return self._entries.get(key)

    async def list(self) -> tuple[Entry, ...]:
        """All present records, by key."""
        self._check_up()
        return tuple(self._entries[key] for key in sorted(self._entries))

    async def put(self, key: str, value: bytes) -> int:
        """Write without a condition."""
        self._check_up()
        return self._write(key, value)

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        """Write only if absent."""
        self._check_up()
        if key in self._entries:
            raise ConflictError(f"{self._name}/{key} is there")
        return self._write(key, value, ttl_ms)

    async def update(
        self, key: str, value: bytes, *, revision: int, ttl_ms: float | None = None
    ) -> int:
        """Write only on `revision`."""
        self._check_up()
        self._check_revision(key, revision)
        return self._write(key, value, ttl_ms)

    async def delete(self, key: str, *, revision: int | None = None) -> int:
        """Delete; deleting what is not there is no error without `revision`."""
        self._check_up()
        if revision is not None:
            self._check_revision(key, revision)
        return self._write(key, None)

    async def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
        """Present records, None, then changes; again after each reconnect and wipe."""
        progress = WatchProgress()
        while True:
            await self._up.wait()
            queue: asyncio.Queue[Entry | None] = asyncio.Queue()
            self._watches.append(queue)
            present = [self._entries[k] for k in sorted(self._entries) if key in (None, k)]
            progress.begin(self._life, self._revision)
            try:
                for entry in present:
                    progress.take(entry)
                    yield entry
                for gone in progress.end_of_present():
                    yield gone
                yield None
                while (change := await queue.get()) is not None:
                    await self._up.wait()
                    if key in (None, change.key) and progress.take(change):
                        yield change
            finally:
                self._watches.remove(queue)

    def tell_again(self) -> None:
        """Make every watch start over."""
        for queue in self._watches:
            queue.put_nowait(None)

    def wipe(self) -> None:
        """Lose every record. Revisions go on; those from before match nothing any more."""
        self._entries.clear()
        self._life += 1
        self.tell_again()

    def _check_up(self) -> None:
        if not self._up.is_set():
            raise UnavailableError("the registry is away")

    def _check_revision(self, key: str, revision: int) -> None:
        entry = self._entries.get(key)
        if entry is None or entry.revision != revision:
            raise ConflictError(f"{self._name}/{key} is not at revision {revision}")

    def _write(self, key: str, value: bytes | None, ttl_ms: float | None = None) -> int:
        if ttl_ms is not None and self._lasting:
            raise InvalidInputError(f"bucket {self._name} lasts: no record of it expires")
        self._revision += 1
        entry = Entry(key, value, self._revision)
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
            self._make_room()
        for queue in self._watches:
            queue.put_nowait(entry)
            if queue.qsize() > WATCH_PENDING_MAX:
                while queue.qsize():
                    queue.get_nowait()
                queue.put_nowait(None)
        if ttl_ms is not None:
            self._owner.create_task(self._expire(entry, ttl_ms), name=f"expire {key}")
        return self._revision

    def _make_room(self) -> None:
        """The oldest records go, and no watch is told."""
        if self._bytes_max is None:
            return
        by_age = sorted(self._entries.values(), key=lambda entry: entry.revision)
        size = sum(len(entry.key) + len(entry.value or b"") for entry in by_age)
        for entry in by_age:
            if size <= self._bytes_max:
                return
            del self._entries[entry.key]
            size -= len(entry.key) + len(entry.value or b"")

    async def _expire(self, entry: Entry, ttl_ms: float) -> None:
        await self._clock.sleep_ms(ttl_ms)
        if self._entries.get(entry.key) is entry:
            self._write(entry.key, None)
