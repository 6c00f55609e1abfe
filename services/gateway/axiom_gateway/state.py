"""This gateway's fold: what it knows of every engine, as rows of the fleet and names to serve.

One writer: all that arrives (states of nodes, vectors of peers, outcomes of own requests, probes,
the passing of time) comes through a method here, and rewrites the rows that it touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.decision import Query
from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, node_of
from axiom_common.policy.cohort import Cohort, cohort
from axiom_common.policy.decided import Decided
from axiom_common.policy.fleet import Fleet, Prompt
from axiom_common.policy.profile import Profile
from axiom_common.policy.rules import engine_row
from axiom_common.ports.clock import Clock
from axiom_common.runtime.native import native_fleet_or_twin
from axiom_common.state.hearing import Hearing
from axiom_common.wire.schemas import InFlightCount, InFlightReport
from axiom_gateway.catalog import Catalog
from axiom_gateway.claimed import ClaimedSlots, Seen, decided, with_closed
from axiom_gateway.engine_facts import LAPSE_MS, EngineFacts, gpus_of, silent
from axiom_gateway.others_load import OthersLoad
from axiom_gateway.proxy import Try, Verdict
from axiom_gateway.row_sweep import RowSweep
from axiom_gateway.shown_nodes import ShownNodes


class GatewayState:
    """`on_room` is called when a held request might find room, `on_booking` for each booking,
    `before_remove` for each engine that goes."""

    def __init__(self, clock: Clock, profiles: Mapping[str, Profile]) -> None:
        self._clock = clock
        self._profiles = profiles
        self._fleet: Fleet = native_fleet_or_twin(profiles)
        self._engines: dict[EngineId, EngineFacts] = {}
        self._nodes: dict[NodeId, set[EngineId]] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._orders: Mapping[EngineId, EngineOrder] = {}
        self._others = OthersLoad(self._fleet, self._engines)
        self._claims = ClaimedSlots(self._fleet, self._engines, self._others)
        self._swept = RowSweep()
        self._flapping: Collection[NodeId] = frozenset()
        self.hearing = Hearing(clock.now_ms())
        self.catalog = Catalog()
        self.shown = ShownNodes(clock, self._fleet, self._engines, self._others)
        self.on_room: Callable[[], None] = lambda: None
        self.on_booking: Callable[[EngineId, EngineAdapter], None] = lambda _engine, _adapter: None
        self.before_remove: Callable[[EngineId], None] = lambda _engine: None

    # What requests ask and tell.

    def decide(self, query: Query, profile: str, prompt: Prompt | None = None) -> Decided:
        """Decide and book. Engines that are claimed by others count as quarantined. `prompt`: what
        is known of its text and of who holds it."""
        closed, now_ms = self._closed(query, profile), self._clock.now_ms()
        decision = decided(self._fleet.decide, query, profile, now_ms, closed, prompt)
        if decision.engine is not None:
            self._claims.end(query.adapter)
            self.on_booking(decision.engine, query.adapter)
        return decision

    def claim(self, query: Query) -> None:
        """Its request has waited long for a slot: promise it the next one on some engine."""
        self._claims.claim(query, self._clock.now_ms())

    def choose(self, query: Query, profile: str, prompt: Prompt | None = None) -> Decided:
        """Decide without booking."""
        closed, now_ms = self._closed(query, profile), self._clock.now_ms()
        return decided(self._fleet.choose, query, profile, now_ms, closed, prompt)

    def explain(
        self, query: Query, profile: str, prompt: Prompt | None, *, after: str, limit: int
    ) -> tuple[Seen, ...]:
        """What a decision would see of the first `limit` engines behind `after`, by id."""
        now_ms = self._clock.now_ms()
        seen = self._fleet.explain(query, profile, now_ms, prompt, after=after, limit=limit)
        return with_closed(seen, self._closed(query, profile))

    def engine(self, engine: EngineId) -> EngineState | None:
        """The last known state of an engine."""
        facts = self._engines.get(engine)
        return facts.state if facts is not None else None

    def number(self, engine: EngineId) -> int | None:
        """The engine's number in prefix indexes, until it is removed."""
        return self._fleet.number(engine)

    def has_registered(self, engine: EngineId, adapter: EngineAdapter) -> bool:
        """Whether the engine answers to the adapter's name, as far as is known."""
        state = self.engine(engine)
        return state is not None and adapter in state.registered

    def quarantines(self, profile: str) -> bool:
        """Whether the profile keeps requests from engines without an idle slot."""
        return self._profiles[profile].quarantine

    def weights(self, profile: str) -> tuple[float, ...]:
        """What a decision with the profile weighs its terms with now, indexed like `Term`."""
        return self._profiles[profile].weight_of_each

    def profiles_changed(self, profiles: Mapping[str, Profile]) -> None:
        """These are all that decisions may name from now on."""
        self._profiles = profiles
        self._fleet.set_profiles(profiles)

    def may_send(self, engine: EngineId) -> bool:
        """Whether no operator keeps requests from the engine. To be asked right before one goes."""
        return engine not in self._orders

    def sent(self, engine: EngineId) -> None:
        """A request goes to the engine."""
        facts = self._engines.get(engine)
        if facts is not None:
            now_ms = self._clock.now_ms()
            facts.breaker.sent(now_ms)
            self._follow_breaker(facts, now_ms)

    def first_token(self, engine: EngineId, booking: int) -> None:
        """The engine answers: the booked request's prompt is computed."""
        self._fleet.first_token(booking)
        self._answered(engine, self._clock.now_ms())
        self.on_room()

    def observe(self, engine: EngineId, outcome: Try) -> None:
        """How a try at the engine ended."""
        facts = self._engines.get(engine)
        if facts is None:
            return
        now_ms = self._clock.now_ms()
        if outcome.verdict in (Verdict.FAILED, Verdict.BROKEN):
            facts.breaker.failed(now_ms)
            self._follow_breaker(facts, now_ms)
            return
        self._answered(engine, now_ms)
        if outcome.verdict is Verdict.SERVED:
            facts.timed(outcome.ttft_ms, outcome.tpot_ms, now_ms)

    def forgot(self, engine: EngineId, adapter: EngineAdapter) -> None:
        """The engine answered that it has no such adapter; so it is until its agent tells more."""
        facts = self._engines.get(engine)
        if facts is not None:
            facts.forgot(adapter)
            self._write(facts, self._clock.now_ms())

    def ensure_failed(self, engine: EngineId) -> None:
        """The engine's agent did not answer: nothing loads on its node until it is heard again."""
        for other in sorted(self._nodes.get(node_of(engine), ())):
            facts = self._engines[other]
            if not facts.ensure_failed:
                facts.ensure_failed = True
                self._write(facts, self._clock.now_ms())

    def may_load(self, engine: EngineId) -> bool:
        """Whether requests may go to the engine and its agent is there to load, as far as known."""
        facts = self._engines.get(engine)
        loads = facts is None or facts.row is None or facts.row.loads_allowed
        return loads and self.may_send(engine)

    def abandoned(self, engine: EngineId) -> None:
        """A try at the engine was given up by its client and tells nothing of the engine.

        A probe that tells nothing leaves the breaker open for its next, longer time; without this
        it would wait for an answer that nobody listens to.
        """
        facts = self._engines.get(engine)
        now_ms = self._clock.now_ms()
        if facts is not None and facts.breaker.is_open(now_ms):
            facts.breaker.failed(now_ms)

    def release(self, booking: int) -> None:
        """The booked request ended, however."""
        self._fleet.release(booking)
        self.on_room()

    def vector(self) -> Mapping[tuple[EngineId, EngineAdapter], int]:
        """Own requests in flight."""
        return self._fleet.in_flight()

    def in_flight_on(self, engine: EngineId) -> tuple[InFlightCount, ...]:
        """Own requests in flight on one engine."""
        return tuple(
            InFlightCount(engine=engine, adapter=adapter, count=count)
            for adapter, count in self._fleet.in_flight_on(engine).items()
        )

    # What the region tells.

    def node_changed(
        self, node: NodeState, *, heard: bool, told: Collection[EngineId] | None = None
    ) -> None:
        """A newer state of a node, of which the engines `told` were told whole, None: all. `heard`:
        from its agent now, not from the shadow cache."""
        now_ms = self._clock.now_ms()
        listened_ms = self.hearing.listened_ms(now_ms)
        if told is None:
            told = {state.engine for state in node.engines}
            for engine in self._nodes.get(node.node, set()) - told:
                self._remove(engine)
        sampled = []
        for state in node.engines:
            facts = self._engines.get(state.engine)
            is_new = facts is None
            if facts is None:
                facts = EngineFacts.unheard(state, gpus_of(state, node), now_ms, listened_ms)
                facts.flapping = node.node in self._flapping
                facts.order = self._orders.get(state.engine)
                self._engines[state.engine] = facts
            elif facts.state.sample != state.sample:
                sampled.append(facts)
            if state.engine in told:
                facts.told(state, now_ms if heard else facts.told_ms)
                self.catalog.set_engine(state)
            elif facts.lapsed:
                facts.beat(state)
            facts.gpus(gpus_of(state, node), now_ms)
            if heard:
                facts.heard(now_ms, listened_ms)
            self._write(facts, now_ms)
            if is_new:
                # Peers may have told of it before its node did.
                self._others.write((state.engine,))
        self._nodes[node.node] = {state.engine for state in node.engines}
        self._others.sampled(sampled)
        self.on_room()

    def node_beat(self, node: NodeState, changed: Collection[EngineId], *, gpus_told: bool) -> None:
        """A beat of a node that is known: `changed` engines have other figures than before. Indexes
        of names and residents stay as they are; a row is written when its figures moved.
        """
        now_ms = self._clock.now_ms()
        listened_ms = self.hearing.listened_ms(now_ms)
        sampled = []
        for state in node.engines:
            facts = self._engines[state.engine]
            before = facts.state
            if before.sample != state.sample:
                sampled.append(facts)
            if state.engine in changed or facts.lapsed:
                facts.beat(state)
            gpus_moved = gpus_told and facts.gpus(gpus_of(state, node), now_ms)
            ends_silence = facts.heard(now_ms, listened_ms)
            if ends_silence or gpus_moved or facts.row_is_old():
                self._write(facts, now_ms)
        self._others.sampled(sampled)
        self.on_room()

    def node_removed(self, node: NodeId) -> None:
        """A node left the region."""
        for engine in self._nodes.pop(node, set()):
            self._remove(engine)

    def flapping(self, nodes: Collection[NodeId]) -> None:
        """These nodes, and no others, come and go too often to be relied on."""
        self._flapping = nodes
        now_ms = self._clock.now_ms()
        for facts in self._engines.values():
            is_flapping = node_of(facts.state.engine) in nodes
            if facts.flapping != is_flapping:
                facts.flapping = is_flapping
                self._write(facts, now_ms)

    def agent_died(self, node: NodeId) -> None:
        """A node's agent is dead; its engines may live."""
        for engine in sorted(self._nodes.get(node, ())):
            facts = self._engines[engine]
            facts.agent_dead = True
            self._write(facts, self._clock.now_ms())

    def probed(self, engine: EngineId, answered: bool) -> None:
        """An engine with a silent agent did or did not answer this gateway's own probe."""
        facts = self._engines.get(engine)
        if facts is not None:
            facts.probe_ok = answered
            facts.probed_ms = self._clock.now_ms()
            self._write(facts, self._clock.now_ms())

    def silent_engines(self) -> list[tuple[EngineId, str]]:
        """Engines without fresh news and their URLs, those first that were probed least lately."""
        return silent(self._engines.values(), self._clock.now_ms())

    def peer_told(self, report: InFlightReport) -> None:
        """Another gateway's vector."""
        self._others.peer_told(report, self._clock.now_ms())

    def desired_changed(
        self, adapters: Mapping[str, AdapterSpec], base_models: Iterable[str]
    ) -> None:
        """What is declared."""
        self.catalog.set_desired(adapters, base_models)
        self.on_room()

    def orders_changed(self, orders: Iterable[EngineOrder]) -> tuple[EngineId, ...]:
        """These orders of engines, and no others, are in force; the engines that it concerns."""
        before, self._orders = self._orders, {order.engine: order for order in orders}
        both = sorted({*before, *self._orders})
        changed = [engine for engine in both if before.get(engine) != self._orders.get(engine)]
        for engine in changed:
            facts = self._engines.get(engine)
            if facts is not None:
                facts.ordered(self._orders.get(engine))
                self._write(facts, self._clock.now_ms())
        if changed:
            self.on_room()
        return tuple(changed)

    def sweep(self) -> None:
        """Time passed: look which rules have to run again though there is no news, and begin."""
        now_ms = self._clock.now_ms()
        by_base: defaultdict[str, list[EngineState]] = defaultdict(list)
        for facts in self._engines.values():
            by_base[facts.state.base_model].append(facts.state)
        self._cohorts = {base_model: cohort(states) for base_model, states in by_base.items()}
        due: list[EngineFacts] = []
        for facts in self._engines.values():
            if now_ms - facts.reported_ms >= LAPSE_MS and not facts.lapsed:
                facts.lapse()
                self._others.lapsed(facts.state.engine)
            if facts.due(now_ms):
                due.append(facts)
            else:
                self._follow_breaker(facts, now_ms)
        self._others.expire(now_ms)
        self._claims.expire(now_ms)
        self._swept.begin(due)
        self.sweep_on()

    def sweep_on(self) -> None:
        """The next turn of the sweep."""
        now_ms = self._clock.now_ms()
        for facts in self._swept.take(now_ms):
            if self._engines.get(facts.state.engine) is facts:
                self._write(facts, now_ms)
        self.on_room()

    @property
    def engines(self) -> Mapping[EngineId, EngineFacts]:
        """All engines known; to read only."""
        return self._engines

    @property
    def any_ready(self) -> bool:
        """Whether some engine of the region is ready, by its agent's last word."""
        return any(f.state.status is EngineStatus.READY for f in self._engines.values())

    def unconfirmed(self, revision: int) -> tuple[GatewayId, ...]:
        """Peers that may be at work and did not say that they have taken over `revision`."""
        return self._others.unconfirmed(revision)

    def missing(self) -> tuple[GatewayId, ...]:
        """Peers that may be at work, silent for so long that nobody waits for them any more."""
        return self._others.missing

    @property
    def peers(self) -> int:
        """Other gateways heard."""
        return self._others.peers

    def _closed(self, query: Query, profile: str) -> tuple[EngineId, ...]:
        """Engines whose next idle slot is promised to other adapters."""
        return self._claims.closed_to(query.adapter) if self.quarantines(profile) else ()

    # How rows are written.

    def _write(self, facts: EngineFacts, now_ms: float) -> None:
        peers = self._cohorts.get(facts.state.base_model, Cohort())
        evidence = facts.evidence(now_ms, self.hearing.listened_ms(now_ms))
        row = engine_row(facts.state, evidence, peers, now_ms)
        if facts.written(row, now_ms):
            self._fleet.set_row(row)

    def _answered(self, engine: EngineId, now_ms: float) -> None:
        """Close the engine's breaker if it is open. While it is closed, an answer between failures
        does not undo them: an engine that fails every second request is sick."""
        facts = self._engines.get(engine)
        if facts is not None and facts.breaker.is_open(now_ms):
            facts.breaker.succeeded()
            self._follow_breaker(facts, now_ms)

    def _follow_breaker(self, facts: EngineFacts, now_ms: float) -> None:
        """Rewrite the row when the breaker turned; most requests leave it as it is."""
        is_open = facts.breaker.is_open(now_ms)
        if is_open != facts.breaker_written:
            self._write(facts, now_ms)

    def _remove(self, engine: EngineId) -> None:
        self.before_remove(engine)
        del self._engines[engine]
        self._fleet.remove(engine)
        self._others.forget(engine)
        self.catalog.remove_engine(engine)
