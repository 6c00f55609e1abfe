"""Tells gateways what texts engines hold: takes cuts of their mirrors, and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.model.prefix import FactsState
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactReport, FactRequest, decode, encode
from axiom_node_agent.facts import TICK_MS, EngineFacts
from axiom_node_agent.kv_mirror import KvMirror, Mirrored
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.mirror_thread import MirrorThread
from axiom_node_agent.settings import EngineSettings

LARGE_BYTES = 65_536
LARGE_GAP_MS = 20.0
"""After a large message: 25 MB/s a node at most."""
PUBLISH_TIMEOUT_MS = 1_000.0
FAULTS = frozenset(
    (
        FactsState.TOKENIZER_REFUSED,
        FactsState.NO_EVENTS,
        FactsState.SEVERAL_RANKS,
        FactsState.HYBRID_CACHE,
    )
)
"""What does not pass by itself."""


class FactTeller:
    """Of one node, of those engines whose tokenizer is set. `incarnation` says as which one the
    agent tells now; 0: nothing is told yet."""

    def __init__(
        self,
        region: RegionId,
        node: NodeId,
        mirror_dir: Path | None,
        bus: Bus,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
        incarnation: Callable[[], int],
    ) -> None:
        self._region = region
        self._node = node
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._incarnation = incarnation
        self._thread = MirrorThread(mirror_dir, clock, metrics, log)
        self._mirrored: dict[EngineId, Mirrored] = {}
        self._facts: dict[EngineId, EngineFacts] = {}
        self._subject = subjects.node_facts(region, node)

    async def have(self, engines: Iterable[EngineSettings]) -> None:
        """Tell of exactly these engines, as far as they have a tokenizer."""
        wanted = {of.engine: of for e in engines if (of := _mirrored(e, self._node)) is not None}
        for engine, of in list(self._mirrored.items()):
            if wanted.get(engine) != of:
                del self._mirrored[engine]
                await self._thread.remove(engine)
                await self._send(self._facts[engine].gone(self._clock.now_ms()))
        for engine in wanted.keys() - self._mirrored.keys():
            await self._thread.add(wanted[engine])
            self._facts.setdefault(engine, EngineFacts(self._region, self._node, engine))
            self._mirrored[engine] = wanted[engine]

    async def run(self) -> None:
        """Tell, until cancelled; raises what the mirrors failed of."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._thread.ended(), name="mirrors")
            while True:
                await self._clock.sleep_ms(TICK_MS)
                if self._incarnation():
                    for engine in list(self._mirrored):
                        await self._tell(engine)

    async def stop(self) -> None:
        """Keep the mirrors, after `run` has ended."""
        await self._thread.stop()

    async def wanted(self, subject: str, payload: bytes) -> None:
        """Somebody lacks facts of some engines."""
        del subject
        try:
            request = decode(payload, FactRequest)
        except WireError:
            self._metrics.invalid_messages.labels(FactRequest.__name__).inc()
            raise
        for engine in request.engines:
            if engine in self._mirrored:
                self._facts[engine].want(self._clock.now_ms())

    def states(self) -> Mapping[EngineId, tuple[FactsState, int]]:
        """How it stands with the facts of each engine that has a tokenizer; blocks mirrored."""
        return {engine: (mirror.state, mirror.blocks) for engine, mirror in self._mirrors()}

    def faults(self) -> list[str]:
        """Engines whose facts can't be told."""
        return [f"{m.state}:{engine}" for engine, m in self._mirrors() if m.state in FAULTS]

    def told(self) -> Mapping[EngineId, Mapping[str, object]]:
        """What `/readyz` shows."""
        return {
            engine: {"state": mirror.state, "detail": mirror.detail, "blocks": mirror.blocks}
            for engine, mirror in self._mirrors()
        }

    def _mirrors(self) -> list[tuple[EngineId, KvMirror]]:
        mirrors = self._thread.mirrors.copy()
        return [(engine, mirrors[engine]) for engine in self._mirrored if engine in mirrors]

    async def _tell(self, engine: EngineId) -> None:
        facts, now_ms = self._facts[engine], self._clock.now_ms()
        facts.begin(self._incarnation())
        cut = await self._thread.cut(engine, anew=facts.anew, whole=facts.wants_whole(now_ms))
        if cut is not None and engine in self._mirrored:
            await self._send(facts.messages(cut, now_ms))

    async def _send(self, messages: Iterable[FactReport]) -> None:
        for message in messages:
            payload = encode(message)
            try:
                async with asyncio.timeout(PUBLISH_TIMEOUT_MS / 1e3):
                    await self._bus.publish(self._subject, payload)
            except (UnavailableError, TimeoutError) as error:
                # Its number lacks, so who listens asks for a snapshot.
                self._log.warning("facts not sent", once_a_minute="facts", cause=str(error))
                continue
            self._metrics.fact_messages.labels(message.kind).inc()
            if len(payload) >= LARGE_BYTES:
                await self._clock.sleep_ms(LARGE_GAP_MS)


def _mirrored(settings: EngineSettings, node: NodeId) -> Mirrored | None:
    if settings.tokenizer is None:
        return None
    return Mirrored(
        engine=settings.declared(node).engine,
        url=settings.url,
        base_model=settings.base_model,
        tokenizer=settings.tokenizer,
    )
