"""Desired state, followed by watching."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from axiom_common.errors import WireError
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.tenant import DEFAULT_TENANT, Tenant
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import desired, keys


class DesiredWatch:
    """Follows the desired state; the properties are what is declared now.

    `synced`: everything declared was told once; `on_change` is called then, and after each change.
    A record that does not parse is counted and logged, and the last good one under its key stays in
    force. So does what the registry lost: nobody withdrew it.
    """

    def __init__(self, bucket: Bucket, log: Log, on_change: Callable[[], None]) -> None:
        self._bucket = bucket
        self._log = log
        self._on_change = on_change
        self._by_key: dict[str, desired.Declared] = {}
        self._adapters: dict[str, AdapterSpec] = {}
        self._base_models: dict[str, BaseModelSpec] = {}
        self._tenants: dict[str, Tenant] = {DEFAULT_TENANT.name: DEFAULT_TENANT}
        self._revision_floor = 0
        self._lost: set[str] = set()
        self.synced = False
        self.invalid = 0

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
    def revision_floor(self) -> int:
        """The highest revision of any adapter that was withdrawn, 0 while none was."""
        return self._revision_floor

    @property
    def reset(self) -> bool:
        """Whether the registry lost its store and does not know all again that is known here."""
        return bool(self._lost)

    @property
    def lost(self) -> tuple[desired.Declared, ...]:
        """What the registry lost and nobody has declared again: in force here, unknown there."""
        return tuple(self._by_key[key] for key in sorted(self._lost & self._by_key.keys()))

    async def run(self) -> None:
        """Follow until cancelled."""
        async for entry in self._bucket.watch():
            if entry is None:
                self.synced = True
                self._on_change()
            elif self._apply(entry) and self.synced:
                self._on_change()

    def _apply(self, entry: Entry) -> bool:
        """Take over one record; whether it changed anything."""
        if entry.lost:
            if entry.key in self._by_key or entry.key == keys.ADAPTER_REVISION_FLOOR:
                self._lost.add(entry.key)
            return False
        self._lost.discard(entry.key)
        if entry.value is None:
            return self._drop(self._by_key.pop(entry.key, None))
        try:
            if entry.key == keys.ADAPTER_REVISION_FLOOR:
                return self._take_floor(desired.decode_floor(entry.value))
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

    def _take_floor(self, revision: int) -> bool:
        if revision < self._revision_floor:
            # Only a store made anew can say so, and it has to learn better.
            self._lost.add(keys.ADAPTER_REVISION_FLOOR)
            return True
        higher = revision > self._revision_floor
        self._revision_floor = revision
        return higher

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
