"""The agent of one GPU host: wires its parts, owns its tasks, and says how it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.gpu import Gpus
from axiom_common.ports.host import Host
from axiom_common.ports.registry import Registry
from axiom_common.ports.tracing import Tracer
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import NATS_AWAY, REGISTRY_AWAY, Readiness
from axiom_common.runtime.settings import SettingsSource
from axiom_common.runtime.tracing import NO_TRACER
from axiom_common.state.hearing import TICK_MS, Hearing
from axiom_common.wire import keys, subjects
from axiom_common.wire.bounds import ENGINES_MAX
from axiom_node_agent.fact_teller import FactTeller
from axiom_node_agent.handlers import Handlers
from axiom_node_agent.incarnation import Incarnation
from axiom_node_agent.loader import ASKERS_MAX
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.node_engines import Connect, NodeEngines
from axiom_node_agent.plan_watch import PlanWatch
from axiom_node_agent.reporter import Reporter
from axiom_node_agent.settings import AgentSettings, EngineSettings
from axiom_node_agent.settings_watch import SETTINGS_INVALID, SettingsWatch
from axiom_node_agent.state import EngineBook

FIRST_POLL_MS = 2_000.0
"""An engine that has not answered by then is told of as it is: not heard yet."""
UNLOAD_REST_MS = 2_000.0
"""Two whole vectors of each gateway: who is heard for so long is heard completely."""
READ_AHEAD_BYTES = 8 << 30
"""Of one adapter: no adapter that is one has more."""
SPARE_RESPONDERS = 64
"""Beyond all ensures that may wait at engines, so that the next one is always answered."""


class AgentApp:
    """Everything but the sockets, so that it runs on fakes as well. `connect` makes the links to
    engines. With `source`, the file that the settings come from is followed.

    `life` differs between any two starts of any agents. `on_superseded` is called when another
    agent runs under the node's name: this one has to end.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        bus: Bus,
        registry: Registry,
        connect: Connect,
        source: SettingsSource[AgentSettings] | None = None,
        gpus: Gpus,
        host: Host,
        clock: Clock,
        life: str,
        on_superseded: Callable[[], None],
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.metrics = AgentMetrics()
        self._settings = settings
        self._region = region = RegionId(settings.region)
        self._node = NodeId(settings.node)
        self._bus = bus
        self._registry = registry
        self._gpus, self._host = gpus, host
        self._clock = clock
        self._log = Log("axiom.node-agent", clock)
        self._on_superseded = on_superseded
        self._hearing = Hearing(clock.now_ms())
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: Owner
        self._watch = self._settings_watch(source)
        self._engines = NodeEngines(
            self._node,
            connect,
            clock,
            self.metrics,
            self._log,
            poll_ms=settings.poll_ms,
            names_ms=settings.names_ms,
            may_unload=self._hears_all_gateways,
            read_ahead=lambda path: host.read_ahead(path, READ_AHEAD_BYTES),
            on_change=lambda: self._reporter.changed(),
        )
        self.books: Mapping[EngineId, EngineBook] = self._engines.books
        self._plans = PlanWatch(region, self._node, self._plan_changed, self.metrics, self._log)
        self._reporter = Reporter(
            self._region,
            self._node,
            self.books.values(),
            self._plans,
            gpus,
            host,
            bus,
            clock,
            self.metrics,
            self._log,
            beat_ms=settings.beat_ms,
        )
        self._incarnation = Incarnation(
            self._region, self._node, life, registry, clock, self._log, self._reporter.begin
        )
        self._facts = self._fact_teller(settings)
        self._handlers = Handlers(
            self._node,
            self.books,
            self._engines.loaders,
            self._reporter,
            self._hearing,
            clock,
            self.metrics,
            tracer,
        )

    async def start(self, owner: Owner) -> None:
        """Start all tasks in `owner`; returns when it listens on the bus."""
        jobs: dict[str, Coroutine[None, None, None]] = {
            "read GPUs": self._gpus.run(self._reporter.changed),
            "read host": self._host.run(self._adapter_paths),
            "expire vectors": self._expire(),
            "hold incarnation": self._hold_incarnation(),
            "report": self._report(),
            "follow plans": self._follow_plans(),
            "tell facts": self._facts.run(),
        }
        if self._watch is not None:
            jobs["watch settings"] = self._watch.run()
        self._owner = owner
        await self._engines.apply(self._settings.engines, owner)
        await self._facts.have(self._settings.engines)
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]
        bus = self._bus
        self.metrics.expose(
            dropped=lambda: bus.dropped,
            nats_refusals=lambda: bus.refused,
            degraded=lambda: self.readiness().degraded,
            books=self.books.values,
            gpus=self._gpus.read,
        )
        self.metrics.expose_facts(self._facts.states)
        await self._bus.respond(
            subjects.node_ensure(self._region, self._node),
            self._handlers.ensure,
            concurrency=ENGINES_MAX * ASKERS_MAX + SPARE_RESPONDERS,
        )
        await self._bus.subscribe(
            subjects.node_resync(self._region, self._node), self._handlers.resync
        )
        await self._bus.subscribe(
            subjects.all_inflight_on(self._region, self._node), self._handlers.in_flight
        )
        await self._bus.subscribe(
            subjects.node_facts_wanted(self._region, self._node), self._facts.wanted
        )
        self._bus.on_reconnect(self._reconnected)

    async def stop(self) -> None:
        """End the tasks and let go of the engines; the bus may be closed then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._facts.stop()
        await self._engines.stop()
        await self._reporter.leave()

    def readiness(self) -> Readiness:
        """Ready once reports go out under an incarnation. Each fault of a part is named."""
        degraded = [] if self._bus.connected else [NATS_AWAY]
        if self._incarnation.registry_away:
            degraded.append(REGISTRY_AWAY)
        degraded += self._engines.faults() + self._facts.faults()
        if self._watch is not None and self._watch.problem is not None:
            degraded.append(SETTINGS_INVALID)
        status = self._plans.book.status
        if status is not None and not status.accepted:
            degraded.append(f"plan-refused:{status.reason}")
        return Readiness(
            ready=self._reporter.tells,
            degraded=tuple(degraded),
            facts={
                "node": self._node,
                "incarnation": self._reporter.incarnation,
                "engines": self._engines.facts(),
                "texts": self._facts.told(),
                "settings_problem": self._watch.problem if self._watch else None,
                "plan_revision": status.revision if status else None,
            },
        )

    def _settings_watch(self, source: SettingsSource[AgentSettings] | None) -> SettingsWatch | None:
        if source is None:
            return None
        return SettingsWatch(source, self._have_engines, self._clock, self.metrics, self._log)

    def _fact_teller(self, settings: AgentSettings) -> FactTeller:
        return FactTeller(
            self._region,
            self._node,
            settings.mirror_dir,
            self._bus,
            self._clock,
            self.metrics,
            self._log,
            incarnation=lambda: self._reporter.incarnation,
        )

    async def _have_engines(self, wanted: tuple[EngineSettings, ...]) -> None:
        """The settings file says so now."""
        if await self._engines.apply(wanted, self._owner):
            self._handlers.engines_changed()
            self._plan_changed()
            await self._facts.have(wanted)

    def _adapter_paths(self) -> list[str]:
        """Where the adapters lie that engines of this node answer to."""
        return [path for book in self.books.values() for path in book.registered.values()]

    def _plan_changed(self) -> None:
        self._reporter.changed()
        for engine, loader in self._engines.loaders.items():
            loader.want(self._plans.book.engine(engine))

    def _hears_all_gateways(self) -> bool:
        unbroken_ms = self._hearing.unbroken_ms(self._clock.now_ms(), connected=self._bus.connected)
        return unbroken_ms >= UNLOAD_REST_MS

    async def _reconnected(self) -> None:
        self._hearing.interrupted(self._clock.now_ms())
        self._reporter.missed()

    async def _hold_incarnation(self) -> None:
        other = await self._incarnation.hold()
        self._log.error("superseded: another agent runs as this node", node=self._node, by=other)
        self._on_superseded()

    async def _report(self) -> None:
        """Tell once there is something to tell: others take the first word for the whole truth, and
        an engine that was not asked yet would look empty."""
        try:
            async with asyncio.timeout(FIRST_POLL_MS / 1e3):
                await self._engines.polled()
        except TimeoutError:
            self._log.warning("an engine takes long to answer its first poll")
        await self._reporter.run()

    async def _follow_plans(self) -> None:
        await self._plans.follow(await self._registry.bucket(keys.PLAN_BUCKET))

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS)
            self._handlers.expire_vectors(connected=self._bus.connected)
