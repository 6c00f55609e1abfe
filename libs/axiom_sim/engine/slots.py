"""Adapter memory of an engine: HBM slots over a host cache, each least recently used first.

This is how a stock vLLM worker keeps adapters:

- Host cache and slots are nested: what leaves the host cache leaves its slot too.
- Using an adapter, in a step or by a load call, makes it the most recent of both. A load therefore
  *activates*: it takes a slot at once, the least recently used one, whoever runs there.
- Each step uses the adapters of its running sequences, so that between steps an idle adapter is
  always older than a running one, and goes first.
- Nothing here knows names: unloading forgets a name in the front end, and the copies stay until
  they are the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from axiom_sim.engine.profiles import Tier


@dataclass(frozen=True, slots=True)
class Adapter:
    """One registration of an adapter. `number` is new for each, also under a name used before."""

    number: int
    name: str
    path: str
    size_bytes: int


class AdapterSlots:
    """`hbm_slots` slots and `host_slots` host copies (at least as many)."""

    def __init__(self, *, hbm_slots: int, host_slots: int) -> None:
        if host_slots < hbm_slots:
            raise ValueError(f"host_slots {host_slots} below hbm_slots {hbm_slots}")
        self.hbm_slots = hbm_slots
        self.host_slots = host_slots
        self.activations = 0
        self.loads_from_store = 0
        self.pinned: set[int] = set()
        self._hbm: OrderedDict[int, Adapter] = OrderedDict()
        self._host: OrderedDict[int, Adapter] = OrderedDict()

    @property
    def hbm(self) -> tuple[Adapter, ...]:
        """Adapters in a slot, least recently used first."""
        return tuple(self._hbm.values())

    @property
    def host(self) -> tuple[Adapter, ...]:
        """Adapters with a host copy, least recently used first."""
        return tuple(self._host.values())

    def use(self, adapter: Adapter) -> Tier:
        """Make `adapter` resident and the most recently used; says where it was."""
        key = adapter.number
        if key in self._hbm:
            self._hbm.move_to_end(key)
            self._host.move_to_end(key)
            return Tier.HBM
        tier = self._bring_to_host(adapter)
        if len(self._hbm) >= self.hbm_slots:
            self._hbm.popitem(last=False)
        self._hbm[key] = adapter
        self.activations += 1
        return tier

    def load(self, adapter: Adapter) -> Tier:
        """What a load call does with an adapter; says where it was."""
        return self.use(adapter)

    @property
    def host_is_full(self) -> bool:
        """Whether a new copy pushes out the oldest."""
        return len(self._host) >= self.host_slots

    def load_to_host(self, adapter: Adapter) -> Tier:
        """A host copy without a slot; says where the adapter was."""
        return self._bring_to_host(adapter)

    def free(self, number: int) -> None:
        """Empty its slot."""
        self._hbm.pop(number, None)

    def hold_pinned(self) -> None:
        """Before a change what is pinned counts as just used, so that it goes last."""
        for number in sorted(self.pinned & self._host.keys()):
            self._host.move_to_end(number)
            if number in self._hbm:
                self._hbm.move_to_end(number)

    def drop(self, adapter: Adapter) -> None:
        """Forget both copies, as a load in place does before it reads the file again."""
        self._hbm.pop(adapter.number, None)
        self._host.pop(adapter.number, None)

    def _bring_to_host(self, adapter: Adapter) -> Tier:
        key = adapter.number
        if key in self._host:
            self._host.move_to_end(key)
            return Tier.HOST
        if self.host_is_full:
            oldest, _ = self._host.popitem(last=False)
            self._hbm.pop(oldest, None)
        self._host[key] = adapter
        self.loads_from_store += 1
        return Tier.STORE
