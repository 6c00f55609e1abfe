"""Desired state, written with compare-and-set and followed by watching.

An adapter's revision is assigned here: 1, and one more whenever its weights may have changed (base
model, path, rank or size). Writing the same again changes nothing. A removal first raises the
revision floor, so that no later adapter gets an identity that engines may still hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from axiom_common.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    WireError,
)
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.tenant import DEFAULT_TENANT, Tenant
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import desired, keys

ATTEMPTS_MAX = 8
"""Tries of one write against others who write the same record at the same time."""
ANY_VERSION = 0
"""As `if_version`: the record must be there, at whatever version (versions start at 1)."""

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

    async def adapter(self, name: str) -> Stored[AdapterSpec] | None:
        """One adapter."""
        return await self._get(keys.adapter_key(name), AdapterSpec)

    async def base_model(self, name: str) -> Stored[BaseModelSpec] | None:
        """One base model."""
        return await self._get(keys.base_model_key(name), BaseModelSpec)

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

        InvalidInputError when a base model has this name.
        """
        await self._refuse_taken(keys.base_model_key(wanted.name), "a base model has this name")

        async def attempt() -> Written[AdapterSpec]:
            current = await self.adapter(wanted.name)
            _check_version(current, if_version)
            if current is not None:
                return await self._write(revised(current.value, wanted), current)
            floor, _ = await self._floor()
            return await self._write(replace(wanted, revision=floor + 1), None)

        return await _against_others(attempt)

    async def put_base_model(
        self, wanted: BaseModelSpec, *, if_version: int | None = None
    ) -> Written[BaseModelSpec]:
        """Declare a base model. InvalidInputError when an adapter has this name."""
        await self._refuse_taken(keys.adapter_key(wanted.name), "an adapter has this name")

        async def attempt() -> Written[BaseModelSpec]:
            current = await self.base_model(wanted.name)
            _check_version(current, if_version)
            return await self._write(wanted, current)

        return await _against_others(attempt)

    async def delete_adapter(self, name: str, *, if_version: int | None = None) -> None:
        """Withdraw an adapter; NotFoundError when there is none."""

        async def attempt() -> None:
            current = await self.adapter(name)
            _check_version(current, if_version)
            if current is None:
                raise NotFoundError(f"no adapter {name!r}")
            await _against_others(lambda: self._raise_floor(current.value.revision))
            await self._bucket.delete(keys.adapter_key(name), revision=current.version)

        await _against_others(attempt)

    async def delete_base_model(self, name: str, *, if_version: int | None = None) -> None:
        """Withdraw a base model; NotFoundError when there is none."""

        async def attempt() -> None:
            current = await self.base_model(name)
            _check_version(current, if_version)
            if current is None:
                raise NotFoundError(f"no base model {name!r}")
            await self._bucket.delete(keys.base_model_key(name), revision=current.version)

        await _against_others(attempt)

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

    async def _write(self, value: T, current: Stored[T] | None) -> Written[T]:
        if current is not None and current.value == value:
            return Written(current, Outcome.UNCHANGED)
        key, record = desired.key_of(value), desired.encode(value)
        if current is None:
            version = await self._bucket.create(key, record)
            return Written(Stored(value, version), Outcome.CREATED)
        version = await self._bucket.update(key, record, revision=current.version)
        return Written(Stored(value, version), Outcome.UPDATED)

    async def _refuse_taken(self, key: str, message: str) -> None:
        """Clients name base models and adapters alike, so a name may stand for one thing only."""
        if await self._bucket.get(key) is not None:
            raise InvalidInputError(message, path="name")

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


class DesiredWatch:
    """Follows the desired state; the properties are what is declared now.

    `on_change` is called after each change once everything was told (`synced`). A record that does
    not parse is counted and logged, and the last good one under its key stays in force. So does
    what the registry lost: nobody withdrew it.
    """

    def __init__(self, bucket: Bucket, log: Log, on_change: Callable[[], None]) -> None:
        self._bucket = bucket
        self._log = log
        self._on_change = on_change
        self._by_key: dict[str, desired.Declared] = {}
        self._lost: set[str] = set()
        self._adapters: dict[str, AdapterSpec] = {}
        self._base_models: dict[str, BaseModelSpec] = {}
        self._tenants: dict[str, Tenant] = {DEFAULT_TENANT.name: DEFAULT_TENANT}
        self._synced = asyncio.Event()
        self.invalid = 0

    @property
    def synced(self) -> bool:
        """Whether everything declared was told once."""
        return self._synced.is_set()

    @property
    def adapters(self) -> Mapping[str, AdapterSpec]:
        """Declared adapters by name; a live view."""
        return self._adapters

    @property
    def base_models(self) -> Mapping[str, BaseModelSpec]:
        """Declared base models by name; a live view."""
        return self._base_models

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Tenants by name, `default` always among them; a live view."""
        return self._tenants

    @property
    def lost(self) -> tuple[desired.Declared, ...]:
        """What the registry lost and nobody has declared again: in force here, unknown there."""
        return tuple(self._by_key[key] for key in sorted(self._lost))

    async def wait_synced(self) -> None:
        """Wait until everything declared was told once."""
        await self._synced.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        async for entry in self._bucket.watch():
            if entry is None:
                self._synced.set()
                self._on_change()
            elif self._apply(entry) and self.synced:
                self._on_change()

    def _apply(self, entry: Entry) -> bool:
        """Take over one record; whether it changed anything."""
        if entry.lost:
            self._lost |= {entry.key} & self._by_key.keys()
            return False
        self._lost.discard(entry.key)
        if entry.value is None:
            return self._drop(self._by_key.pop(entry.key, None))
        try:
            value = desired.decode(entry.key, entry.value)
        except WireError as error:
            self.invalid += 1
            self._log.warning(
                "desired record does not parse",
                once_a_minute=f"desired {entry.key}",
                key=entry.key,
                cause=str(error),
            )
            return False
        if value is None or self._by_key.get(entry.key) == value:
            return False
        self._by_key[entry.key] = value
        if isinstance(value, AdapterSpec):
            self._adapters[value.name] = value
        elif isinstance(value, BaseModelSpec):
            self._base_models[value.name] = value
        else:
            self._tenants[value.name] = value
        return True

    def _drop(self, value: desired.Declared | None) -> bool:
        if value is None:
            return False
        if isinstance(value, AdapterSpec):
            del self._adapters[value.name]
        elif isinstance(value, BaseModelSpec):
            del self._base_models[value.name]
        else:
            del self._tenants[value.name]
            self._tenants.setdefault(DEFAULT_TENANT.name, DEFAULT_TENANT)
        return True


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
    if current is None:
        raise PreconditionError("there is no such record")
    if if_version not in (ANY_VERSION, current.version):
        raise PreconditionError(f"the record is at version {current.version}")


def _parsed(entry: Entry) -> desired.Declared | None:
    try:
        return desired.decode(entry.key, entry.value or b"")
    except WireError:
        return None
