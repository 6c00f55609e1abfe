"""What an engine holds of adapters, inferred by replaying its own two LRUs.

A stock engine tells which names it answers to and which it runs, never which it holds. Its rules
are known, though (vLLM: `--max-cpu-loras` host copies, `--max-loras` slots in HBM):

- A load and a step that runs an adapter both touch its host copy and its slot, so both LRUs keep
  the same order and the slots are a subset of the copies: one list with a mark on each says all.
- A new host copy pushes out the oldest copy, slot included; a new slot pushes out the oldest slot.
- Each step touches all adapters that run in it, so what is idle goes before what runs. When
  everything in HBM runs, a request for another adapter waits and changes nothing; a load would
  evict all the same, so the agent makes none then.
- An unload forgets the name only. The copy stays, nameless, until an LRU drops it; loading the name
  again makes a second copy.
- A name whose copy was dropped is read again from its path at its next use.

The replay is exact while one new adapter enters a step; when several do, their order is a guess.
An event that the agent missed is repaired by the next sight of the adapters that run.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from axiom_common.model.ids import EngineAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterCopy:
    """One copy in host RAM, and in a slot if `in_hbm`. `known_ms`: when evidence of it last came.

    A copy with `named` False belongs to a name that was unloaded: it takes room and serves nobody.
    """

    adapter: EngineAdapter
    in_hbm: bool
    known_ms: float
    named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLru:
    """Both LRUs of one engine: `copies` from least to most recently used. Values, never changed.

    `hbm_slots` 0 means that the engine's slots are not known (or that it has none): nothing is
    inferred then. Host RAM always has room for what is in HBM. `keeps_forgotten`: an unload leaves
    the copy where it is (vLLM); an SGLang frees it.
    """

    keeps_forgotten: bool = True
    hbm_slots: int = 0
    host_slots: int = 0
    copies: tuple[AdapterCopy, ...] = ()

    @staticmethod
    def told(
        *,
        hbm: tuple[EngineAdapter, ...],
        host: tuple[EngineAdapter, ...],
        registered: AbstractSet[EngineAdapter],
        hbm_slots: int,
        host_slots: int,
        now_ms: float,
    ) -> EngineLru:
        """The engine's own word: names in LRU order, HBM copies told in either or both lists.

        What is held and not `registered` has no name any more.
        """
        only_in_hbm = tuple(name for name in hbm if name not in set(host))
        in_hbm = set(hbm)
        copies = tuple(
            AdapterCopy(
                adapter=name, in_hbm=name in in_hbm, known_ms=now_ms, named=name in registered
            )
            for name in (*host, *only_in_hbm)
        )
        return EngineLru(hbm_slots=hbm_slots, host_slots=host_slots, copies=copies)

    @property
    def hbm(self) -> tuple[AdapterCopy, ...]:
        """The copies in a slot, nameless ones included, oldest first."""
        return tuple(copy for copy in self.copies if copy.in_hbm)

    def copy_of(self, adapter: EngineAdapter) -> AdapterCopy | None:
        """The copy that requests for `adapter` use, if the engine holds one."""
        return next((c for c in self.copies if c.named and c.adapter == adapter), None)

    @property
    def host_capacity(self) -> int:
        """How many copies host RAM has room for."""
        return max(self.hbm_slots, self.host_slots)

    def resized(self, *, hbm_slots: int, host_slots: int) -> EngineLru:
        """The same with other capacities; what no longer fits leaves, oldest first."""
        resized = replace(self, hbm_slots=hbm_slots, host_slots=host_slots)
        if len(self.hbm) <= hbm_slots and len(self.copies) <= resized.host_capacity:
            return resized
        return _within_capacity(resized)

    def loaded(
        self,
        adapter: EngineAdapter,
        now_ms: float,
        *,
        running: AbstractSet[EngineAdapter] = frozenset(),
    ) -> EngineLru:
        """After a load of a new name: it sits in a slot, the youngest of all."""
        return _activated(self.touched(running, now_ms), adapter, now_ms)

    def used(
        self,
        adapter: EngineAdapter,
        now_ms: float,
        *,
        running: AbstractSet[EngineAdapter] = frozenset(),
    ) -> EngineLru:
        """After a request for a registered name came: it runs, unless it has to wait for a slot."""
        stepped = self.touched(running, now_ms)
        slots = stepped.hbm
        if adapter not in {copy.adapter for copy in slots if copy.named}:
            taken = [copy for copy in slots if copy.named and copy.adapter in running]
            if len(taken) >= self.hbm_slots:
                return stepped
        return _activated(stepped, adapter, now_ms)

    def seen_running(self, running: AbstractSet[EngineAdapter], now_ms: float) -> EngineLru:
        """After the engine told which adapters run: each of them is in a slot for sure."""
        state = self.touched(running, now_ms)
        known = {copy.adapter for copy in state.hbm if copy.named}
        for adapter in sorted(running - known):
            state = _activated(state, adapter, now_ms)
        return state

    def touched(self, adapters: AbstractSet[EngineAdapter], now_ms: float) -> EngineLru:
        """A step ran those of `adapters` that are in HBM: they become the youngest, in order."""
        ran: list[AdapterCopy] = []
        rest: list[AdapterCopy] = []
        for copy in self.copies:
            runs = copy.named and copy.in_hbm and copy.adapter in adapters
            (ran if runs else rest).append(copy)
        fresh = (replace(copy, known_ms=now_ms) for copy in ran)
        return replace(self, copies=(*rest, *fresh)) if ran else self

    def forgotten(self, adapter: EngineAdapter) -> EngineLru:
        """After an unload: the name is gone; whether its copy stays is the engine's way."""
        copies = tuple(
            replace(copy, named=False) if copy.named and copy.adapter == adapter else copy
            for copy in self.copies
        )
        if not self.keeps_forgotten:
            copies = tuple(copy for copy in copies if copy.named)
        return replace(self, copies=copies)

    def named(self, adapter: EngineAdapter) -> EngineLru:
        """The youngest nameless copy shown as `adapter` has its name, unless another one has."""
        of_it = [i for i, copy in enumerate(self.copies) if copy.adapter == adapter]
        if not of_it or any(self.copies[i].named for i in of_it):
            return self
        copies = list(self.copies)
        copies[of_it[-1]] = replace(copies[of_it[-1]], named=True)
        return replace(self, copies=tuple(copies))

    def corrected(
        self,
        *,
        hbm: AbstractSet[EngineAdapter],
        host: AbstractSet[EngineAdapter],
        hbm_slots: int | None,
        host_slots: int | None,
        registered: AbstractSet[EngineAdapter] | None,
        asked_ms: float,
        now_ms: float,
    ) -> EngineLru:
        """After the engine told, asked at `asked_ms`, what is where but in no order (slots None: it
        does not say). What happened after that is newer. What it tells of and is not `registered`
        (None: nobody knows) has no name any more. Nameless copies of which it says nothing stay
        where there is room; what nobody knew of came just now, slots last."""
        held = hbm | host
        named = held if registered is None else held & registered
        copies = []
        for copy in self.copies:
            if copy.known_ms > asked_ms:
                copies.append(copy)
            elif copy.adapter in held and (copy.named or copy.adapter not in named):
                has_name = copy.adapter in named
                in_hbm = copy.adapter in hbm
                copies.append(replace(copy, in_hbm=in_hbm, named=has_name, known_ms=now_ms))
            elif not copy.named:
                copies.append(copy)
        known = {copy.adapter for copy in copies if copy.named or copy.adapter not in named}
        came = (*sorted(host - hbm - known), *sorted(hbm - known))
        copies += [
            AdapterCopy(adapter=a, in_hbm=a in hbm, named=a in named, known_ms=now_ms) for a in came
        ]
        slots = self.hbm_slots if hbm_slots is None else hbm_slots
        room = self.host_slots if host_slots is None else host_slots
        # The engine holds what it says, whatever the settings say of its room.
        sized = replace(
            self,
            hbm_slots=max(slots, len(hbm)),
            host_slots=max(room, len(held)),
            copies=tuple(copies),
        )
        return _within_capacity(_nameless_give_way(sized))

    def listed(self, host: Iterable[EngineAdapter], now_ms: float, *, is_idle: bool) -> EngineLru:
        """After the engine listed what host RAM holds, least recently used first.

        The youngest of an idle engine are in its slots; while requests run or wait, some of the
        youngest may be on their way, and slots are as they were taken to be.
        """
        names = tuple(dict.fromkeys(host))
        if is_idle:
            in_hbm = set(names[max(0, len(names) - self.hbm_slots) :])
        else:
            in_hbm = {copy.adapter for copy in self.hbm}
        copies = tuple(
            AdapterCopy(adapter=name, in_hbm=name in in_hbm, known_ms=now_ms) for name in names
        )
        return replace(self, copies=copies, host_slots=max(self.host_slots, len(names)))

    def emptied(self) -> EngineLru:
        """After the engine started anew."""
        return replace(self, copies=())

    def seeded(
        self,
        registered: Iterable[EngineAdapter],
        running: AbstractSet[EngineAdapter],
        now_ms: float,
    ) -> EngineLru:
        """The best guess beside an engine whose past nobody saw.

        `registered` is the engine's list of names, in the order of their loads: those loads are
        replayed, so the youngest names are taken as held. What runs is held for certain.
        """
        state = self.emptied()
        for adapter in registered:
            state = state.loaded(adapter, now_ms)
        return state.seen_running(running, now_ms)


def _activated(lru: EngineLru, adapter: EngineAdapter, now_ms: float) -> EngineLru:
    if lru.hbm_slots == 0:
        return lru
    others = tuple(c for c in lru.copies if not (c.named and c.adapter == adapter))
    copy = AdapterCopy(adapter=adapter, in_hbm=True, known_ms=now_ms)
    return _within_capacity(replace(lru, copies=(*others, copy)))


def _within_capacity(lru: EngineLru) -> EngineLru:
    surplus = max(0, len(lru.copies) - lru.host_capacity)
    copies = list(lru.copies[surplus:])
    beyond = sum(copy.in_hbm for copy in copies) - lru.hbm_slots
    for position, copy in enumerate(copies):
        if beyond <= 0:
            break
        if copy.in_hbm:
            copies[position] = replace(copy, in_hbm=False)
            beyond -= 1
    return replace(lru, copies=tuple(copies))


def _nameless_give_way(lru: EngineLru) -> EngineLru:
    copies = list(lru.copies)
    for copy in lru.copies:
        slots_lack = sum(c.in_hbm for c in copies) > lru.hbm_slots
        if not copy.named and (len(copies) > lru.host_capacity or (copy.in_hbm and slots_lack)):
            copies.remove(copy)
    return replace(lru, copies=tuple(copies))
