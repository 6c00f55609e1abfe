"""The lives of all adapters on one engine: what happened to each, and what is seen of it."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from axiom_common.model.adapter import AdapterState
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import AdapterLife, Event, step
from axiom_common.state.engine_lru import AdapterCopy

FAILED_MAX = 256
"""Adapters whose failure is remembered an engine; the oldest memory gives way."""


class AdapterLives:
    """`by_name` has every adapter that is not absent."""

    def __init__(self) -> None:
        self.by_name: dict[EngineAdapter, AdapterLife] = {}

    def happened(
        self, name: EngineAdapter, event: Event, now_ms: float, reason: Reason | None = None
    ) -> None:
        """One event of one adapter; `reason` belongs to LOAD_FAILED."""
        life = step(self.by_name.get(name, AdapterLife()), event, now_ms, reason=reason)
        if life.state is AdapterState.ABSENT:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = life
        if event is Event.LOAD_FAILED:
            self._bound_failures()

    def draining(self, names: Iterable[EngineAdapter], now_ms: float) -> None:
        """Exactly these are to be unloaded."""
        wanted = set(names)
        for name, life in list(self.by_name.items()):
            if life.state is AdapterState.DRAINING and name not in wanted:
                self.happened(name, Event.KEPT, now_ms)
        for name in sorted(wanted):
            self.happened(name, Event.UNLOAD_WANTED, now_ms)

    def seen(
        self,
        copies: Iterable[AdapterCopy],
        now_ms: float,
        *,
        but: AbstractSet[EngineAdapter],
    ) -> None:
        """The engine holds these copies and no other; of the adapters in `but` more is known."""
        seen: dict[EngineAdapter, Event] = {}
        for copy in copies:
            if copy.named:
                seen[copy.adapter] = Event.SEEN_IN_HBM if copy.in_hbm else Event.SEEN_IN_HOST
            elif copy.in_hbm:
                # Somebody unloaded it: the copy has its slot until the engine needs that.
                seen.setdefault(copy.adapter, Event.UNLOAD_STARTED)
        for name in sorted((self.by_name.keys() | seen.keys()) - but):
            self.happened(name, seen.get(name, Event.NOT_SEEN), now_ms)

    def keep(self, names: AbstractSet[EngineAdapter]) -> None:
        """Forget all others."""
        self.by_name = {name: life for name, life in self.by_name.items() if name in names}

    def _bound_failures(self) -> None:
        failed = [n for n, life in self.by_name.items() if life.state is AdapterState.FAILED]
        if len(failed) > FAILED_MAX:
            del self.by_name[min(failed, key=lambda name: self.by_name[name].retry_at_ms)]
