"""What others have in flight on engines: peers by their vectors, foreigners by what engines report.

Foreign requests count for the base model: what adapter they use is not known, and the engine's own
report says which slots are in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from axiom_common.model.ids import BASE, EngineAdapter, EngineId, GatewayId
from axiom_common.policy.fleet import Fleet
from axiom_common.state.foreign_load import ForeignLoad
from axiom_common.state.inflight_vectors import InFlightVectors
from axiom_common.wire.schemas import InFlightReport, ReportKind
from axiom_gateway.engine_facts import EngineFacts


class OthersLoad:
    """Writes it to `fleet` for the engines that have `facts`."""

    def __init__(self, fleet: Fleet, facts: Mapping[EngineId, EngineFacts]) -> None:
        self._fleet = fleet
        self._facts = facts
        self._vectors = InFlightVectors()
        self._foreign = ForeignLoad()

    @property
    def peers(self) -> int:
        """Other gateways heard."""
        return self._vectors.gateways

    def of_peers(self, engine: EngineId) -> Mapping[EngineAdapter, int]:
        """Peers' requests on an engine by adapter."""
        return self._vectors.of(engine)

    def unconfirmed(self, revision: int) -> tuple[GatewayId, ...]:
        """Peers that may be at work and did not say that they have taken over `revision`."""
        return self._vectors.unconfirmed(revision)

    @property
    def missing(self) -> tuple[GatewayId, ...]:
        """Peers that may be at work, silent for so long that nobody waits for them any more."""
        return self._vectors.missing

    def peer_told(self, report: InFlightReport, now_ms: float) -> None:
        """Another gateway's vector."""
        changed = self._vectors.apply(
            GatewayId(report.gateway),
            incarnation=report.incarnation,
            seq=report.seq,
            full=report.kind is ReportKind.FULL,
            counts=[(c.engine, c.adapter, c.count) for c in report.counts],
            now_ms=now_ms,
            applied=report.applied,
            left=report.kind is ReportKind.LEFT,
        )
        self.write(changed)

    def expire(self, now_ms: float) -> None:
        """Drop peers that fell silent."""
        self.write(self._vectors.expire(now_ms))

    def sampled(self, engines: Iterable[EngineFacts]) -> None:
        """These engines told a new sample: count what no gateway sent."""
        for facts in engines:
            engine = facts.state.engine
            own = sum(self._fleet.in_flight_on(engine).values())
            gateways = own + sum(self._vectors.of(engine).values())
            reported = facts.state.running + facts.state.waiting
            foreign = self._foreign.beat(engine, reported=reported, gateways=gateways)
            if foreign != facts.foreign:
                facts.foreign = foreign
                self.write((engine,))

    def lapsed(self, engine: EngineId) -> None:
        """Nobody has told for long what runs on the engine."""
        self._foreign.forget(engine)
        self.write((engine,))

    def forget(self, engine: EngineId) -> None:
        """The engine is gone."""
        self._foreign.forget(engine)

    def write(self, engines: Iterable[EngineId]) -> None:
        """Bring the fleet up to date on these engines."""
        for engine in engines:
            facts = self._facts.get(engine)
            if facts is None:
                continue
            counts: Counter[EngineAdapter] = Counter(self._vectors.of(engine))
            if facts.foreign:
                counts[BASE] += facts.foreign
            self._fleet.set_peer_load(engine, counts)
