"""Desired state: who gets which revision, and following it through the registry's faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import (
    AxiomError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    UnavailableError,
    WireError,
)
from axiom_common.model.access import ApiKey
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.tenant import DEFAULT_TENANT, Tenant
from axiom_common.runtime.desired_store import (
    ABSENT,
    ANY_VERSION,
    ATTEMPTS_MAX,
    NO_VERSION,
    DesiredStore,
    Outcome,
    Written,
    revised,
)
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.logging import Log
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.wire import desired, keys
from axiom_common.wire.desired import Stored, T

SPEC = AdapterSpec(name="acme/sql", base_model="llama", revision=1, path="/p", rank=16)


@asynccontextmanager
async def stored() -> AsyncIterator[tuple[FakeRegistry, FakeBucket, DesiredStore]]:
    async with task_owner() as owner:
        registry = FakeRegistry(owner, SystemClock())
        bucket = await registry.bucket(keys.DESIRED_BUCKET)
        yield registry, bucket, DesiredStore(bucket)


async def declared(store: DesiredStore, wanted: T) -> Written[T]:
    """Declare a value whatever stands under its name."""
    try:
        return await store.put(wanted)
    except PreconditionRequiredError:
        return await store.put(wanted, if_version=ANY_VERSION)


@pytest.mark.parametrize(
    ("change", "revision"),
    [
        ({}, 5),
        ({"revision": 99}, 5),
        ({"tenant": "acme"}, 5),
        ({"path": "/new"}, 6),
        ({"rank": 8}, 6),
        ({"size_bytes": 1}, 6),
        ({"base_model": "qwen"}, 6),
    ],
)
def test_a_revision_counts_changes_of_the_weights(change: dict[str, Any], revision: int) -> None:
    current = replace(SPEC, revision=5)
    wanted = replace(SPEC, **change)
    assert revised(current, wanted) == replace(wanted, revision=revision)


async def test_writing_the_same_again_writes_nothing() -> None:
    async with stored() as (_, bucket, store):
        first = await store.put(SPEC)
        again = await store.put(replace(SPEC, revision=77))
        assert (first.outcome, again.outcome) == (Outcome.CREATED, Outcome.UNCHANGED)
        assert again.stored == first.stored
        entry = await bucket.get(desired.key_for(AdapterSpec, SPEC.name))
        assert entry is not None
        assert entry.revision == first.stored.version


async def test_no_identity_ever_stands_for_two_sets_of_weights() -> None:
    """Names "a" and "b" through changes and removals; the path stands for the weights."""
    async with stored() as (_, _, store):
        weights: dict[str, str] = {}
        steps = ["a1", "a2", "b1", "-a", "a3", "b2", "-b", "b3", "-a", "a4", "b4", "b4", "-b", "a5"]
        for step in steps:
            if step.startswith("-"):
                await store.delete(AdapterSpec, step[1:])
                continue
            spec = replace(SPEC, name=step[0], path=step)
            given = (await declared(store, spec)).stored.value
            assert weights.setdefault(given.engine_name, step) == step
        assert len(weights) == len({step for step in steps if not step.startswith("-")})


async def test_a_dry_run_checks_all_and_writes_nothing() -> None:
    async with stored() as (_, bucket, store):
        would = await store.put(SPEC, dry_run=True)
        assert (would.outcome, would.stored) == (Outcome.CREATED, Stored(SPEC, NO_VERSION))
        assert await bucket.list() == ()
        first = await store.put(SPEC)
        before = await bucket.list()
        changed = await store.put(replace(SPEC, rank=8), if_version=ANY_VERSION, dry_run=True)
        assert (changed.outcome, changed.stored.value.revision) == (Outcome.UPDATED, 2)
        assert (await store.put(SPEC, dry_run=True)).outcome is Outcome.UNCHANGED
        await store.delete(AdapterSpec, SPEC.name, dry_run=True)
        for call in (
            store.put(replace(SPEC, rank=8), dry_run=True),
            store.put(replace(SPEC, rank=8), if_version=ABSENT, dry_run=True),
            store.put(BaseModelSpec(name=SPEC.name), dry_run=True),
            store.delete(AdapterSpec, "nope", dry_run=True),
            store.delete(AdapterSpec, SPEC.name, if_version=first.stored.version + 1, dry_run=True),
        ):
            with pytest.raises(AxiomError):
                await call
        assert await bucket.list() == before


async def test_versions_guard_writes() -> None:
    async with stored() as (_, _, store):
        for version in (ANY_VERSION, 3):
            with pytest.raises(PreconditionError):
                await store.put(SPEC, if_version=version)
        first = (await store.put(SPEC)).stored
        second = (await store.put(replace(SPEC, rank=8), if_version=first.version)).stored
        with pytest.raises(PreconditionError):
            await store.delete(AdapterSpec, SPEC.name, if_version=first.version)
        assert await store.get(AdapterSpec, SPEC.name) == second
        with pytest.raises(PreconditionError):
            await store.put(SPEC, if_version=ABSENT)
        await store.delete(AdapterSpec, SPEC.name, if_version=ANY_VERSION)
        assert await store.get(AdapterSpec, SPEC.name) is None
        created = await store.put(SPEC, if_version=ABSENT)
        assert created.outcome is Outcome.CREATED


@dataclass
class Rival:
    """A bucket in which somebody else gets in before each of the first writes."""

    bucket: FakeBucket
    wins: int
    seen: list[str] = field(default_factory=list)

    async def get(self, key: str) -> Any:
        return await self.bucket.get(key)

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        await self._interfere(key)
        return await self.bucket.create(key, value, ttl_ms=ttl_ms)

    async def update(
        self, key: str, value: bytes, *, revision: int, ttl_ms: float | None = None
    ) -> int:
        await self._interfere(key)
        return await self.bucket.update(key, value, revision=revision, ttl_ms=ttl_ms)

    async def _interfere(self, key: str) -> None:
        if len(self.seen) < self.wins:
            self.seen.append(key)
            other = replace(SPEC, path=f"/{len(self.seen)}")
            await declared(DesiredStore(self.bucket), other)


async def test_a_write_is_repeated_on_what_others_wrote_first() -> None:
    async with stored() as (_, bucket, _):
        await DesiredStore(bucket).put(replace(SPEC, rank=8))
        rival = Rival(bucket, wins=3)
        written = await DesiredStore(rival).put(SPEC, if_version=ANY_VERSION)
        assert (written.outcome, written.stored.value.revision) == (Outcome.UPDATED, 5)


async def test_who_meant_to_create_does_not_replace_what_another_created_first() -> None:
    async with stored() as (_, bucket, store):
        with pytest.raises(PreconditionRequiredError):
            await DesiredStore(Rival(bucket, wins=1)).put(SPEC)
        found = await store.get(AdapterSpec, SPEC.name)
        assert found is not None
        assert found.value.path == "/1"


async def test_a_write_gives_up_after_its_bound() -> None:
    async with stored() as (_, bucket, _):
        await DesiredStore(bucket).put(replace(SPEC, rank=8))
        rival = Rival(bucket, wins=ATTEMPTS_MAX + 1)
        with pytest.raises(ConflictError):
            await DesiredStore(rival).put(SPEC, if_version=ANY_VERSION)
        assert len(rival.seen) == ATTEMPTS_MAX


async def test_what_is_not_there_can_not_be_withdrawn() -> None:
    async with stored() as (_, _, store):
        with pytest.raises(NotFoundError):
            await store.delete(AdapterSpec, "nope")
        with pytest.raises(NotFoundError):
            await store.delete(BaseModelSpec, "nope")


async def test_a_name_stands_for_one_thing() -> None:
    async with stored() as (_, _, store):
        await store.put(BaseModelSpec(name="x"))
        with pytest.raises(NameTakenError):
            await store.put(replace(SPEC, name="x"))
        await store.put(SPEC)
        with pytest.raises(NameTakenError):
            await store.put(BaseModelSpec(name=SPEC.name))


class Patient:
    """A bucket whose every call lets others get in first."""

    def __init__(self, bucket: FakeBucket) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return await getattr(self._bucket, name)(*args, **kwargs)

        return call


@pytest.mark.parametrize("processes", [1, 2])
async def test_of_two_that_take_a_name_at_once_at_most_one_stays(processes: int) -> None:
    async with stored() as (_, bucket, reader):
        stores = [DesiredStore(Patient(bucket)) for _ in range(processes)]
        results = await asyncio.gather(
            stores[0].put(replace(SPEC, name="x")),
            stores[-1].put(BaseModelSpec(name="x")),
            return_exceptions=True,
        )
        kept = [r.stored for r in results if not isinstance(r, BaseException)]
        assert {type(r) for r in results if isinstance(r, BaseException)} == {NameTakenError}
        stands = await reader.get(AdapterSpec, "x"), await reader.get(BaseModelSpec, "x")
        assert kept == [found for found in stands if found is not None]
        assert len(kept) <= 1
        if processes == 1:
            assert kept


async def test_writers_of_one_process_take_turns_and_all_get_through() -> None:
    async with stored() as (_, bucket, _):
        store = DesiredStore(Patient(bucket))
        count = 4 * ATTEMPTS_MAX
        written = await asyncio.gather(
            *(
                store.put(replace(SPEC, path=f"/{n}"), if_version=ANY_VERSION if n else ABSENT)
                for n in range(count)
            )
        )
        assert [w.stored.value.revision for w in written] == list(range(1, count + 1))
        assert not store._turns


async def test_a_writer_waits_a_bounded_time_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axiom_common.runtime.desired_store.TURN_TIMEOUT_S", 0.01)
    async with stored() as (_, _, store):
        async with store._turns.setdefault(SPEC.name, asyncio.Lock()):
            with pytest.raises(ConflictError):
                await store.put(SPEC)
        assert (await store.put(SPEC)).outcome is Outcome.CREATED


class Beaten(Patient):
    """A bucket in which another process declares and withdraws a name just before its creation."""

    async def create(self, key: str, value: bytes, *, ttl_ms: float | None = None) -> int:
        if key == desired.key_for(AdapterSpec, SPEC.name):
            other = DesiredStore(self._bucket)
            await declared(other, replace(SPEC, path="/other"))
            await declared(other, replace(SPEC, path="/yet-another"))
            await other.delete(AdapterSpec, SPEC.name)
        return await self._bucket.create(key, value, ttl_ms=ttl_ms)


async def test_an_identity_that_came_and_went_during_a_creation_is_not_given_again() -> None:
    async with stored() as (_, bucket, store):
        written = await DesiredStore(Beaten(bucket)).put(SPEC)
        assert (written.outcome, written.stored.value.revision) == (Outcome.CREATED, 3)
        assert await store.get(AdapterSpec, SPEC.name) == written.stored


async def test_what_a_store_lost_is_declared_again_unless_somebody_was_faster() -> None:
    async with followed() as it:
        for name in ("b", "c", "d"):
            await it.store.put(replace(SPEC, name=name))
        await declared(it.store, replace(SPEC, name="c", rank=8))
        await it.store.delete(AdapterSpec, "c")
        await eventually(lambda: it.watch.revision_floor == 2)
        it.registry.wipe()
        await eventually(lambda: it.watch.reset and len(it.watch.lost) == 3)
        await it.store.put(BaseModelSpec(name="new"))
        await it.store.put(replace(SPEC, name="d", path="/declared-anew"))
        await it.store.restore(it.watch.lost, revision_floor=it.watch.revision_floor)
        await eventually(lambda: not it.watch.reset)
        assert {s.value.name: s.value.path for s in await it.store.all(AdapterSpec)} == {
            SPEC.name: SPEC.path,
            "b": SPEC.path,
            "d": "/declared-anew",
        }
        assert (await it.store.put(replace(SPEC, name="e"))).stored.value.revision == 3


async def test_a_store_that_lost_only_its_floor_gets_it_back() -> None:
    async with followed() as it:
        await it.store.delete(AdapterSpec, SPEC.name)
        await eventually(lambda: it.watch.revision_floor == 1 and not it.watch.adapters)
        it.registry.wipe()
        await eventually(lambda: it.watch.reset)
        assert it.watch.lost == ()
        await it.store.restore(it.watch.lost, revision_floor=it.watch.revision_floor)
        await eventually(lambda: not it.watch.reset)
        assert (await it.store.put(SPEC)).stored.value.revision == 2


async def test_a_record_that_does_not_parse_is_no_adapter_and_no_reason_to_guess() -> None:
    async with stored() as (_, bucket, store):
        await store.put(SPEC)
        await bucket.put(desired.key_for(AdapterSpec, "broken"), b"{}")
        assert [s.value.name for s in await store.all(AdapterSpec)] == [SPEC.name]
        with pytest.raises(WireError):
            await store.put(replace(SPEC, name="broken"))


async def test_all_calls_say_that_the_registry_is_away() -> None:
    async with stored() as (registry, _, store):
        registry.disconnect()
        for call in (
            store.put(SPEC),
            store.delete(AdapterSpec, SPEC.name),
            store.all(AdapterSpec),
            store.get(BaseModelSpec, "x"),
        ):
            with pytest.raises(UnavailableError):
                await call


@dataclass
class Followed:
    watch: DesiredWatch
    store: DesiredStore
    bucket: FakeBucket
    registry: FakeRegistry
    changes: list[int]


@asynccontextmanager
async def followed() -> AsyncIterator[Followed]:
    async with task_owner() as owner:
        registry = FakeRegistry(owner, SystemClock())
        bucket = await registry.bucket(keys.DESIRED_BUCKET)
        changes: list[int] = []
        watch = DesiredWatch(
            bucket, Log("test", SystemClock()), lambda: changes.append(len(watch.adapters))
        )
        await DesiredStore(bucket).put(SPEC)
        owner.create_task(watch.run(), name="watch")
        yield Followed(watch, DesiredStore(bucket), bucket, registry, changes)


async def test_the_watch_knows_what_is_declared_now() -> None:
    async with followed() as it:
        assert not it.watch.synced
        await eventually(lambda: it.watch.synced)
        assert it.watch.adapters == {SPEC.name: SPEC}
        await it.store.put(BaseModelSpec(name="llama"))
        acme = Tenant(name="acme", weight=2.0)
        await it.bucket.put(desired.key_for(Tenant, "acme"), desired.encode(acme))
        await declared(it.store, replace(SPEC, rank=8))
        await eventually(lambda: it.watch.adapters[SPEC.name].revision == 2)
        assert set(it.watch.base_models) == {"llama"}
        assert it.watch.tenants == {"default": DEFAULT_TENANT, "acme": acme}
        await it.store.delete(AdapterSpec, SPEC.name)
        await it.store.delete(BaseModelSpec, "llama")
        await it.bucket.delete(desired.key_for(Tenant, "acme"))
        await eventually(lambda: len(it.watch.tenants) == 1)
        assert (dict(it.watch.adapters), dict(it.watch.base_models)) == ({}, {})


async def test_changes_are_told_once_and_only_when_something_changed() -> None:
    async with followed() as it:
        await eventually(lambda: it.watch.synced)
        assert it.changes == [1]
        await it.bucket.put(desired.key_for(AdapterSpec, SPEC.name), desired.encode(SPEC))
        await it.bucket.put("profile.later-kind", b"whatever")
        await it.store.put(replace(SPEC, name="b"))
        await eventually(lambda: len(it.watch.adapters) == 2)
        assert it.changes == [1, 2]


async def test_default_stays_a_tenant_when_its_record_goes() -> None:
    async with followed() as it:
        heavy = Tenant(name="default", weight=9.0)
        await it.bucket.put(desired.key_for(Tenant, "default"), desired.encode(heavy))
        await eventually(lambda: it.watch.tenants["default"] == heavy)
        await it.bucket.delete(desired.key_for(Tenant, "default"))
        await eventually(lambda: it.watch.tenants["default"] == DEFAULT_TENANT)


async def test_a_record_that_does_not_parse_leaves_the_last_good_one_in_force() -> None:
    async with followed() as it:
        await eventually(lambda: it.watch.synced)
        await it.bucket.put(desired.key_for(AdapterSpec, SPEC.name), b"garbage")
        await eventually(lambda: it.watch.invalid == 1)
        assert it.watch.adapters == {SPEC.name: SPEC}


async def test_what_was_deleted_while_the_registry_was_away_is_gone_after_it() -> None:
    async with followed() as it:
        await it.store.put(replace(SPEC, name="b"))
        await eventually(lambda: set(it.watch.adapters) == {SPEC.name, "b"})
        it.registry.disconnect()
        it.bucket._entries.pop(desired.key_for(AdapterSpec, "b"))
        it.registry.reconnect()
        await it.store.put(replace(SPEC, name="c"))
        await eventually(lambda: set(it.watch.adapters) == {SPEC.name, "c"})


async def test_what_the_registry_lost_stays_in_force_until_somebody_says_otherwise() -> None:
    async with followed() as it:
        await eventually(lambda: it.watch.synced)
        for name in ("b", "c"):
            await it.store.put(replace(SPEC, name=name))
        await eventually(lambda: len(it.watch.adapters) == 3)
        it.registry.wipe()
        await eventually(lambda: len(it.watch.lost) == 3)
        assert set(it.watch.adapters) == {SPEC.name, "b", "c"}
        assert it.changes == [1, 2, 3, 3]
        for lost in it.watch.lost[1:]:
            await it.bucket.create(desired.key_of(lost), desired.encode(lost))
        await eventually(lambda: it.watch.lost == (SPEC,))
        await it.store.delete(AdapterSpec, "b")
        await declared(it.store, replace(SPEC, rank=8))
        await eventually(lambda: set(it.watch.adapters) == {SPEC.name, "c"})
        await eventually(lambda: it.watch.lost == ())
        assert it.watch.adapters[SPEC.name].rank == 8


@pytest.mark.parametrize(
    "key",
    [
        desired.key_for(EngineOrder, "eu.n1.a"),
        desired.key_for(ApiKey, "ci"),
    ],
)
async def test_an_order_or_a_key_that_does_not_parse_is_not_in_force(key: str) -> None:
    """A newer writer meant it to be kept: nobody may say that it is."""
    async with followed() as it:
        await eventually(lambda: it.watch.synced)
        assert it.watch.in_force == it.watch.applied
        unread = await it.bucket.put(key, b'{"type": "of tomorrow"}')
        later = await it.bucket.put(desired.key_for(AdapterSpec, "b"), b"{}")
        await eventually(lambda: it.watch.applied == later)
        assert it.watch.in_force == unread - 1
        last = await it.bucket.delete(key)
        await eventually(lambda: it.watch.applied == last)
        assert it.watch.in_force == last
