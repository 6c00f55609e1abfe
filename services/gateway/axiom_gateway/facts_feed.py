"""How facts about engines' prefixes reach this gateway: agents tell them over the bus.

A message may have tens of thousands of facts: they go into the index some at a time, and requests
are served in between. Messages wait for one another, so those of one engine stay in order. What got
lost is asked for (`FactRequests`), and an agent's answer goes to all gateways.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

from axiom_common.errors import UnavailableError, WireError
from axiom_common.model.ids import EngineId, GatewayId, NodeId, RegionId, node_of
from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.state.fact_stream import Deed, Deeds, FactStream
from axiom_common.state.prefix_index import ANY_TIER, HBM
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactKind, FactReport, FactRequest, decode, encode
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.prefixes import Prefixes, ToldEngine

SLICE_FACTS = 1_024
"""Facts that go into an index at once: 0.1 ms compiled, 2 ms in Python."""
TICK_MS = 50.0
TOKENIZER_DIFFERS = "tokenizer-differs"

_FOLDED = {Deed.APPLY, Deed.PART}
"""Deeds with the message's facts."""


class FactsFeed:
    """Keeps `prefixes` up to date with what agents tell."""

    def __init__(
        self,
        prefixes: Prefixes,
        bus: Bus,
        clock: Clock,
        metrics: GatewayMetrics,
        log: Log,
        *,
        region: RegionId,
        gateway: GatewayId,
    ) -> None:
        self._prefixes = prefixes
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._region = region
        self._gateway = gateway

    async def start(self) -> None:
        """Listen to the bus."""
        await self._bus.subscribe(subjects.all_node_facts(self._region), self._on_facts)

    async def run(self) -> None:
        """Ask agents for what is lacking and let go of what is old, until cancelled."""
        while True:
            await self._clock.sleep_ms(TICK_MS)
            self._prefixes.given_up()
            self._prefixes.expire()
            await self._prefixes.clean_all()
            await self._ask(self._prefixes.requests.take(self._clock.now_ms()))

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be, by stable names."""
        return (TOKENIZER_DIFFERS,) if self._prefixes.differs else ()

    async def _ask(self, engines: list[EngineId]) -> None:
        of_node: defaultdict[NodeId, list[EngineId]] = defaultdict(list)
        for engine in engines:
            of_node[node_of(engine)].append(engine)
        for node, wanted in of_node.items():
            request = encode(FactRequest(asker=self._gateway, engines=tuple(wanted)))
            with contextlib.suppress(UnavailableError):
                await self._bus.publish(subjects.node_facts_wanted(self._region, node), request)
                self._metrics.snapshots_asked(len(wanted))

    async def _on_facts(self, subject: str, payload: bytes) -> None:
        try:
            report = decode(payload, FactReport)
            if subject != subjects.node_facts(report.region, report.node):
                raise WireError(f"facts of {report.region}/{report.node}")
        except WireError as error:
            self._metrics.invalid_message()
            self._log.warning(
                "message does not parse",
                once_a_minute="bad facts",
                subject=subject,
                cause=str(error),
            )
            return
        self._metrics.facts_heard(report.kind)
        told = self._prefixes.told(report.engine, report.revision)
        if told is None:
            return
        was_whole = told.stream.whole
        deeds = _deeds(told.stream, report)
        if was_whole and told.stream.lacks:
            self._metrics.facts_lost()
        self._prefixes.do(told, deeds)
        self._want(told)
        if _FOLDED & {*deeds}:
            await self._fold(told, deeds, report)

    def _want(self, told: ToldEngine) -> None:
        requests, now_ms = self._prefixes.requests, self._clock.now_ms()
        if not told.stream.lacks:
            requests.came(told.engine)
            return
        requests.want(told.engine, now_ms)
        if told.stream.arriving:
            requests.arriving(told.engine, now_ms)

    async def _fold(self, told: ToldEngine, deeds: Deeds, report: FactReport) -> None:
        """Do on the index what is to be done, unless it turns out to be void meanwhile."""
        voided, seq, fits = told.voided, report.seq, True
        await self._prefixes.clean(told)
        if told.voided != voided:
            return
        if Deed.BEGIN in deeds:
            told.index.snapshot_begin(told.number, seq)
        for turn, (tier, announced, withdrawn) in enumerate(_slices(report)):
            if turn:
                await asyncio.sleep(0)
                if told.voided != voided:
                    return
            if Deed.APPLY in deeds:
                told.index.apply(told.number, announced, withdrawn, tier)
            elif Deed.PART in deeds:
                fits = fits and told.index.snapshot_part(told.number, seq, announced, tier)
        if fits and Deed.END in deeds:
            fits = await self._prefixes.end_snapshot(told, seq)
        if not fits and told.voided == voided:
            self._prefixes.lost(told)
            self._want(told)


def _deeds(stream: FactStream, report: FactReport) -> Deeds:
    match report.kind:
        case FactKind.CHANGES:
            return stream.changes(report.incarnation, report.seq, cleared=report.cleared)
        case FactKind.SNAPSHOT:
            return stream.snapshot(report.incarnation, report.seq, report.part, report.parts)
        case FactKind.STAND:
            return stream.stand(report.incarnation, report.seq)


def _slices(report: FactReport) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Tier, announced and withdrawn, some at a time: what is held no longer first."""
    none = memoryview(b"")
    for batch, tier in ((report.hbm, HBM), (report.any_tier, ANY_TIER)):
        for gone in _cut(batch.withdrawn, WITHDRAWN.size):
            yield tier, none, gone
        for news in _cut(batch.announced, ANNOUNCED.size):
            yield tier, news, none


def _cut(facts: bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(facts)
    for start in range(0, len(facts), SLICE_FACTS * size):
        yield view[start : start + SLICE_FACTS * size]
