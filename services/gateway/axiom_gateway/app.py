"""The gateway: wires its parts, owns its tasks, says how it is, and drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from starlette.applications import Starlette

from axiom_common.drivers.system_clock import unix_s
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import GatewayId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.journal import Journal
from axiom_common.ports.registry import Bucket, Registry
from axiom_common.ports.shadow_cache import ShadowCache
from axiom_common.ports.tracing import Tracer
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.native import which_runs
from axiom_common.runtime.ops import NO_ENGINE_READY, Readiness, ops_routes
from axiom_common.runtime.tracing import NO_TRACER
from axiom_common.wire import keys
from axiom_common.wire.requests import BUCKET_BYTES_MAX
from axiom_gateway.admin import AdminParts, admin_app
from axiom_gateway.admin_config import add_config
from axiom_gateway.admin_decisions import DecisionDesk, add_decisions
from axiom_gateway.admin_engines import OrderDesk, add_engine_orders
from axiom_gateway.admin_plan import PlanDesk, add_plan
from axiom_gateway.admin_seen import AdminView, SeenRegion
from axiom_gateway.asgi import App
from axiom_gateway.beside_v1 import beside_v1, routed
from axiom_gateway.decision_log import DecisionPublisher
from axiom_gateway.decisions import DecisionLog
from axiom_gateway.declared_feed import DeclaredFeed
from axiom_gateway.dispatch import Dispatcher
from axiom_gateway.engine_facts import left_out
from axiom_gateway.ensure import Ensurer
from axiom_gateway.everywhere import Everywhere
from axiom_gateway.feed import RegionFeed
from axiom_gateway.first_key import make_first_key, on_stderr
from axiom_gateway.handlers import V1
from axiom_gateway.hold import HoldQueue
from axiom_gateway.inflight import InFlightPublisher
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.plan_feed import PlanFeed
from axiom_gateway.prefix_parts import PrefixParts
from axiom_gateway.prober import Prober
from axiom_gateway.profile_book import ProfileBook
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.proxy import Proxy
from axiom_gateway.row_sweep import TURNS
from axiom_gateway.settings import GatewaySettings
from axiom_gateway.state import GatewayState
from axiom_gateway.telling import Telling
from axiom_gateway.v1_access import V1Access
from axiom_gateway.watch import Watches

SWEEP_EVERY_MS = 250.0
POLL_MS = 20.0
CUT_GRACE_MS = 1000.0
"""After the drain: how long streams have to send their last event."""


class GatewayApp:
    """Everything but the socket, so that it runs on fakes as well.

    `nonce` differs between any two starts of any gateways: it makes the ids of decisions unique.
    `admin_secret` opens the admin API whatever keys there are; without it a first key is made, and
    shown by `show`.
    """

    metrics_kind: ClassVar[type[GatewayMetrics]] = GatewayMetrics
    telling_kind: ClassVar[type[Telling]] = Telling
    """What tells of requests; `axiom bench gateway` measures a gateway without."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        bus: Bus,
        registry: Registry,
        cache: ShadowCache,
        journal: Journal,
        clock: Clock,
        nonce: str,
        admin_secret: str | None = None,
        show: Callable[[str], None] = on_stderr,
        tracer: Tracer = NO_TRACER,
        texts: PromptTexts | None = None,
    ) -> None:
        self._settings = settings
        self._region = RegionId(settings.region)
        self._bus = bus
        self._registry = registry
        self._clock = clock
        self._nonce = nonce
        self._admin_secret = admin_secret
        self._show = show
        self._tracer = tracer
        self._ids = 0
        self._log = Log("axiom.gateway", clock)
        self._draining = False
        self._started = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics: GatewayMetrics = self.metrics_kind()
        self._publisher = DecisionPublisher(
            journal,
            clock,
            self._log,
            region=self._region,
            gateway=GatewayId(settings.gateway),
            per_s=settings.decisions_per_s,
            queued_max=settings.decisions_queued_max,
        )
        self.profiles = ProfileBook()
        self.state = GatewayState(clock, self.profiles)
        self.hold = HoldQueue(
            held_max=settings.held_max, release=lambda d: self.state.release(d.booking)
        )
        self.feed = RegionFeed(
            self.state,
            bus,
            cache,
            clock,
            self.metrics,
            self._log,
            region=self._region,
            gateway=GatewayId(settings.gateway),
        )
        self.prefix = PrefixParts(
            settings, texts, self.state, self.feed, bus, clock, self.metrics, self._log, nonce
        )
        self.telling: Telling = self.telling_kind(
            DecisionLog(), self.metrics, self._log, self._publisher.offer, self.prefix.prompts
        )
        self.metrics.before_scrape = self.telling.tell
        self.watches = Watches(clock, self.feed)
        self.feed.on_change = self.watches.changed
        self._proxy = Proxy(clock, connect_ms=settings.connect_ms, idle_ms=settings.engine_idle_ms)

    def ops(self) -> App:
        """The ASGI app of health and metrics."""
        return Starlette(routes=ops_routes(self.metrics.registry, self.readiness))

    async def start(self, owner: Owner) -> App:
        """Start all tasks in `owner`; returns the ASGI app to serve."""
        settings = self._settings
        gateway = GatewayId(settings.gateway)
        desired = await self._registry.bucket(keys.DESIRED_BUCKET)
        self._declared = DeclaredFeed(
            desired,
            self._bus,
            self._clock,
            self._log,
            region=self._region,
            state=self.state,
            profiles=self.profiles,
            watches=self.watches,
            admin_secret=self._admin_secret,
        )
        seen = self._bus, self._clock, self._log, self._region
        self._plans = await PlanFeed.of(self._registry, *seen)
        self._publishing = InFlightPublisher(
            self._bus,
            self._clock,
            await self._registry.bucket(keys.incarnation_bucket(self._region), lasting=True),
            region=self._region,
            gateway=gateway,
            read=self.state.vector,
            applied=self._declared.applied,
        )
        self.everywhere = Everywhere(
            self._clock,
            gateway=gateway,
            applied=self._declared.applied,
            unconfirmed=self.state.unconfirmed,
            missing=self.state.missing,
            unbroken_ms=self._unbroken_ms,
        )
        self.state.on_room = self.hold.changed
        self.state.on_booking = self._publishing.used
        self._v1 = self._v1_of(owner)
        self._expose()
        jobs = self._jobs(desired)
        self._tasks = [owner.create_task(job, name=name) for name, job in jobs.items()]
        await self.feed.start()
        await self.prefix.start()
        requests = await self._registry.bucket(
            keys.request_bucket(self._region), bytes_max=BUCKET_BYTES_MAX
        )
        return routed(self._v1, self._others(desired, requests))

    def _v1_of(self, owner: Owner) -> V1:
        settings = self._settings
        ensurer = Ensurer(
            self._bus,
            owner,
            self._clock,
            self.metrics,
            region=self._region,
            gateway=GatewayId(settings.gateway),
            in_flight=self.state.in_flight_on,
            may_load=self.state.may_load,
            deadline_ms=settings.ensure_ms,
        )
        return V1(
            settings=settings,
            clock=self._clock,
            owner=owner,
            log=self._log,
            catalog=self.state.catalog,
            dispatcher=Dispatcher(
                clock=self._clock,
                state=self.state,
                proxy=self._proxy,
                ensurer=ensurer,
                hold=self.hold,
                prompts=self.prefix.prompts,
                telling=self.telling,
                metrics=self.metrics,
            ),
            metrics=self.metrics,
            profiles=self.profiles,
            new_id=self._new_id,
            started=self._started,
            tracer=self._tracer,
            catalog_known=lambda: self._declared.watch.synced,
            access=V1Access(self._declared.access, required=settings.require_key),
        )

    def _jobs(self, desired: Bucket) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs all the time, by name."""
        prober = Prober(self._clock, silent=self.state.silent_engines, found=self.state.probed)
        jobs = {
            "start up": self._start_up(),
            "sweep": self._sweep(),
            "bootstrap": self.feed.bootstrap(),
            "ask agents": self.feed.ask(),
            "follow desired state": self._declared.run(self._publishing.begun),
            "tell in-flight": self._publishing.run(),
            "probe engines": prober.run(),
            "tell decisions": self._publisher.run(),
            **self.prefix.jobs(),
            **self._plans.jobs(),
        }
        if self._admin_secret is None:
            jobs["first key"] = make_first_key(
                DesiredStore(desired), self._declared.watch, self._clock, unix_s, self._show
            )
        return jobs

    def _others(self, desired: Bucket, requests: Bucket) -> App:
        """All that is not /v1."""
        desk = DecisionDesk(
            clock=self._clock,
            record_of=self.telling.record_of,
            state=self.state,
            profiles=self.profiles,
            default_profile=self._settings.default_profile,
            staleness_ms=lambda: self.feed.view_age_ms() or 0.0,
            prompt_of=self.prefix.prompts.prompt_of,
        )
        store = DesiredStore(desired)
        orders = OrderDesk(
            region=self._region,
            clock=self._clock,
            state=self.state,
            store=store,
            known=self._declared.known,
            everywhere=self.everywhere,
        )
        self.admin = admin_app(
            AdminParts(
                store=store,
                known=self._declared.known,
                access=self._declared.access,
                view=self.admin_view,
                watches=self.watches,
                requests=requests,
                confirm=self.everywhere.everywhere,
                more=(
                    partial(add_decisions, desk=desk),
                    partial(add_engine_orders, desk=orders),
                    partial(add_plan, desk=PlanDesk(feed=self._plans, nodes=self.feed)),
                    partial(add_config, settings=self._settings),
                ),
            )
        )
        return beside_v1(self.admin, self._declared.access)

    async def drain(self) -> None:
        """Take no new requests; return when those under way have ended, cut after the bound."""
        self._draining = True
        self._v1.drain()
        self.watches.close()
        await self._until_idle(self._settings.drain_ms)
        self._v1.cut_all()
        await self._until_idle(CUT_GRACE_MS)

    async def stop(self) -> None:
        """End the tasks and let go of engines; bus and stores may be closed then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(UnavailableError):
            await self._publishing.say_goodbye()
        self._proxy.close()

    def readiness(self) -> Readiness:
        """Ready from the end of the start until the drain begins."""
        return Readiness(
            ready=self._started.is_set() and not self._draining,
            degraded=self.degraded(),
            facts={
                "engines": len(self.state.engines),
                "adapters": len(self._declared.watch.adapters),
                "peers": self.state.peers,
                "view_age_ms": self.feed.view_age_ms(),
                "under_way": self._v1.under_way,
                "held": self.hold.count,
                "kernel": which_runs(),
            },
        )

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be, by stable names."""
        parts = (self.feed, self._declared, self._publishing, self.prefix, self._plans)
        found = [name for part in parts for name in part.degraded()]
        own = {NO_ENGINE_READY: not self.state.any_ready, "draining": self._draining}
        return (*found, *(name for name, holds in own.items() if holds))

    def admin_view(self) -> AdminView:
        """What the admin API shows of the region."""
        region = SeenRegion(
            nodes=len(self.feed.node_names()),
            engines=len(self.state.engines),
            adapters=len(self._declared.watch.adapters),
            base_models=frozenset(f.state.base_model for f in self.state.engines.values()),
            degraded=self.degraded(),
            view_age_ms=self.feed.view_age_ms(),
        )
        return AdminView(regions={self._region: region})

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._nonce}-{self._ids:x}"

    async def _start_up(self) -> None:
        """Until the catalog and the view are there; with the registry or the bus away, a while."""
        deadline_ms = self._clock.now_ms() + self._settings.start_ms
        while self._clock.now_ms() < deadline_ms and not (
            self._declared.watch.synced and self.feed.has_view()
        ):
            await self._clock.sleep_ms(POLL_MS)
        self._started.set()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep_ms(SWEEP_EVERY_MS / TURNS)
            await self.feed.sweep()
            self.state.sweep()
            self._declared.known.look()
            self._plans.look()
            self.telling.tell()
            for _ in range(TURNS - 1):
                await self._clock.sleep_ms(SWEEP_EVERY_MS / TURNS)
                self.state.sweep_on()

    def _unbroken_ms(self) -> float:
        hearing, now_ms = self.state.hearing, self._clock.now_ms()
        return hearing.unbroken_ms(now_ms, connected=self._bus.connected)

    async def _until_idle(self, timeout_ms: float) -> None:
        deadline_ms = self._clock.now_ms() + timeout_ms
        while self._v1.under_way and self._clock.now_ms() < deadline_ms:
            await self._clock.sleep_ms(POLL_MS)

    def _expose(self) -> None:
        self.metrics.expose(
            under_way=lambda: self._v1.under_way,
            held=lambda: self.hold.count,
            engines=lambda: len(self.state.engines),
            left_out=lambda: left_out(self.state.engines.values()),
            peers=lambda: self.state.peers,
            view_age_ms=self.feed.view_age_ms,
            oldest_report_ms=self.feed.oldest_report_ms,
            degraded=self.degraded,
            dropped=lambda: self._bus.dropped,
            nats_refusals=lambda: self._bus.refused,
            spans=lambda: self._tracer.counts,
            told=lambda: self._publisher.counts,
        )
