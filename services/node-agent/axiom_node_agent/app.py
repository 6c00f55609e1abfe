"""The agent of one GPU host: wires its parts, owns its tasks, and says how it is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping

from axiom_common.errors import UnavailableError
from axiom_common.model.engine import EngineStatus
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine
from axiom_common.ports.gpu import Gpus
from axiom_common.ports.registry import Registry
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import Readiness
from axiom_common.state.inflight_vectors import InFlightVectors
from axiom_common.wire import keys, subjects
from axiom_node_agent.handlers import Handlers
from axiom_node_agent.loader import LOADS_WAITING_MAX, Loader
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.plan_watch import PlanWatch
from axiom_node_agent.poller import Poller
from axiom_node_agent.reporter import Reporter
from axiom_node_agent.settings import AgentSettings
from axiom_node_agent.state import EngineBook

EXPIRE_MS = 500.0
RETRY_MIN_MS = 100.0
RETRY_MAX_MS = 5_000.0
ASKERS_PER_LOAD = 16
"""Askers that may wait for one load before further ensures wait for theirs to end."""


class AgentApp:
    """Everything but the sockets, so that it runs on fakes as well. `engines` by their id."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        bus: Bus,
        registry: Registry,
        engines: Mapping[EngineId, Engine],
        gpus: Gpus,
        clock: Clock,
    ) -> None:
        self.metrics = AgentMetrics()
        self._settings = settings
        self._region = RegionId(settings.region)
        self._node = NodeId(settings.node)
        self._bus = bus
        self._registry = registry
        self._clock = clock
        self._log = Log("axiom.node-agent", clock)
        # Only spreads the retries of a fleet; no decision depends on it.
        self._jitter = random.Random(settings.node)
        self._registry_away = False
        self._tasks: list[asyncio.Task[None]] = []
        declared = [engine.declared(self._node) for engine in settings.engines]
        self.books = {d.engine: EngineBook(d, self._engine_changed) for d in declared}
        self._plans = PlanWatch(
            self._region, self._node, self._plan_changed, self.metrics, self._log
        )
        self._reporter = Reporter(
            self._region,
            self._node,
            tuple(self.books.values()),
            self._plans,
            gpus,
            bus,
            clock,
            self.metrics,
            self._log,
            beat_ms=settings.beat_ms,
        )
        self._loaders = {
            engine: self._loader(book, engines[engine]) for engine, book in self.books.items()
        }
        self._pollers = {
            engine: self._poller(book, engines[engine]) for engine, book in self.books.items()
        }
        self._handlers = Handlers(
            self.books, self._loaders, self._reporter, InFlightVectors(), clock, self.metrics
        )

    async def start(self, owner: Owner) -> None:
        """Start all tasks in `owner`; returns when it listens on the bus."""
        jobs: dict[str, Coroutine[None, None, None]] = {
            "expire vectors": self._expire(),
            "report": self._retried(self._report),
            "follow plans": self._retried(self._follow_plans),
        }
        for engine in self.books:
            jobs[f"poll {engine}"] = self._pollers[engine].run()
            jobs[f"load {engine}"] = self._loaders[engine].run()
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]
        concurrency = len(self.books) * LOADS_WAITING_MAX * ASKERS_PER_LOAD
        await self._bus.respond(
            subjects.node_ensure(self._region, self._node),
            self._handlers.ensure,
            concurrency=concurrency,
        )
        await self._bus.subscribe(
            subjects.node_resync(self._region, self._node), self._handlers.resync
        )
        await self._bus.subscribe(subjects.all_inflight(self._region), self._handlers.in_flight)
        self._bus.on_reconnect(self._reconnected)

    async def stop(self) -> None:
        """End the tasks; the bus and the engines may be closed then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def readiness(self) -> Readiness:
        """Ready once reports go out under an incarnation. Each fault of a part is named."""
        degraded = [] if self._bus.connected else ["bus-away"]
        if self._registry_away:
            degraded.append("registry-away")
        for engine, book in self.books.items():
            if book.status is not EngineStatus.READY:
                degraded.append(f"engine-{book.status}:{engine}")
        status = self._plans.book.status
        if status is not None and not status.accepted:
            degraded.append(f"plan-refused:{status.reason}")
        return Readiness(
            ready=self._reporter.incarnation > 0,
            degraded=tuple(degraded),
            facts={
                "node": self._node,
                "incarnation": self._reporter.incarnation,
                "engines": {engine: book.status for engine, book in self.books.items()},
                "plan_revision": status.revision if status else None,
            },
        )

    def _loader(self, book: EngineBook, engine: Engine) -> Loader:
        return Loader(
            book,
            engine,
            lambda: self._plans.book.engine(book.declared.engine),
            self._clock,
            self.metrics,
            self._log,
        )

    def _poller(self, book: EngineBook, engine: Engine) -> Poller:
        return Poller(
            book,
            engine,
            self._clock,
            self.metrics,
            self._log,
            poll_ms=self._settings.poll_ms,
            names_ms=self._settings.names_ms,
        )

    def _engine_changed(self) -> None:
        self._reporter.changed()
        for engine, book in self.books.items():
            self.metrics.engine_ready.labels(engine).set(book.status is EngineStatus.READY)

    def _plan_changed(self) -> None:
        self._reporter.tell_all()
        for loader in self._loaders.values():
            loader.look_again()

    async def _reconnected(self) -> None:
        self._reporter.tell_all()

    async def _report(self) -> None:
        bucket = await self._registry.bucket(keys.incarnation_bucket(self._region))
        incarnation = await bucket.put(self._node, b"")
        self._registry_away = False
        self._log.info("incarnation", incarnation=incarnation)
        await self._reporter.run(incarnation)

    async def _follow_plans(self) -> None:
        bucket = await self._registry.bucket(keys.PLAN_BUCKET)
        self._registry_away = False
        await self._plans.follow(bucket)

    async def _retried(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Run what needs the registry, again while it is away."""
        wait_ms = RETRY_MIN_MS
        while True:
            try:
                await attempt()
            except UnavailableError as error:
                self._registry_away = True
                self._log.warning("registry away", once_a_minute="registry", cause=str(error))
            await self._clock.sleep_ms(self._jitter.uniform(0.5, 1.0) * wait_ms)
            wait_ms = min(2 * wait_ms, RETRY_MAX_MS)

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep_ms(EXPIRE_MS)
            self._handlers.expire_vectors()
