"""The agent of one GPU host: wires its parts, owns its tasks, and says how it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from axiom_common.model.engine import EngineStatus
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine
from axiom_common.ports.gpu import Gpus
from axiom_common.ports.registry import Registry
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import NATS_AWAY, REGISTRY_AWAY, Readiness
from axiom_common.wire import keys, subjects
from axiom_node_agent.handlers import Handlers
from axiom_node_agent.hearing import TICK_MS, Hearing
from axiom_node_agent.incarnation import Incarnation
from axiom_node_agent.loader import ASKERS_MAX, RELIST_MS, Loader
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.plan_watch import PlanWatch
from axiom_node_agent.poller import Poller
from axiom_node_agent.reporter import Reporter
from axiom_node_agent.settings import AgentSettings
from axiom_node_agent.state import EngineBook

FIRST_POLL_MS = 2_000.0
"""An engine that has not answered by then is told of as it is: not heard yet."""
UNLOAD_REST_MS = 2_000.0
"""Two whole vectors of each gateway: who is heard for so long is heard completely."""
SPARE_RESPONDERS = 64
"""Beyond all ensures that may wait at engines, so that the next one is always answered."""


class AgentApp:
    """Everything but the sockets, so that it runs on fakes as well. `engines` by their id.

    `life` differs between any two starts of any agents. `on_superseded` is called when another
    agent runs under the node's name: this one has to end.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        bus: Bus,
        registry: Registry,
        engines: Mapping[EngineId, Engine],
        gpus: Gpus,
        clock: Clock,
        life: str,
        on_superseded: Callable[[], None],
    ) -> None:
        self.metrics = AgentMetrics()
        self._settings = settings
        self._region = RegionId(settings.region)
        self._node = NodeId(settings.node)
        self._bus = bus
        self._registry = registry
        self._gpus = gpus
        self._clock = clock
        self._log = Log("axiom.node-agent", clock)
        self._on_superseded = on_superseded
        self._hearing = Hearing(lambda: bus.connected, clock.now_ms())
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
        self._incarnation = Incarnation(
            self._region, self._node, life, registry, clock, self._log, self._reporter.begin
        )
        self._pollers = {
            engine: self._poller(book, engines[engine]) for engine, book in self.books.items()
        }
        self._loaders = {
            engine: self._loader(book, engines[engine]) for engine, book in self.books.items()
        }
        self._handlers = Handlers(
            self.books, self._loaders, self._reporter, self._hearing, clock, self.metrics
        )

    async def start(self, owner: Owner) -> None:
        """Start all tasks in `owner`; returns when it listens on the bus."""
        jobs: dict[str, Coroutine[None, None, None]] = {
            "expire vectors": self._expire(),
            "hold incarnation": self._hold_incarnation(),
            "report": self._report(),
            "follow plans": self._follow_plans(),
            "read GPUs": self._gpus.run(),
        }
        for engine in self.books:
            jobs[f"poll {engine}"] = self._pollers[engine].run()
            jobs[f"load {engine}"] = self._loaders[engine].run()
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]
        await self._bus.respond(
            subjects.node_ensure(self._region, self._node),
            self._handlers.ensure,
            concurrency=len(self.books) * ASKERS_MAX + SPARE_RESPONDERS,
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
        degraded = [] if self._bus.connected else [NATS_AWAY]
        if self._incarnation.registry_away:
            degraded.append(REGISTRY_AWAY)
        for engine, book in self.books.items():
            if book.status is not EngineStatus.READY:
                degraded.append(f"engine-{book.status}:{engine}")
        status = self._plans.book.status
        if status is not None and not status.accepted:
            degraded.append(f"plan-refused:{status.reason}")
        return Readiness(
            ready=self._reporter.tells,
            degraded=tuple(degraded),
            facts={
                "node": self._node,
                "incarnation": self._reporter.incarnation,
                "engines": {engine: book.status for engine, book in self.books.items()},
                "plan_revision": status.revision if status else None,
            },
        )

    def _loader(self, book: EngineBook, engine: Engine) -> Loader:
        poller = self._pollers[book.declared.engine]
        return Loader(
            book,
            engine,
            self._clock,
            self.metrics,
            self._log,
            list_names=lambda: poller.list_names(every_ms=RELIST_MS),
            may_unload=lambda: self._hearing.unbroken_ms(self._clock.now_ms()) >= UNLOAD_REST_MS,
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
        for engine, loader in self._loaders.items():
            loader.want(self._plans.book.engine(engine))

    async def _reconnected(self) -> None:
        self._hearing.interrupted(self._clock.now_ms())
        self._reporter.tell_all()

    async def _hold_incarnation(self) -> None:
        other = await self._incarnation.hold()
        self._log.error("superseded: another agent runs as this node", node=self._node, by=other)
        self._on_superseded()

    async def _report(self) -> None:
        """Tell once there is something to tell: others take the first word for the whole truth, and
        an engine that was not asked yet would look empty."""
        try:
            async with asyncio.timeout(FIRST_POLL_MS / 1e3):
                for poller in self._pollers.values():
                    await poller.polled.wait()
        except TimeoutError:
            self._log.warning("an engine takes long to answer its first poll")
        await self._reporter.run()

    async def _follow_plans(self) -> None:
        await self._plans.follow(await self._registry.bucket(keys.PLAN_BUCKET))

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            self._handlers.expire_vectors()
