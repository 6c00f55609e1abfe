"""A crowd: the agents of many nodes in one process, without engines, as others hear them.

They tell what real agents tell, by the same messages and numbers: the whole at the begin of an
incarnation, to who asks, and each `FULL_EVERY_MS`; a change at once; figures on the beat; last
words. `states` is the truth that whoever listens should come to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineAdapter, NodeId, RegionId, engine_id
from axiom_common.ports.bus import Handler
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import Owner
from axiom_common.state.region_view import EngineBeat, NodeBeat, NodeDelta, NodeLeft
from axiom_common.wire import subjects
from axiom_common.wire.reports import BEAT_MS, FULL_EVERY_MS, encode_node_report

GATHER_MS = 20.0
SLICE_MS = 10.0
"""Beats are spread over the period in steps of this."""
ANY_NODE = NodeId("*")


class CrowdBus(Protocol):
    """What of a `Bus` a crowd needs."""

    @property
    def connected(self) -> bool:
        """Whether it is reachable now."""
        ...

    async def publish(self, subject: str, payload: bytes) -> None:
        """See `Bus`."""
        ...

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """See `Bus`."""
        ...


class Crowd:
    """Agents of `region`. `lively`: figures change with each beat, as under load.

    One of them is begun by `join`; `states` holds those that tell.
    """

    def __init__(
        self, bus: CrowdBus, clock: Clock, region: RegionId, *, lively: bool = False, seed: int = 1
    ) -> None:
        self.states: dict[NodeId, NodeState] = {}
        self.fulls = 0
        self.resyncs = 0
        self._bus = bus
        self._clock = clock
        self._region = region
        self._lively = lively
        self._random = random.Random(seed)
        self._asked_ms: dict[NodeId, float] = {}
        self._silent: set[NodeId] = set()

    async def start(self, owner: Owner) -> list[asyncio.Task[None]]:
        """Begin to beat and to answer, in these tasks."""
        await self._bus.subscribe(subjects.node_resync(self._region, ANY_NODE), self._asked)
        jobs = {"beat of the crowd": self._beat(), "answers of the crowd": self._answer()}
        return [owner.create_task(job, name=name) for name, job in jobs.items()]

    async def join(self, node: NodeId, *, incarnation: int, engines: int = 1) -> None:
        """An agent begins, anew where it ran."""
        self.begin(node, incarnation=incarnation, engines=engines)
        await self.tell_all(node)

    def begin(self, node: NodeId, *, incarnation: int, engines: int = 1) -> None:
        """The same, but its first words are lost on their way."""
        self._silent.discard(node)
        self.states[node] = NodeState(
            region=self._region,
            node=node,
            incarnation=incarnation,
            seq=1,
            base=1,
            engines=tuple(_engine(node, number) for number in range(engines)),
        )

    async def leave(self, node: NodeId) -> None:
        """An agent ends in order."""
        state = self.states.pop(node)
        await self._publish(
            NodeLeft(
                region=state.region,
                node=node,
                incarnation=state.incarnation,
                seq=state.seq + 1,
            )
        )

    def vanish(self, node: NodeId) -> None:
        """A node is gone without a word."""
        self.states.pop(node)

    def silence(self, nodes: Iterable[NodeId]) -> None:
        """These tell nothing on their own until they `speak`."""
        self._silent |= set(nodes)

    def speak(self) -> None:
        """All tell again."""
        self._silent.clear()

    async def change(self, node: NodeId, **changes: Any) -> NodeDelta:
        """Slow facts of the node's first engine change, which is told at once; what was told."""
        delta = self.changed(node, **changes)
        await self._publish(delta)
        return delta

    def changed(self, node: NodeId, **changes: Any) -> NodeDelta:
        """The same, but nobody is told: the delta is lost on its way."""
        state = self.states[node]
        engine = replace(state.engines[0], **changes)
        seq = state.seq + 1
        self.states[node] = replace(state, seq=seq, base=seq, engines=(engine, *state.engines[1:]))
        return NodeDelta(
            region=state.region,
            node=node,
            incarnation=state.incarnation,
            seq=seq,
            base=state.base,
            engines=(engine,),
        )

    async def tell_all(self, node: NodeId) -> None:
        """The whole state of a node."""
        state = self.states[node]
        seq = state.seq + 1
        self.states[node] = state = replace(state, seq=seq, base=seq)
        self.fulls += 1
        await self._publish(state)

    async def publish(self, node: NodeId, payload: bytes) -> None:
        """Bytes on a node's subject, e.g. such as were sent before."""
        try:
            await self._bus.publish(subjects.node_report(self._region, node), payload)
        except UnavailableError:
            # As an agent: what could not be sent leaves a hole, and the whole is told next.
            if node in self.states:
                self._asked_ms.setdefault(node, self._clock.now_ms())

    async def _publish(self, report: NodeState | NodeDelta | NodeBeat | NodeLeft) -> None:
        await self.publish(report.node, encode_node_report(report))

    async def _asked(self, subject: str, _: bytes) -> None:
        node = NodeId(subject.rpartition(".")[2])
        self.resyncs += 1
        if node in self.states:
            self._asked_ms.setdefault(node, self._clock.now_ms() + GATHER_MS)

    async def _answer(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            for node in [n for n, due_ms in self._asked_ms.items() if due_ms <= now_ms]:
                del self._asked_ms[node]
                if node in self.states:
                    await self.tell_all(node)
            await self._clock.sleep_ms(SLICE_MS)

    async def _beat(self) -> None:
        slices = int(BEAT_MS / SLICE_MS)
        rounds = int(FULL_EVERY_MS / BEAT_MS)
        began_ms, number = self._clock.now_ms(), 0
        while True:
            nodes = list(self.states)
            for at in range(number % slices, len(nodes), slices):
                node = nodes[at]
                if node not in self.states or node in self._silent:
                    continue
                if (at + number // slices) % rounds == 0:
                    await self.tell_all(node)
                else:
                    await self._tell_figures(node)
            number += 1
            await self._clock.sleep_ms(began_ms + number * SLICE_MS - self._clock.now_ms())
            await asyncio.sleep(0)

    async def _tell_figures(self, node: NodeId) -> None:
        state = self.states[node]
        engines = state.engines
        if self._lively:
            engines = tuple(
                replace(e, sample=e.sample + 1, running=self._random.randrange(8)) for e in engines
            )
        self.states[node] = state = replace(state, seq=state.seq + 1, engines=engines)
        await self._publish(
            NodeBeat(
                region=state.region,
                node=node,
                incarnation=state.incarnation,
                seq=state.seq,
                base=state.base,
                engines=tuple(EngineBeat(engine=e.engine, figures=e.figures) for e in engines),
            )
        )


def _engine(node: NodeId, number: int) -> EngineState:
    """A ready engine with two adapters in HBM and two in host RAM."""
    names = [EngineAdapter(f"adapter-{n}~1") for n in range(4)]
    states = [AdapterState.HOST, AdapterState.HOST, AdapterState.RESIDENT, AdapterState.RESIDENT]
    return EngineState(
        engine=engine_id(node, f"e{number}"),
        url="http://127.0.0.1:9",
        base_model="base",
        served_name="base",
        status=EngineStatus.READY,
        limits=EngineLimits(hbm_slots=2, host_slots=4, max_lora_rank=64),
        residents=tuple(
            Residency(adapter=name, state=state, source=ResidencySource.EXTENSION, in_flight=0)
            for name, state in zip(names, states, strict=True)
        ),
        registered=tuple(names),
    )
