"""The names that an engine answers to, from its list, its extension, and what the agent did itself.

The engine's word may be older than the agent's own last load or unload: it counts for those names
only once it agrees, or once a list came that was asked for after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine import EngineModels


class EngineNames:
    """`paths`: adapter names with the paths they were loaded from, in the order of the last word.
    `base` None: no list came yet. `version` grows with each change, so that a list that was asked
    for before it can be told."""

    def __init__(self) -> None:
        self.paths: dict[EngineAdapter, str] = {}
        self.base: tuple[str, ...] | None = None
        self.version = 0
        self._own: dict[EngineAdapter, str | None] = {}
        self._listed_ms: float | None = None

    def due(self, now_ms: float, *, every_ms: float) -> bool:
        """Whether the list should be asked for again."""
        return self._listed_ms is None or now_ms - self._listed_ms >= every_ms

    def listed(self, models: EngineModels, now_ms: float) -> None:
        """The list came, and nothing happened since it was asked for."""
        self.base = models.base
        self.paths = dict(models.adapters)
        self._own.clear()
        self._listed_ms = now_ms

    def told(self, registered: Mapping[EngineAdapter, str]) -> None:
        """The extension told them all."""
        paths = dict(registered)
        for name, path in list(self._own.items()):
            if paths.get(name) == path:
                del self._own[name]
            elif path is None:
                del paths[name]
            else:
                paths[name] = path
        if paths != self.paths:
            self.paths = paths
            self.version += 1

    def loaded(self, name: EngineAdapter, path: str) -> None:
        """The engine did as the agent told it."""
        self.paths[name] = path
        self._changed(name, path)

    def unloaded(self, name: EngineAdapter) -> None:
        """The engine forgot it, or is about to."""
        self.paths.pop(name, None)
        self._changed(name, None)

    def doubted(self) -> None:
        """What is known may be wrong: the list is due."""
        self.version += 1
        self._listed_ms = None

    def forget(self) -> None:
        """The engine started anew."""
        self.base = None
        self.paths = {}
        self._own.clear()
        self.doubted()

    def _changed(self, name: EngineAdapter, path: str | None) -> None:
        self._own[name] = path
        self.doubted()
