"""What decisions about one engine see: who holds, uses and wants its slots."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.state.adapter_lifecycle import AdapterLife
from axiom_node_agent.state import EngineBook

NAMES_PER_PLACE = 2
"""Names that an engine may answer to for each adapter that it has room for: a name without a copy
costs each report its length, and saves one call at its next use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One engine at one moment.

    `registered` are the names it answers to and their paths, but for those it is being told to
    forget; there should be no more than `names_max`. `held` are the named adapters in HBM, `copied`
    those in HBM or host RAM; `slots_taken` counts slots with anything in them, copies of forgotten
    names included. `pinned` ones the engine evicts last. `busy` adapters have requests in flight or
    a lease. `on_their_way` are the loads that wait or run, `loads_waiting` counts those that the
    engine has not got yet.
    """

    base_model: str = ""
    ready: bool = True
    hbm_slots: int = 0
    max_lora_rank: int = 0
    registered: Mapping[EngineAdapter, str] = field(default_factory=dict)
    names_max: int = 0
    held: AbstractSet[EngineAdapter] = frozenset()
    copied: AbstractSet[EngineAdapter] = frozenset()
    slots_taken: int = 0
    pinned: AbstractSet[EngineAdapter] = frozenset()
    busy: AbstractSet[EngineAdapter] = frozenset()
    on_their_way: AbstractSet[EngineAdapter] = frozenset()
    loads_waiting: int = 0
    lives: Mapping[EngineAdapter, AdapterLife] = field(default_factory=dict)

    @property
    def free_slots(self) -> int:
        """Slots that one more load can take without evicting anything."""
        return self.hbm_slots - self.slots_taken - len(self.on_their_way)

    def idle_slots(self, adapter: EngineAdapter) -> int:
        """Slots that `adapter` can have without evicting one that is used or about to be.

        A request for a registered adapter claims a slot before it has one.
        """
        claims = (self.busy & (self.registered.keys() | self.held)) | self.on_their_way
        claims |= self.pinned & self.held
        return self.hbm_slots - len(claims - {adapter})

    def has_other_weights(self, spec: AdapterSpec) -> bool:
        """Whether the adapter's name was loaded from another path than the declared one."""
        path = self.registered.get(spec.engine_name, "")
        return path != "" and path.rstrip("/") != spec.path.rstrip("/")

    def life(self, adapter: EngineAdapter) -> AdapterLife:
        """The adapter's life here; absent for one that nothing is known of."""
        return self.lives.get(adapter, AdapterLife())


def view_of(book: EngineBook, now_ms: float) -> EngineView:
    """The view of one engine now."""
    lru = book.lru
    return EngineView(
        base_model=book.base_model,
        ready=book.status is EngineStatus.READY,
        hbm_slots=lru.hbm_slots,
        max_lora_rank=book.declared.limits.max_lora_rank,
        registered={n: path for n, path in book.registered.items() if n not in book.unloading},
        names_max=NAMES_PER_PLACE * (lru.hbm_slots + lru.host_capacity),
        held=frozenset(copy.adapter for copy in lru.hbm if copy.named),
        copied=frozenset(copy.adapter for copy in lru.copies if copy.named),
        slots_taken=len(lru.hbm),
        pinned=book.held.pinned,
        busy=(book.foreign.adapters | book.counts.keys() | book.leases.held(now_ms)) - {BASE},
        on_their_way=frozenset(book.loads),
        loads_waiting=sum(load.started_ms is None for load in book.loads.values()),
        lives=dict(book.lives),
    )
