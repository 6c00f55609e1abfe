"""Desired state, written with compare-and-set.

An adapter's revision is assigned here: 1, and one more whenever its weights may have changed (base
model, path, rank or size). Writing the same again changes nothing. A removal first raises the
revision floor, so that no later adapter gets an identity that engines may still hold.

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
    WireError,
)
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.wire import desired, keys

ATTEMPTS_MAX = 16
"""Tries of one write against other processes that write the same record at the same time."""
TURN_TIMEOUT_S = 5.0
"""How long a write waits for others of this process at the same name."""
ANY_VERSION = -1
"""As `if_version`: the record must be there, at whatever version."""
ABSENT = -2
"""As `if_version`: the record must not be there."""

T = TypeVar("T", AdapterSpec, BaseModelSpec)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A declared value and the registry's version of its record."""

    value: T
    version: int


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
    """Reads and writes declared adapters and base models. A write returns once it is durable.

    All calls raise UnavailableError when the registry is away and WireError when a record that they
    need does not parse. Writes raise PreconditionError when the record is not at `if_version`, and
    ConflictError when others kept changing it.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def adapter(self, name: str) -> Stored[AdapterSpec] | None:
        """One adapter."""
        return await self._get(keys.adapter_key(name), AdapterSpec)

    async def base_model(self, name: str) -> Stored[BaseModelSpec] | None:
        """One base model."""
        return await self._get(keys.base_model_key(name), BaseModelSpec)

    async def has_base_model(self, name: str) -> bool:
        """Whether a base model has this name."""
        return await self._bucket.get(keys.base_model_key(name)) is not None

    async def adapters(self) -> tuple[Stored[AdapterSpec], ...]:
        """All adapters by name; records that do not parse are left out."""
        return await self._list(AdapterSpec)

    async def base_models(self) -> tuple[Stored[BaseModelSpec], ...]:
        """All base models by name; records that do not parse are left out."""
        return await self._list(BaseModelSpec)

    async def put_adapter(
        self, wanted: AdapterSpec, *, if_version: int | None = None
    ) -> Written[AdapterSpec]:
        """Declare an adapter. Its revision is assigned here; the one of `wanted` is not looked at.

        NameTakenError when a base model has this name.
        """

        async def attempt() -> Written[AdapterSpec]:
            await self._refuse_taken(wanted)
            current = await self.adapter(wanted.name)
            _check_version(current, if_version)
            if current is not None:
                return await self._update(revised(current.value, wanted), current)
            floor, _ = await self._floor()
            stored = await self._create(replace(wanted, revision=floor + 1))
            floor, _ = await self._floor()
            if floor >= stored.value.revision:
                # A removal since the first look may have been of this very identity.
                again = replace(wanted, revision=floor + 1)
                stored = (await self._update(again, stored)).stored
            return Written(stored, Outcome.CREATED)

        return await self._in_turn(wanted.name, attempt)

    async def put_base_model(
        self, wanted: BaseModelSpec, *, if_version: int | None = None
    ) -> Written[BaseModelSpec]:
        """Declare a base model. NameTakenError when an adapter has this name."""

        async def attempt() -> Written[BaseModelSpec]:
            await self._refuse_taken(wanted)
            current = await self.base_model(wanted.name)
            _check_version(current, if_version)
            if current is not None:
                return await self._update(wanted, current)
            return Written(await self._create(wanted), Outcome.CREATED)

        return await self._in_turn(wanted.name, attempt)

    async def delete_adapter(self, name: str, *, if_version: int | None = None) -> None:
        """Withdraw an adapter; NotFoundError when there is none."""
        await self._delete(name, lambda: self.adapter(name), if_version)

    async def delete_base_model(self, name: str, *, if_version: int | None = None) -> None:
        """Withdraw a base model; NotFoundError when there is none."""
        await self._delete(name, lambda: self.base_model(name), if_version)

    async def restore(self, declared: Iterable[desired.Declared], *, revision_floor: int) -> None:
        """Create again what went down with the registry's store; what stands by now stays."""
        await _against_others(lambda: self._raise_floor(revision_floor))
        for value in declared:
            with contextlib.suppress(ConflictError):
                await self._bucket.create(desired.key_of(value), desired.encode(value))

    async def _get(self, key: str, kind: type[T]) -> Stored[T] | None:
        entry = await self._bucket.get(key)
        if entry is None or entry.value is None:
            return None
        value = desired.decode(key, entry.value)
        if not isinstance(value, kind):
            raise WireError(f"{key!r} holds no {kind.__name__}")
        return Stored(value, entry.revision)

    async def _list(self, kind: type[T]) -> tuple[Stored[T], ...]:
        found = []
        for entry in await self._bucket.list():
            value = _parsed(entry)
            if isinstance(value, kind):
                found.append(Stored(value, entry.revision))
        return tuple(sorted(found, key=lambda stored: stored.value.name))

    async def _create(self, value: T) -> Stored[T]:
        version = await self._bucket.create(desired.key_of(value), desired.encode(value))
        stored = Stored(value, version)
        try:
            await self._refuse_taken(value)
        except NameTakenError:
            await self._remove(stored)
            raise
        return stored

    async def _update(self, value: T, current: Stored[T]) -> Written[T]:
        if current.value == value:
            return Written(current, Outcome.UNCHANGED)
        version = await self._bucket.update(
            desired.key_of(value), desired.encode(value), revision=current.version
        )
        return Written(Stored(value, version), Outcome.UPDATED)

    async def _delete(
        self, name: str, read: Callable[[], Awaitable[Stored[T] | None]], if_version: int | None
    ) -> None:
        async def attempt() -> None:
            current = await read()
            _check_version(current, if_version)
            if current is None:
                raise NotFoundError(f"{name!r} is not declared")
            await self._remove(current)

        await self._in_turn(name, attempt)

    async def _remove(self, stored: Stored[T]) -> None:
        value = stored.value
        if isinstance(value, AdapterSpec):
            revision = value.revision
            await _against_others(lambda: self._raise_floor(revision))
        await self._bucket.delete(desired.key_of(value), revision=stored.version)

    async def _refuse_taken(self, value: AdapterSpec | BaseModelSpec) -> None:
        """Clients name base models and adapters alike, so a name may stand for one thing only.

        Of two that are created at the same time each may see the other; at most one stays.
        """
        if isinstance(value, AdapterSpec):
            key, kind = keys.base_model_key(value.name), "a base model"
        else:
            key, kind = keys.adapter_key(value.name), "an adapter"
        if await self._bucket.get(key) is not None:
            raise NameTakenError(f"{kind} has the name {value.name!r}", path="name")

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


def _check_version(current: Stored[T] | None, if_version: int | None) -> None:
    if if_version is None:
        return
    if if_version == ABSENT:
        if current is not None:
            raise PreconditionError(f"the record is there, at version {current.version}")
    elif current is None:
        raise PreconditionError("there is no such record")
    elif if_version not in (ANY_VERSION, current.version):
        raise PreconditionError(f"the record is at version {current.version}")


def _parsed(entry: Entry) -> desired.Declared | None:
    try:
        return desired.decode(entry.key, entry.value or b"")
    except WireError:
        return None
