"""Desired state, followed by watching."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from axiom_common.errors import WireError
from axiom_common.model.access import ApiKey
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.tenant import DEFAULT_TENANT, Tenant
from axiom_common.policy.profile import Profile
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import desired, keys
from axiom_common.wire.desired import Declared, Stored, T

_KEPT_EVERYWHERE = (keys.ENGINE_ORDER_PREFIX, keys.API_KEY_PREFIX)


class DesiredWatch:
    """Follows the desired state; the properties are what is declared now.

    `synced`: everything declared was told once; `on_change` is called then, and after each change.
    A record that does not parse is counted and logged, and the last good one under its key stays in
    force. So does what the registry lost: nobody withdrew it. `applied` is the revision of the
    registry up to which all of it is in the properties, but for what does not parse.
    """

    def __init__(self, bucket: Bucket, log: Log, on_change: Callable[[], None]) -> None:
        self._bucket = bucket
        self._log = log
        self._on_change = on_change
        self._by_key: dict[str, Stored[Declared]] = {}
        self._by_kind: dict[type[Declared], dict[str, Declared]] = {
            Tenant: {DEFAULT_TENANT.name: DEFAULT_TENANT}
        }
        self._names: dict[type[Declared], list[str]] = {}
        """Of the kinds that were asked for."""
        self._revision_floor = 0
        self._lost: set[str] = set()
        self._unread: dict[str, int] = {}
        self.applied = 0
        self.synced = False
        self.invalid = 0

    @property
    def adapters(self) -> Mapping[str, AdapterSpec]:
        """Declared adapters by name; a live view."""
        return self._of(AdapterSpec)

    @property
    def base_models(self) -> Mapping[str, BaseModelSpec]:
        """Declared base models by name; a live view."""
        return self._of(BaseModelSpec)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Tenants by name, `default` always among them; a live view."""
        return self._of(Tenant)

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Declared profiles by name, without those that are built in; a live view."""
        return self._of(Profile)

    @property
    def api_keys(self) -> Mapping[str, ApiKey]:
        """Keys by name; a live view."""
        return self._of(ApiKey)

    @property
    def engine_orders(self) -> Mapping[str, EngineOrder]:
        """Orders of engines in all regions, by the order's name; a live view."""
        return self._of(EngineOrder)

    @property
    def in_force(self) -> int:
        """The revision up to which all orders and keys are in force here: 0 before all was told,
        and below those that do not parse, which a newer writer meant to be kept."""
        if not self.synced:
            return 0
        return min([self.applied, *(revision - 1 for revision in self._unread.values())])

    def names(self, kind: type[Declared]) -> Sequence[str]:
        """The names of all of a kind, sorted; a live view."""
        if kind not in self._names:
            self._names[kind] = sorted(self._by_kind.get(kind, {}))
        return self._names[kind]

    def one(self, kind: type[T], name: str) -> Stored[T] | None:
        """One of a kind with the version last told; None when it is not declared."""
        return cast("Stored[T] | None", self._by_key.get(desired.key_for(kind, name)))

    def values(self, kind: type[T]) -> Iterable[T]:
        """All of a kind, in no order; a live view."""
        return self._of(kind).values()

    def has(self, kind: type[Declared], name: str) -> bool:
        """Whether one of the kind has this name."""
        return name in self._by_kind.get(kind, {})

    @property
    def revision_floor(self) -> int:
        """The highest revision of any adapter that was withdrawn, 0 while none was."""
        return self._revision_floor

    @property
    def reset(self) -> bool:
        """Whether the registry lost its store and does not know all again that is known here."""
        return bool(self._lost)

    @property
    def lost(self) -> tuple[Declared, ...]:
        """What the registry lost and nobody has declared again: in force here, unknown there."""
        return tuple(self._by_key[key].value for key in sorted(self._lost & self._by_key.keys()))

    async def run(self) -> None:
        """Follow until cancelled."""
        async for entry in self._bucket.watch():
            if entry is None:
                self.synced = True
                self._on_change()
                continue
            changed = self._apply(entry)
            if changed and self.synced:
                self._on_change()
            self.applied = max(self.applied, entry.revision)

    def _of(self, kind: type[T]) -> Mapping[str, T]:
        return cast("Mapping[str, T]", self._by_kind.setdefault(kind, {}))

    def _apply(self, entry: Entry) -> bool:
        """Take over one record; whether it changed anything."""
        if entry.lost:
            if entry.key in self._by_key or entry.key == keys.ADAPTER_REVISION_FLOOR:
                self._lost.add(entry.key)
            return False
        self._lost.discard(entry.key)
        self._unread.pop(entry.key, None)
        if entry.value is None:
            return self._drop(entry.key)
        try:
            if entry.key == keys.ADAPTER_REVISION_FLOOR:
                return self._take_floor(desired.decode_floor(entry.value))
            value = desired.decode(entry.key, entry.value)
        except WireError as error:
            self.invalid += 1
            if entry.key.startswith(_KEPT_EVERYWHERE):
                self._unread[entry.key] = entry.revision
            self._log.warning(
                "desired record does not parse",
                once_a_minute=f"desired {entry.key}",
                key=entry.key,
                cause=str(error),
            )
            return False
        if value is None:
            return False
        before = self._by_key.get(entry.key)
        if before is None and type(value) in self._names:
            insort(self._names[type(value)], value.name)
        self._by_key[entry.key] = Stored(value, entry.revision)
        self._by_kind.setdefault(type(value), {})[value.name] = value
        return before is None or before.value != value

    def _take_floor(self, revision: int) -> bool:
        if revision < self._revision_floor:
            # Only a store made anew can say so, and it has to learn better.
            self._lost.add(keys.ADAPTER_REVISION_FLOOR)
            return True
        higher = revision > self._revision_floor
        self._revision_floor = revision
        return higher

    def _drop(self, key: str) -> bool:
        before = self._by_key.pop(key, None)
        if before is None:
            return False
        kind, name = type(before.value), before.value.name
        del self._by_kind[kind][name]
        if kind in self._names:
            del self._names[kind][bisect_left(self._names[kind], name)]
        if kind is Tenant and name == DEFAULT_TENANT.name:
            self._by_kind[kind][name] = DEFAULT_TENANT
        return True
