"""How the region reaches this gateway: the shadow cache at the start, the bus from then on.

Subscribe first, then read the cache: what arrives meanwhile is newer or older than the record of
the cache, and (incarnation, seq) tells which. From arrivals alone agents are alive, suspect or
dead; one that said that it ends is dead at once. A node whose agent is dead and whose engines
answer no probe either is forgotten in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import GatewayId, NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.shadow_cache import ShadowCache
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import LIVENESS_FROZEN, NATS_AWAY, REDIS_AWAY
from axiom_common.state.flapping import Flapping
from axiom_common.state.liveness import SUSPECT_MS, Liveness, Sweep
from axiom_common.state.region_view import NodeBeat, NodeDelta, Outcome, RegionView, Report
from axiom_common.state.resyncs import Resyncs
from axiom_common.wire import subjects
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import InFlightReport, NodeRecord, ResyncRequest, decode, encode
from axiom_gateway.engine_facts import STALE_MS
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.seen import SeenNode
from axiom_gateway.state import GatewayState

CACHE_RETRY_MS = 500.0
CACHE_PING_MS = 2_000.0
ASK_TICK_MS = 20.0
GATHER_MS = 500.0
"""Two beats: by then every agent was heard."""
FORGET_MS = 60_000.0
"""Twice the life of a record in the shadow cache."""
LEFT_MS = 5_000.0
"""Who left, and whose engines were asked since and do not answer, is waited for no longer."""


class RegionFeed:
    """Folds what the region tells, and keeps `state` up to date with it."""

    def __init__(
        self,
        state: GatewayState,
        bus: Bus,
        cache: ShadowCache,
        clock: Clock,
        metrics: GatewayMetrics,
        log: Log,
        *,
        region: RegionId,
        gateway: GatewayId,
    ) -> None:
        self._state = state
        self._hearing = state.hearing
        self._bus = bus
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._region = region
        self._gateway = gateway
        self._view = RegionView(region)
        self._liveness = Liveness()
        self._swept = Sweep(suspect=(), dead=(), frozen=False)
        self._flaps: frozenset[NodeId] = frozenset()
        self._heard_ms: dict[NodeId, float] = {}
        self._flapping = Flapping()
        self._dead_ms: dict[NodeId, float] = {}
        self._left: set[NodeId] = set()
        self._resyncs = Resyncs()
        self._cache_away = False
        self._first_heard_ms: float | None = None
        self._cache_had_nodes = False
        self.on_change: Callable[[NodeId, bool], None] = _nobody_watches
        """Told of each node that changed or went, and whether in nothing but its figures."""
        self.on_agent: Callable[[NodeId, int | None], None] = _nobody_asks
        """Told of each incarnation of a node's agent; None: it died, or said that it ends."""

    async def start(self) -> None:
        """Listen to the bus."""
        await self._bus.subscribe(subjects.all_node_reports(self._region), self._on_report)
        await self._bus.subscribe(subjects.all_inflight(self._region), self._on_vector)
        self._bus.on_reconnect(self._heard_again)

    async def bootstrap(self) -> None:
        """Read the shadow cache until it worked once; then only look whether it is there."""
        read = False
        while True:
            try:
                if read:
                    await self._cache.ping()
                else:
                    self._take_over(await self._cache.read_all())
                    read = True
                self._cache_away = False
            except UnavailableError as error:
                self._cache_away = True
                self._log.warning("redis away", once_a_minute="cache", cause=str(error))
            await self._clock.sleep_ms(CACHE_PING_MS if read else CACHE_RETRY_MS)

    def has_view(self) -> bool:
        """Whether the region is known: from the cache, or all agents were heard and told all that
        they were asked for."""
        first_ms = self._first_heard_ms
        heard = first_ms is not None and self._clock.now_ms() - first_ms >= GATHER_MS
        return (heard and not self._resyncs) or self._cache_had_nodes

    async def sweep(self) -> None:
        """Judge agents by their silence, and by how often they came and went."""
        now_ms = self._clock.now_ms()
        self._hearing.tick(now_ms, connected=self._bus.connected)
        self._swept = self._liveness.sweep(self._hearing.listened_ms(now_ms))
        for node in self._swept.dead:
            self._stumbled(node, now_ms)
            self._died(node, now_ms)
            self._log.warning("agent silent", node=node)
        for node in [n for n, since_ms in self._dead_ms.items() if self._is_gone(n, since_ms)]:
            self._forget(node, now_ms)
        flapping = self._flapping.nodes(self._hearing.listened_ms(now_ms))
        if flapping != self._flaps:
            for node in sorted(flapping - self._flaps):
                self._log.warning("node flapping", node=node)
            self._flaps = flapping
            self._state.flapping(flapping)

    async def ask(self) -> None:
        """Ask agents for what is lacking, until cancelled."""
        request = encode(ResyncRequest(asker=self._gateway))
        while True:
            with contextlib.suppress(UnavailableError):
                for node in self._resyncs.take(self._clock.now_ms()):
                    await self._bus.publish(subjects.node_resync(self._region, node), request)
            await self._clock.sleep_ms(ASK_TICK_MS)

    def node_names(self) -> tuple[NodeId, ...]:
        """All nodes known, in no particular order."""
        return tuple(node.node for node in self._view.nodes())

    def seen_node(self, node: NodeId) -> SeenNode | None:
        """One node with its liveness."""
        state = self._view.node(node)
        return None if state is None else self._seen(state)

    def view_age_ms(self) -> float | None:
        """Since the last report of any node; None before the first."""
        return _age(max(self._heard_ms.values(), default=None), self._clock.now_ms())

    def oldest_report_ms(self) -> float | None:
        """Since the last report of the node that is silent for longest, but those that said that
        they end; None without any."""
        stay = (at_ms for node, at_ms in self._heard_ms.items() if node not in self._left)
        return _age(min(stay, default=None), self._clock.now_ms())

    def degraded(self) -> tuple[str, ...]:
        """What is away or old, by stable names."""
        now_ms = self._clock.now_ms()
        found = [] if self._bus.connected else [NATS_AWAY]
        if self._cache_away:
            found.append(REDIS_AWAY)
        if any(now_ms - heard_ms >= STALE_MS for heard_ms in self._heard_ms.values()):
            found.append("stale-telemetry")
        if self._swept.frozen:
            found.append(LIVENESS_FROZEN)
        return tuple(found)

    async def _heard_again(self) -> None:
        self._hearing.interrupted(self._clock.now_ms())

    async def _on_report(self, subject: str, payload: bytes) -> None:
        try:
            report = decode_node_report(subject, payload)
        except WireError as error:
            self._bad_message(subject, error)
            return
        now_ms = self._clock.now_ms()
        node = report.node
        before = self._view.node(node)
        outcome = self._apply(report, heard=True)
        if outcome is Outcome.LEFT:
            self._left.add(node)
            self._died(node, now_ms)
            self._log.info("agent left", node=node)
        if outcome in (Outcome.STALE, Outcome.NO_ROOM, Outcome.LEFT):
            return
        if self._first_heard_ms is None:
            self._first_heard_ms = now_ms
        if outcome is Outcome.APPLIED:
            self._resyncs.came(node)
            if before is not None and report.incarnation != before.incarnation:
                self._stumbled(node, now_ms)
                self.on_agent(node, report.incarnation)
        else:
            self._resyncs.want(node, now_ms)
            if before is None:
                # Nothing is known that could be old or die; a name alone takes no room but there.
                return
        self._heard(node, now_ms)

    def _heard(self, node: NodeId, now_ms: float) -> None:
        listened_ms = self._hearing.listened_ms(now_ms)
        self._liveness.heard(node, listened_ms)
        self._heard_ms[node] = now_ms
        if self._dead_ms and self._dead_ms.pop(node, None) is not None:
            self._left.discard(node)
            self._flapping.returned(node, listened_ms)

    def _stumbled(self, node: NodeId, now_ms: float) -> None:
        """Its agent died, or began anew without having been dead."""
        if node not in self._dead_ms:
            self._flapping.stumbled(node, self._hearing.listened_ms(now_ms), nodes=len(self._view))

    def _died(self, node: NodeId, now_ms: float) -> None:
        self._liveness.forget(node)
        self._dead_ms[node] = now_ms
        self._state.agent_died(node)
        self.on_agent(node, None)
        self.on_change(node, False)

    async def _on_vector(self, subject: str, payload: bytes) -> None:
        try:
            report = decode(payload, InFlightReport)
            if subject != subjects.gateway_inflight(report.region, report.gateway):
                raise WireError(f"a vector of {report.region}/{report.gateway}")
        except WireError as error:
            self._bad_message(subject, error)
            return
        if report.gateway != self._gateway:
            self._state.peer_told(report)

    def _take_over(self, records: tuple[bytes, ...]) -> None:
        for payload in records:
            try:
                node = decode(payload, NodeRecord).state
            except WireError as error:
                self._bad_message("shadow cache", error)
                continue
            if self._apply(node, heard=False) is Outcome.APPLIED:
                # From now on its silence counts.
                listened_ms = self._hearing.listened_ms(self._clock.now_ms())
                self._liveness.heard(node.node, listened_ms)
            self._cache_had_nodes = True

    def _apply(self, report: Report, *, heard: bool) -> Outcome:
        change = self._view.apply(report, self._clock.now_ms())
        node = self._view.node(report.node)
        if change.outcome is not Outcome.APPLIED or node is None:
            return change.outcome
        if isinstance(report, NodeBeat):
            changed = {state.engine for state in change.changed}
            gpus_told = report.gpus is not None
            self._state.node_beat(node, changed, gpus_told=gpus_told)
            moved = any(engine.order is not None for engine in report.engines)
            if changed or gpus_told:
                self.on_change(report.node, not moved)
        else:
            told = {e.engine for e in report.engines} if isinstance(report, NodeDelta) else None
            self._state.node_changed(node, heard=heard, told=told)
            self.on_change(report.node, False)
        return change.outcome

    def _forget(self, node: NodeId, now_ms: float) -> None:
        self._view.forget(node, now_ms)
        self._state.node_removed(node)
        self._liveness.forget(node)
        self._dead_ms.pop(node, None)
        self._heard_ms.pop(node, None)
        self._left.discard(node)
        self._resyncs.forget(node)
        self._log.info("node forgotten", node=node)
        self.on_change(node, False)

    def _is_gone(self, node: NodeId, since_ms: float) -> bool:
        """Whether the engines of a node without an agent are given up too."""
        state, engines = self._view.node(node), self._state.engines
        probes = [engines[e.engine].probe_ok for e in state.engines] if state is not None else []
        dead_ms = self._clock.now_ms() - since_ms
        if node in self._left and all(answered is False for answered in probes):
            return dead_ms >= LEFT_MS
        return dead_ms >= FORGET_MS and not any(probes)

    def _seen(self, node: NodeState) -> SeenNode:
        return SeenNode(
            state=self._state.shown.node(node),
            liveness=self._liveness_of(node.node),
            heard_age_ms=_age(self._heard_ms.get(node.node), self._clock.now_ms()),
            uses=self._state.shown.uses(node),
        )

    def _liveness_of(self, node: NodeId) -> str:
        if node in self._dead_ms:
            return "dead"
        listened_ms = self._hearing.listened_ms(self._clock.now_ms())
        age_ms = self._liveness.age_ms(node, listened_ms)
        return "alive" if age_ms is not None and age_ms < SUSPECT_MS else "suspect"

    def _bad_message(self, where: str, error: WireError) -> None:
        self._metrics.invalid_message()
        self._log.warning(
            "message does not parse", once_a_minute="bad message", subject=where, cause=str(error)
        )


def _nobody_watches(node: NodeId, figures_only: bool) -> None:
    """The start."""


def _nobody_asks(node: NodeId, incarnation: int | None) -> None:
    """The start."""


def _age(at_ms: float | None, now_ms: float) -> float | None:
    return None if at_ms is None else now_ms - at_ms
