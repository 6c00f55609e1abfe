"""The registry: small durable records with compare-and-set, watches and leases (JetStream KV)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. `revision` grows over the whole bucket, also when its store was lost.

    `value` None: the key was deleted. `lost`, told by watches only: nobody deleted it, it went down
    with the store. Whoever still knows the value may go on with it, and create it again.
    """

    key: str
    value: bytes | None
    revision: int
    lost: bool = False


class Bucket(Protocol):
    """One bucket of keys. A key is dot-separated tokens.

    All calls raise UnavailableError when the registry does not answer in time.
    Where a process reads from any replica, what `get` and a watch of one key tell may be ms old.
    """

    async def get(self, key: str) -> Entry | None:
        """The record, or None when absent or deleted."""
        ...

    async def list(self) -> tuple[Entry, ...]:
        """All present records, by key."""
        ...

    async def put(self, key: str, value: bytes) -> int:
        """Write without a condition; returns the revision once it is durable."""
        ...

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        """Write only if absent; ConflictError otherwise. With `ttl_ms` the record then expires,
        as a deletion; the registry may round it up to whole seconds."""
        ...

    async def update(
        self, key: str, value: bytes, *, revision: int, ttl_ms: float | None = None
    ) -> int:
        """Write only if the record's revision still is `revision`; ConflictError otherwise."""
        ...

    async def delete(self, key: str, *, revision: int | None = None) -> int:
        """Delete; with `revision` only if it still is that one, else ConflictError. Returns the
        revision of the deletion once it is durable."""
        ...

    def watch(self, *, key: str | None = None) -> AsyncIterator[Entry | None]:
        """All present records, or the one of `key`, then None once, then each change as it comes.

        Survives reconnects: after one the present records are told again, what vanished meanwhile
        as deleted, or as lost where the store was, then None.
        """
        ...


class Registry(Protocol):
    """Opens buckets, making them where they are missing."""

    async def bucket(
        self, name: str, *, lasting: bool = False, bytes_max: int | None = None
    ) -> Bucket:
        """Open or make bucket `name`.

        In one that is `lasting` no record expires (InvalidInputError for a time to live), and who
        may write one key has no way to reach others. With `bytes_max` all of it has no more than
        so many bytes: the oldest records make room, and no watch is told. Who makes a bucket
        decides which it is.
        """
        ...
