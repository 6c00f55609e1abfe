"""Desired state, written with compare-and-set.

What exists is changed only by who names the version that they saw. An adapter's revision is
assigned here: 1, and one more whenever its weights may have changed (base model, path, rank or
size). Writing the same again changes nothing. A removal first raises the revision floor, so that no
later adapter gets an identity that engines may still hold.

The writers of one process take turns at a name. Those of other processes are met by compare-and-set
on the record, and where that does not reach (the floor, the name's other kind) by looking again
after a creation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from axiom_common.errors import (
    ConflictError,
    NameTakenError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    WireError,
)
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.wire import desired, keys
from axiom_common.wire.desired import Declared, Stored, T

ATTEMPTS_MAX = 16
"""Tries of one write against other processes that write the same record at the same time."""
TURN_TIMEOUT_S = 5.0
"""How long a write waits for others of this process at the same name."""
ANY_VERSION = -1
"""As `if_version`: the record must be there, at whatever version."""
ABSENT = -2
"""As `if_version`: the record must not be there."""
WHATEVER = -4
"""As `if_version`: what stands there, if anything, may be changed."""
IfVersion = int | frozenset[int] | None
"""On what a write depends: that the record is at this version, or at one of these, or what one of
the names above says. None: on nothing, and what exists is not changed."""
NO_VERSION = 0
"""Of a record that a dry run would have created."""

R = TypeVar("R")
_OTHER_KIND: dict[type[Declared], tuple[type[Declared], str]] = {
    AdapterSpec: (BaseModelSpec, "a base model"),
    BaseModelSpec: (AdapterSpec, "an adapter"),
}
"""Clients name base models and adapters alike, so a name may stand for one thing only."""


class Outcome(StrEnum):
    """What a write did."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """A record as it stands after a write."""

    stored: Stored[T]
    outcome: Outcome


def revised(current: AdapterSpec, wanted: AdapterSpec) -> AdapterSpec:
    """`wanted` with the revision that it gets as the successor of `current`."""
    same_weights = current == replace(wanted, revision=current.revision, tenant=current.tenant)
    return replace(wanted, revision=current.revision + (not same_weights))


class DesiredStore:
    """Reads and writes what people declare. A write returns once it is durable.

    All calls raise UnavailableError when the registry is away and WireError when a record that they
    need does not parse. Writes raise PreconditionError when the record is not at `if_version`,
    PreconditionRequiredError when they would change what exists without one, and ConflictError when
    others kept changing it. With `dry_run` all is checked and nothing written.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def get(self, kind: type[T], name: str) -> Stored[T] | None:
        """One value; None when it is not declared."""
        key = desired.key_for(kind, name)
        entry = await self._bucket.get(key)
        if entry is None or entry.value is None:
            return None
        value = desired.decode(key, entry.value)
        if not isinstance(value, kind):
            raise WireError(f"{key!r} holds no {kind.__name__}")
        return Stored(value, entry.revision)

    async def all(self, kind: type[T]) -> tuple[Stored[T], ...]:
        """All values of a kind by name; records that do not parse are left out."""
        found = []
        for entry in await self._bucket.list():
            value = _parsed(entry)
            if isinstance(value, kind):
                found.append(Stored(value, entry.revision))
        return tuple(sorted(found, key=lambda stored: stored.value.name))

    async def put(
        self, wanted: T, *, if_version: IfVersion = None, dry_run: bool = False
    ) -> Written[T]:
        """Declare a value. The revision of an adapter is assigned here; the one of `wanted` is not
        looked at. NameTakenError when an adapter and a base model would share a name."""

        def as_wanted(_: T | None) -> T:
            return wanted

        return await self.change(
            type(wanted), wanted.name, as_wanted, if_version=if_version, dry_run=dry_run
        )

    async def change(
        self,
        kind: type[T],
        name: str,
        edit: Callable[[T | None], T],
        *,
        if_version: IfVersion = None,
        dry_run: bool = False,
    ) -> Written[T]:
        """Declare what `edit` makes of the value that stands now. It is pure, keeps the name, and
        what it raises is raised."""

        async def attempt() -> Written[T]:
            await self._refuse_taken(kind, name)
            current = await self.get(kind, name)
            _check_version(current, if_version)
            wanted = edit(current.value if current is not None else None)
            if current is not None:
                return await self._update(wanted, current, if_version, dry_run=dry_run)
            return Written(await self._create(wanted, dry_run=dry_run), Outcome.CREATED)

        return await self._in_turn(name, attempt)

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        if_version: IfVersion = None,
        dry_run: bool = False,
    ) -> int:
        """Withdraw a value; NotFoundError when there is none. The registry's revision after it."""

        async def attempt() -> int:
            current = await self.get(kind, name)
            _check_version(current, if_version)
            if current is None:
                raise NotFoundError(f"{name!r} is not declared")
            return current.version if dry_run else await self._remove(current)

        return await self._in_turn(name, attempt)

    async def restore(self, declared: Iterable[Declared], *, revision_floor: int) -> None:
        """Create again what went down with the registry's store; what stands by now stays."""
        await _against_others(lambda: self._raise_floor(revision_floor))
        for value in declared:
            with contextlib.suppress(ConflictError):
                await self._bucket.create(desired.key_of(value), desired.encode(value))

    async def _create(self, wanted: T, *, dry_run: bool) -> Stored[T]:
        value = await self._above_floor(_first(wanted))
        if dry_run:
            return Stored(value, NO_VERSION)
        version = await self._bucket.create(desired.key_of(value), desired.encode(value))
        stored = Stored(value, version)
        try:
            await self._refuse_taken(type(value), value.name)
        except NameTakenError:
            # Of two that are created at the same time each may see the other; at most one stays.
            await self._remove(stored)
            raise
        again = await self._above_floor(value)
        if again != value:
            # A removal since the first look may have been of this very identity.
            version = await self._bucket.update(
                desired.key_of(again), desired.encode(again), revision=version
            )
        return Stored(again, version)

    async def _above_floor(self, value: T) -> T:
        """The value with a revision that no adapter had which was removed."""
        if not isinstance(value, AdapterSpec):
            return value
        floor, _ = await self._floor()
        return replace(value, revision=max(value.revision, floor + 1))

    async def _update(
        self, wanted: T, current: Stored[T], if_version: IfVersion, *, dry_run: bool
    ) -> Written[T]:
        value = wanted
        if isinstance(wanted, AdapterSpec) and isinstance(current.value, AdapterSpec):
            value = revised(current.value, wanted)
        if current.value == value:
            return Written(current, Outcome.UNCHANGED)
        if if_version is None:
            raise PreconditionRequiredError(
                f"{value.name!r} is there, at version {current.version}: to change it, say in "
                "If-Match which version you saw"
            )
        if dry_run:
            return Written(Stored(value, current.version), Outcome.UPDATED)
        version = await self._bucket.update(
            desired.key_of(value), desired.encode(value), revision=current.version
        )
        return Written(Stored(value, version), Outcome.UPDATED)

    async def _remove(self, stored: Stored[T]) -> int:
        value = stored.value
        if isinstance(value, AdapterSpec):
            revision = value.revision
            await _against_others(lambda: self._raise_floor(revision))
        return await self._bucket.delete(desired.key_of(value), revision=stored.version)

    async def _refuse_taken(self, kind: type[Declared], name: str) -> None:
        if kind in _OTHER_KIND:
            other, what = _OTHER_KIND[kind]
            if await self._bucket.get(desired.key_for(other, name)) is not None:
                raise NameTakenError(f"{what} has the name {name!r}", path="name")

    async def _in_turn(self, name: str, attempt: Callable[[], Awaitable[R]]) -> R:
        turn = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await turn.acquire()
        except TimeoutError as error:
            raise ConflictError(f"others keep writing {name!r}") from error
        try:
            return await _against_others(attempt)
        finally:
            turn.release()

    async def _floor(self) -> tuple[int, int]:
        """The revision floor and its record's version; (0, 0) while nothing was ever removed."""
        entry = await self._bucket.get(keys.ADAPTER_REVISION_FLOOR)
        if entry is None or entry.value is None:
            return 0, 0
        return desired.decode_floor(entry.value), entry.revision

    async def _raise_floor(self, revision: int) -> None:
        floor, version = await self._floor()
        if floor >= revision:
            return
        key, record = keys.ADAPTER_REVISION_FLOOR, desired.encode_floor(revision)
        if version:
            await self._bucket.update(key, record, revision=version)
        else:
            await self._bucket.create(key, record)


async def _against_others(attempt: Callable[[], Awaitable[R]]) -> R:
    """Repeat a read and compare-and-set while others change the record in between; bounded."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await attempt()
        except ConflictError:
            continue
    return await attempt()


def _check_version(current: Stored[T] | None, if_version: IfVersion) -> None:
    if if_version in (None, WHATEVER):
        return
    if if_version == ABSENT:
        if current is not None:
            raise PreconditionError(f"the record is there, at version {current.version}")
    elif current is None:
        raise PreconditionError("there is no such record")
    elif if_version != ANY_VERSION and current.version not in _versions(if_version):
        raise PreconditionError(f"the record is at version {current.version}")


def _versions(if_version: IfVersion) -> frozenset[int | None]:
    return if_version if isinstance(if_version, frozenset) else frozenset({if_version})


def _first(wanted: T) -> T:
    return replace(wanted, revision=1) if isinstance(wanted, AdapterSpec) else wanted


def _parsed(entry: Entry) -> Declared | None:
    try:
        return desired.decode(entry.key, entry.value or b"")
    except WireError:
        return None
