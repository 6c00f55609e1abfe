"""What an engine holds of adapters, by the best source that speaks. Pure.

| source | says | its order |
| --- | --- | --- |
| extension | all, the moment it changes | exact |
| metrics | at each poll what is in HBM and in host RAM | kept from inference |
| inferred | nothing: the engine's LRUs are replayed | exact while one new adapter enters a step |

A source that falls silent gives way to the next one, which goes on from what was known; a better
one that is back replaces all. So no change of the source makes a held adapter look absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from axiom_common.model.adapter import ResidencySource
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import LoadedAdapters
from axiom_common.ports.engine_extension import EngineWord
from axiom_common.state.engine_lru import EngineLru


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is held, and who says so. `pinned`: the engine evicts these last."""

    lru: EngineLru
    source: ResidencySource = ResidencySource.INFERRED
    pinned: AbstractSet[EngineAdapter] = frozenset()

    def told(self, word: EngineWord, registered: AbstractSet[EngineAdapter], now_ms: float) -> Held:
        """The extension spoke: all else is forgotten. What has no `registered` name is nameless."""
        residency = word.residency
        return Held(
            source=ResidencySource.EXTENSION,
            lru=EngineLru.told(
                hbm=residency.hbm,
                host=residency.host,
                registered=registered,
                hbm_slots=residency.hbm_slots,
                host_slots=residency.host_slots,
                now_ms=now_ms,
            ),
            pinned=word.pinned,
        )

    def sampled(
        self,
        loaded: LoadedAdapters | None,
        *,
        registered: AbstractSet[EngineAdapter] | None,
        asked_ms: float,
        now_ms: float,
    ) -> Held:
        """Metrics came that were asked for at `asked_ms`; `loaded` None: they say nothing of it.
        `registered` None: the engine's names are not known yet."""
        if self.source is ResidencySource.EXTENSION:
            return self
        if loaded is None:
            return self.silent()
        return Held(
            source=ResidencySource.METRICS,
            lru=self.lru.corrected(
                hbm=loaded.hbm,
                host=loaded.host,
                hbm_slots=loaded.hbm_slots,
                host_slots=loaded.host_slots,
                registered=registered,
                asked_ms=asked_ms,
                now_ms=now_ms,
            ),
            pinned=loaded.pinned,
        )

    def silent(self) -> Held:
        """The source has no word any more: inference goes on from what it said last."""
        return Held(lru=self.lru)

    def inferred(self, lru: EngineLru) -> Held:
        """What the replay makes of an event, where nobody knows better at once."""
        return self if self.source is ResidencySource.EXTENSION else replace(self, lru=lru)

    def loaded(
        self, name: EngineAdapter, now_ms: float, *, running: AbstractSet[EngineAdapter]
    ) -> Held:
        """A load ended well. The extension told of the copy already, when it had no name yet; if
        not, its word is on the way."""
        if self.source is ResidencySource.EXTENSION and self.lru.named(name) != self.lru:
            return replace(self, lru=self.lru.named(name))
        return replace(self, lru=self.lru.loaded(name, now_ms, running=running))

    def running(self, adapters: AbstractSet[EngineAdapter], now_ms: float) -> Held:
        """A poll says that these run: they are in HBM, unless who knows better denies it."""
        if self.source is ResidencySource.INFERRED:
            return replace(self, lru=self.lru.seen_running(adapters, now_ms))
        return self.inferred(self.lru.touched(adapters, now_ms))

    def listed(
        self,
        names: Iterable[EngineAdapter],
        *,
        known: AbstractSet[EngineAdapter] | None,
        in_use: AbstractSet[EngineAdapter],
        running: AbstractSet[EngineAdapter],
        now_ms: float,
    ) -> Held:
        """The engine listed its names; the `known` ones it had before, None: it is the first list.
        New ones were loaded by others, and missing ones unloaded. Those `in_use` have given output;
        those `running` may wait."""
        lru, listed = self.lru, dict.fromkeys(names)
        if self.source is ResidencySource.INFERRED and known is None:
            return replace(self, lru=lru.seeded(listed, in_use & listed.keys(), now_ms))
        if self.source is ResidencySource.INFERRED:
            for name in listed:
                if name not in (known or ()):
                    lru = lru.loaded(name, now_ms, running=running)
        for name in (known or frozenset()) - listed.keys():
            lru = lru.forgotten(name)
        return replace(self, lru=lru)
