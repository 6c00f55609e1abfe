"""Which model names mean what: a base model, a declared adapter, or one that people loaded.

Names come from the desired state and from what engines say they answer to. A managed name of an
engine (`bot~3`) is Axiom's own and no client may use it; the adapter `bot` stands for its current
revision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from axiom_common.model.adapter import AdapterSpec, is_managed
from axiom_common.model.engine import EngineState
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.ports.engine import SGLANG


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a name means. `spec` None with an adapter: people loaded it themselves.

    `excluded` are engines of the base model that don't have such an adapter.
    """

    base_model: str
    adapter: EngineAdapter = BASE
    spec: AdapterSpec | None = None
    excluded: tuple[EngineId, ...] = ()

    @property
    def rank(self) -> int:
        """Of the adapter; 0 for the base model, and where it is not known."""
        return self.spec.rank if self.spec else 0

    @property
    def size_bytes(self) -> int:
        """Of the adapter; 0 as above."""
        return self.spec.size_bytes if self.spec else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One line of GET /v1/models. `parent` None: a base model."""

    name: str
    parent: str | None


def name_at(engine: EngineState, adapter: EngineAdapter) -> str:
    """The model name that a request to `engine` carries; BASE is for its base model.

    SGLang takes an adapter's bare name for a name of its base model, and would answer without the
    adapter: there its name stands behind the base model's.
    """
    if adapter == BASE:
        return engine.served_name
    return f"{engine.served_name}:{adapter}" if engine.kind == SGLANG else adapter


class Catalog:
    """Names of one region. Written by the gateway's state, read by every request."""

    def __init__(self) -> None:
        self._adapters: Mapping[str, AdapterSpec] = {}
        self._base_models: frozenset[str] = frozenset()
        self._engines: dict[EngineId, EngineState] = {}
        self._of_base: defaultdict[str, set[EngineId]] = defaultdict(set)
        self._unmanaged: defaultdict[str, set[EngineId]] = defaultdict(set)

    def set_desired(self, adapters: Mapping[str, AdapterSpec], base_models: Iterable[str]) -> None:
        """Replace what is declared."""
        self._adapters = adapters
        self._base_models = frozenset(base_models)

    def set_engine(self, state: EngineState) -> None:
        """Add or replace what an engine answers to."""
        before = self._engines.get(state.engine)
        self._engines[state.engine] = state
        if before is not None:
            if _names(before) == _names(state):
                return
            self._forget(before)
        if not state.base_model:
            # Its agent has not heard yet what it serves.
            return
        self._of_base[state.base_model].add(state.engine)
        for name in state.registered:
            if not is_managed(name):
                self._unmanaged[name].add(state.engine)

    def remove_engine(self, engine: EngineId) -> None:
        """Forget an engine."""
        before = self._engines.pop(engine, None)
        if before is not None:
            self._forget(before)

    def resolve(self, name: str, tenant: str | None) -> Target | None:
        """What `name` means to a tenant, or to who may look at all of them (`tenant` None); None
        when it may not use it, or nothing has it.

        What is declared goes before what engines say of themselves.
        """
        spec = self._adapters.get(name)
        if spec is not None:
            if tenant is not None and spec.tenant != tenant:
                return None
            return Target(base_model=spec.base_model, adapter=spec.engine_name, spec=spec)
        if name in self._base_models or name in self._of_base:
            return Target(base_model=name)
        base_model = self._base_of(name)
        if base_model is None:
            return None
        having = self._unmanaged[name]
        others = self._of_base[base_model] - having
        return Target(
            base_model=base_model, adapter=EngineAdapter(name), excluded=tuple(sorted(others))
        )

    def entries(self, tenant: str) -> list[ModelEntry]:
        """All names a tenant may use: base models first, each group by name."""
        names = {*self._adapters, *self._base_models, *self._of_base, *self._unmanaged}
        targets = [(name, self.resolve(name, tenant)) for name in names]
        found = [
            ModelEntry(name=name, parent=None if target.adapter == BASE else target.base_model)
            for name, target in targets
            if target is not None
        ]
        return sorted(found, key=lambda entry: (entry.parent is not None, entry.name))

    def _base_of(self, name: str) -> str | None:
        """The base model of an adapter that people loaded; None for one that stands on several,
        because nobody can say which is meant."""
        bases = {self._engines[engine].base_model for engine in self._unmanaged.get(name, ())}
        return bases.pop() if len(bases) == 1 else None

    def _forget(self, state: EngineState) -> None:
        _discard(self._of_base, state.base_model, state.engine)
        for name in state.registered:
            if not is_managed(name):
                _discard(self._unmanaged, name, state.engine)


def _names(state: EngineState) -> tuple[str, tuple[EngineAdapter, ...]]:
    return state.base_model, state.registered


def _discard(index: defaultdict[str, set[EngineId]], key: str, engine: EngineId) -> None:
    engines = index.get(key)
    if engines is not None:
        engines.discard(engine)
        if not engines:
            del index[key]
