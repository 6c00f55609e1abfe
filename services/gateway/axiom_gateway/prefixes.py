"""What this gateway knows of the prompts that engines hold: an index for each base model.

Of an engine it knows either what the agent tells (exact), or what its own requests left there
(predicted), never both. Engines are the fleet's numbers, so that a decision can look them up: a
number is cleared here before the fleet gives it to another engine.

To clear a number, and to end a snapshot, goes over a whole index. That is done beside the event
loop, one at a time, before anything else is told of the number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from axiom_common.model.ids import EngineId, NodeId, node_of
from axiom_common.model.prefix import FactBatch
from axiom_common.ports.clock import Clock
from axiom_common.runtime.native import is_native, native_index_or_twin
from axiom_common.state.fact_requests import FactRequests
from axiom_common.state.fact_stream import Deed, Deeds, FactStream
from axiom_common.state.predicted_facts import PredictedFacts
from axiom_common.state.prefix_index import ANY_TIER, HBM, PrefixIndex
from axiom_gateway.state import GatewayState

PREDICTED_MAX = 65_536
"""Predicted chunks of one base model: some 20 MB, thousands of prompts."""

T = TypeVar("T")


async def in_background(call: Callable[[], T]) -> T:
    """Beside the event loop where that is compiled: it lets the interpreter go on, and several
    threads may write. The twin is for one thread."""
    return await asyncio.to_thread(call) if is_native() else call()


@dataclass(slots=True, eq=False)
class ToldEngine:
    """An engine whose agent tells facts. Whatever is on its way into the index is void once
    `voided` grew."""

    engine: EngineId
    number: int
    base_model: str
    index: PrefixIndex
    stream: FactStream = field(default_factory=FactStream)
    voided: int = 0


class Prefixes:
    """`revision_of` tells the tokenizer's revision for base models whose facts can be exact.
    `chance` yields numbers from 0 below 1; `run` does what takes long."""

    def __init__(
        self,
        clock: Clock,
        state: GatewayState,
        revision_of: Callable[[str], str | None],
        chance: Callable[[], float],
        *,
        entries_max: int,
        predicted_ttl_ms: float,
        run: Callable[[Callable[[], bool | None]], Awaitable[bool | None]] = in_background,
    ) -> None:
        self._clock = clock
        self._state = state
        self._revision_of = revision_of
        self._entries_max = entries_max
        self._predicted_ttl_ms = predicted_ttl_ms
        self._indexes: dict[str, PrefixIndex] = {}
        self._told: dict[EngineId, ToldEngine] = {}
        self._differing: set[EngineId] = set()
        self._predicted: dict[str, PredictedFacts] = {}
        self._run = run
        self._long_call = asyncio.Lock()
        self._unclean: dict[tuple[str, int], PrefixIndex] = {}
        """Numbers that hold what does not count any more."""
        self.requests = FactRequests(chance)

    def index_of(self, base_model: str) -> PrefixIndex:
        """Who holds what of prompts to a base model."""
        index = self._indexes.get(base_model)
        if index is None:
            index = self._indexes[base_model] = native_index_or_twin(self._entries_max)
            self._predicted[base_model] = PredictedFacts(self._predicted_ttl_ms, PREDICTED_MAX)
        return index

    @property
    def entries(self) -> int:
        """Chunks that some engine holds."""
        return sum(index.entries for index in self._indexes.values())

    @property
    def dropped(self) -> int:
        """Chunks that went because of the bound, so far."""
        return sum(index.dropped for index in self._indexes.values())

    @property
    def predicted(self) -> int:
        """Chunks of engines that are held by prediction."""
        return sum(map(len, self._predicted.values()))

    @property
    def told_engines(self) -> int:
        """Engines whose agents tell facts."""
        return len(self._told)

    @property
    def differs(self) -> bool:
        """Whether an agent tells facts of another tokenizer than this gateway has."""
        return bool(self._differing)

    # What agents tell.

    def told(self, engine: EngineId, revision: str) -> ToldEngine | None:
        """The engine of which an agent tells facts made with this revision of a tokenizer; None
        when they mean nothing here."""
        state, number = self._state.engine(engine), self._state.number(engine)
        if state is None or number is None:
            return None
        own = self._revision_of(state.base_model)
        if own != revision:
            if engine in self._told:
                self.gone(engine)
            if own is not None:
                self._differing.add(engine)
            return None
        known = self._told.get(engine)
        if known is not None and (known.number, known.base_model) == (number, state.base_model):
            return known
        self.gone(engine)
        index = self.index_of(state.base_model)
        told = self._told[engine] = ToldEngine(engine, number, state.base_model, index)
        self._withdraw_predicted(state.base_model, number)
        return told

    def do(self, told: ToldEngine, deeds: Deeds) -> None:
        """Have it cleared, where that is among the deeds; whatever else is for who has the
        message, once it is `clean`."""
        if Deed.CLEAR in deeds:
            told.voided += 1
            self._unclean[told.base_model, told.number] = told.index

    async def clean(self, told: ToldEngine) -> None:
        """Return once nothing is held in its number that does not count any more."""
        if (told.base_model, told.number) in self._unclean:
            await self._clear(told.base_model, told.number)

    async def clean_all(self) -> None:
        """Clear all numbers that have to be."""
        for base_model, number in tuple(self._unclean):
            await self._clear(base_model, number)

    async def end_snapshot(self, told: ToldEngine, seq: int) -> bool:
        """All parts came; False: they did not fit."""
        async with self._long_call:
            return bool(await self._run(partial(told.index.snapshot_end, told.number, seq)))

    async def _clear(self, base_model: str, number: int) -> None:
        async with self._long_call:
            if (index := self._unclean.get((base_model, number))) is not None:
                await self._run(partial(index.clear, number))
                self._unclean.pop((base_model, number), None)

    def lost(self, told: ToldEngine) -> None:
        """What is known of it does not count any more."""
        self.do(told, told.stream.lost())

    def removed(self, engine: EngineId) -> None:
        """The engine is about to be removed, and its number to be another's."""
        self.gone(engine)
        number = self._state.number(engine)
        for (_, unclean), index in self._unclean.items():
            if unclean == number:
                # It stays unclean: a call that clears it may be under way still.
                index.clear(unclean)

    def gone(self, engine: EngineId) -> None:
        """The engine is removed, or its agent ended: nothing is known of it."""
        self._differing.discard(engine)
        self.requests.came(engine)
        told = self._told.pop(engine, None)
        if told is not None:
            told.voided += 1
            self.lost(told)
        state, number = self._state.engine(engine), self._state.number(engine)
        if state is not None and number is not None:
            self._withdraw_predicted(state.base_model, number)

    def agent_is_in(self, node: NodeId, incarnation: int | None) -> None:
        """The node's agent began this incarnation; None: it ended."""
        for engine in [engine for engine in self._told if node_of(engine) == node]:
            if incarnation is None:
                self.gone(engine)
            else:
                told = self._told[engine]
                self.do(told, told.stream.began(incarnation))

    def given_up(self) -> None:
        """Who lacks something for too long holds nothing, until that comes."""
        for engine in self.requests.given_up(self._clock.now_ms()):
            if (told := self._told.get(engine)) is not None and not told.stream.arriving:
                self.lost(told)

    # What own requests show.

    def predicts(self, engine: EngineId) -> bool:
        """Whether nobody tells of the engine, so that it has to be guessed."""
        return engine not in self._told

    def may_match(self, base_model: str) -> bool:
        """Whether any engine holds something of a prompt to the base model, or may be predicted to
        hold the next one."""
        return self.index_of(base_model).entries > 0 or any(
            facts.state.base_model == base_model and self.predicts(engine)
            for engine, facts in self._state.engines.items()
        )

    def predict(self, engine: EngineId, chunks: Sequence[tuple[int, int]]) -> None:
        """It begins to answer a prompt of these chunks: links and tokens up to each."""
        state, number = self._state.engine(engine), self._state.number(engine)
        if state is None or number is None or not chunks or not self.predicts(engine):
            return
        index = self.index_of(state.base_model)
        links = [link for link, _ in chunks]
        self._predicted[state.base_model].hold(number, links, self._clock.now_ms())
        index.apply(number, FactBatch.of(chunks, ()).announced, b"", HBM)
        self._expire(state.base_model)

    def disprove(self, engine: EngineId, links: Sequence[int]) -> None:
        """It turned out not to hold these."""
        state, number = self._state.engine(engine), self._state.number(engine)
        if state is None or number is None or state.base_model not in self._predicted:
            return
        gone = self._predicted[state.base_model].withdraw(number, links)
        self._indexes[state.base_model].apply(number, b"", gone.withdrawn, ANY_TIER)

    def expire(self) -> None:
        """Time passed."""
        for base_model in self._predicted:
            self._expire(base_model)

    def _expire(self, base_model: str) -> None:
        index = self._indexes[base_model]
        for number, gone in self._predicted[base_model].expire(self._clock.now_ms()).items():
            index.apply(number, b"", gone.withdrawn, ANY_TIER)

    def _withdraw_predicted(self, base_model: str, number: int) -> None:
        predicted = self._predicted.get(base_model)
        if predicted:
            gone = predicted.forget(number)
            self._indexes[base_model].apply(number, b"", gone.withdrawn, ANY_TIER)
