"""The engines of the node: each with its book, its link and its tasks. They come and go as settings
say; what an engine that is gone had (connections, sockets, labels of metrics) goes with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from axiom_common.model.adapter import ResidencySource
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import EngineId, NodeId
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine
from axiom_common.ports.engine_extension import EngineExtension
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_node_agent.extension_ear import ExtensionEar
from axiom_node_agent.loader import RELIST_MS, Loader
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.poller import Poller
from axiom_node_agent.settings import EngineSettings
from axiom_node_agent.state import EngineBook


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLink:
    """How the agent reaches one engine. `extension` None: it is not said where it would tell."""

    engine: Engine
    extension: EngineExtension | None = None


Connect = Callable[[EngineSettings], EngineLink]
"""Makes the link of an engine, without calling it yet; SettingsError when that is not possible."""


@dataclass(slots=True, kw_only=True)
class _Part:
    settings: EngineSettings
    link: EngineLink
    poller: Poller
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class NodeEngines:
    """`books` and `loaders` have an entry for each engine of the moment. `on_change` is called
    after each change that others should hear of at once."""

    def __init__(
        self,
        node: NodeId,
        connect: Connect,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
        *,
        poll_ms: float,
        names_ms: float,
        may_unload: Callable[[], bool],
        read_ahead: Callable[[str], Awaitable[object]],
        on_change: Callable[[], None],
    ) -> None:
        self.books: dict[EngineId, EngineBook] = {}
        self.loaders: dict[EngineId, Loader] = {}
        self._node = node
        self._connect = connect
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._poll_ms = poll_ms
        self._names_ms = names_ms
        self._may_unload = may_unload
        self._read_ahead = read_ahead
        self._on_change = on_change
        self._parts: dict[EngineId, _Part] = {}
        self._sources: dict[EngineId, ResidencySource] = {}

    async def apply(self, wanted: tuple[EngineSettings, ...], owner: Owner) -> bool:
        """Have exactly these engines; says whether any came or went. One whose settings changed is
        another engine under the same name. SettingsError, and nothing done, if one has no link."""
        by_id = {settings.declared(self._node).engine: settings for settings in wanted}
        gone = [id_ for id_, part in self._parts.items() if part.settings != by_id.get(id_)]
        stays = self._parts.keys() - set(gone)
        links = {id_: self._connect(s) for id_, s in by_id.items() if id_ not in stays}
        for engine in gone:
            await self._remove(engine)
        for engine, link in links.items():
            self._add(by_id[engine], link, owner)
        return bool(gone or links)

    async def polled(self) -> None:
        """Wait until each of the engines was asked once."""
        for part in list(self._parts.values()):
            await part.poller.polled.wait()

    async def stop(self) -> None:
        """End all; the links are closed."""
        for engine in list(self._parts):
            await self._remove(engine)

    def faults(self) -> list[str]:
        """What does not serve."""
        return [
            f"engine-{book.status}:{engine}"
            for engine, book in self.books.items()
            if book.status is not EngineStatus.READY
        ]

    def facts(self) -> Mapping[EngineId, Mapping[str, object]]:
        """How each engine is, and who says what it holds."""
        return {
            engine: {
                "status": self.books[engine].status,
                "source": self.books[engine].source,
                "extension_off": part.link.extension.unsupported if part.link.extension else None,
            }
            for engine, part in self._parts.items()
        }

    def _add(self, settings: EngineSettings, link: EngineLink, owner: Owner) -> None:
        declared = settings.declared(self._node)
        engine = declared.engine
        book = self._book(declared)
        ear = link.extension and ExtensionEar(book, link.extension, self._clock, self._log)
        poller = Poller(
            book,
            link.engine,
            self._clock,
            self._metrics,
            self._log,
            poll_ms=self._poll_ms,
            names_ms=self._names_ms,
            on_restart=ear.forget if ear else lambda: None,
        )
        loader = Loader(
            book,
            link.engine,
            self._clock,
            self._metrics,
            self._log,
            list_names=lambda: poller.list_names(every_ms=RELIST_MS),
            may_unload=self._may_unload,
            read_ahead=self._read_ahead,
        )
        jobs = {"poll": poller.run(), "load": loader.run()}
        if ear:
            jobs["hear"] = ear.run()
        part = _Part(settings=settings, link=link, poller=poller)
        part.tasks = [owner.create_task(j, name=f"{name} {engine}") for name, j in jobs.items()]
        self._parts[engine], self.books[engine], self.loaders[engine] = part, book, loader

    async def _remove(self, engine: EngineId) -> None:
        part = self._parts.pop(engine)
        del self.books[engine], self.loaders[engine]
        for task in part.tasks:
            task.cancel()
        await asyncio.gather(*part.tasks, return_exceptions=True)
        await part.link.engine.close()
        if part.link.extension is not None:
            await part.link.extension.close()
        self._sources.pop(engine, None)
        self._metrics.forget_engine(engine)

    def _book(self, declared: EngineState) -> EngineBook:
        engine = declared.engine
        book = EngineBook(declared, lambda: self._changed(engine, book))
        return book

    def _changed(self, engine: EngineId, book: EngineBook) -> None:
        self._metrics.engine_ready.labels(engine).set(book.status is EngineStatus.READY)
        before = self._sources.get(engine, ResidencySource.INFERRED)
        if book.source is not before:
            self._sources[engine] = book.source
            self._metrics.source_switches.labels(engine, book.source).inc()
            self._log.info("residency source", engine=engine, before=before, now=book.source)
        self._on_change()
