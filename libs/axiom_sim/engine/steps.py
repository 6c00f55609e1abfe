"""The engine's loop: runs the batch step by step in (scaled) real time and feeds the streams.

One task owns the batch. Load calls are carried out between steps, and stop the engine as long as
they take; what a step yields is pushed to the stream of its request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from axiom_common.drivers.system_clock import unix_s
from axiom_common.ports.clock import Clock
from axiom_sim.engine.batch import Batch, Sequence, Step
from axiom_sim.engine.faults import Faults
from axiom_sim.engine.metrics_page import EngineMetrics
from axiom_sim.engine.profiles import EngineProfile
from axiom_sim.engine.refusals import queue_full
from axiom_sim.engine.slots import Adapter

_LOADS_MAX = 256
_LAG_MS_MAX = 50.0
"""How far steps may be late (a busy machine) and still be caught up with."""


class TokenStream:
    """Tokens of one request on their way to its client.

    `each` False: only the end wakes the reader. `cut` True: the engine ended before the request.
    """

    __slots__ = ("_event", "_taken", "cut", "each", "ended", "tokens")

    def __init__(self, *, each: bool) -> None:
        self.each = each
        self.tokens = 0
        self.ended = False
        self.cut = False
        self._taken = 0
        self._event = asyncio.Event()

    def push(self, tokens: int, *, ended: bool) -> None:
        """`tokens` in all are there now."""
        self.tokens = tokens
        self.ended = ended
        if self.each or ended:
            self._event.set()

    def cut_off(self) -> None:
        """The engine stops: what is there is all."""
        self.cut = True
        self.ended = True
        self._event.set()

    async def next(self) -> int:
        """Wait for news; returns how many tokens are new. None are once it has ended."""
        if self.tokens == self._taken and not self.ended:
            await self._event.wait()
        self._event.clear()
        new = self.tokens - self._taken
        self._taken = self.tokens
        return new


@dataclass(slots=True)
class _LoadCall:
    adapter: Adapter
    in_place: bool
    host_only: bool
    done: asyncio.Event


class EngineLoop:
    """Owns the batch. `time_scale` 10 runs ten times faster than the profile says."""

    def __init__(
        self,
        batch: Batch,
        *,
        profile: EngineProfile,
        metrics: EngineMetrics,
        clock: Clock,
        time_scale: float,
    ) -> None:
        self.faults = Faults()
        self._batch = batch
        self._profile = profile
        self._metrics = metrics
        self._clock = clock
        self._time_scale = time_scale
        self._streams: dict[Sequence, TokenStream] = {}
        self._loads: deque[_LoadCall] = deque()
        self._work = asyncio.Event()
        self._due_ms = 0.0
        self._before_slots: Callable[[], None] = _nothing
        self._after_slots: Callable[[], None] = _nothing

    def watch_slots(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these around each step and load that uses the adapters' slots."""
        self._before_slots, self._after_slots = before, after

    @property
    def in_flight(self) -> int:
        """Requests submitted and not ended."""
        return len(self._streams)

    def submit(self, sequence: Sequence, stream: TokenStream) -> None:
        """Queue a request; its tokens will come to `stream`."""
        self._batch.submit(sequence)
        self._streams[sequence] = stream
        self._work.set()

    def abort(self, sequence: Sequence) -> None:
        """The client is gone. An ended request is left alone."""
        if self._streams.pop(sequence, None) is not None:
            self._batch.abort(sequence)

    async def load(self, adapter: Adapter, *, in_place: bool, host_only: bool = False) -> None:
        """What a load call does with an adapter (or just a host copy of it), between two steps;
        returns when it is done."""
        if len(self._loads) >= _LOADS_MAX:
            raise queue_full()
        call = _LoadCall(adapter, in_place, host_only, asyncio.Event())
        self._loads.append(call)
        self._work.set()
        await call.done.wait()

    def cut_all(self) -> None:
        """End every stream where it is: the process is about to end."""
        for sequence, stream in list(self._streams.items()):
            self.abort(sequence)
            stream.cut_off()

    async def run(self) -> None:
        """Step for ever."""
        while True:
            self._work.clear()
            await self._carry_out_loads()
            now_ms = self._clock.now_ms()
            self._before_slots()
            step = self._batch.begin_step(now_ms)
            self._after_slots()
            if step is None:
                if not self._loads:
                    await self._work.wait()
                self._due_ms = 0.0
                continue
            await self._pass_time(step.duration_ms)
            self._finish(step)

    async def _carry_out_loads(self) -> None:
        while self._loads:
            call = self._loads.popleft()
            slots = self._batch.slots
            if call.in_place:
                slots.drop(call.adapter)
            self._before_slots()
            bring = slots.load_to_host if call.host_only else slots.load
            tier = bring(call.adapter)
            await self._pass_time(self._profile.load_ms(tier, call.adapter.size_bytes))
            self._after_slots()
            call.done.set()

    def _finish(self, step: Step) -> None:
        now_ms = self._clock.now_ms()
        advanced = self._batch.end_step(step, now_ms)
        in_use = ",".join(self._batch.adapters_in_use())
        self._metrics.observe_step(advanced, in_use, unix_s())
        for sequence in advanced:
            stream = self._streams.get(sequence)
            if stream is not None:
                stream.push(sequence.generated, ended=sequence.finished)
                if sequence.finished:
                    del self._streams[sequence]

    async def _pass_time(self, duration_ms: float) -> None:
        """Wait for the end of a step. A late end shortens the next wait, within bounds."""
        now_ms = self._clock.now_ms()
        if now_ms - self._due_ms > _LAG_MS_MAX:
            self._due_ms = now_ms
        self._due_ms += duration_ms * self.faults.slow_factor / self._time_scale
        await self._clock.sleep_ms(self._due_ms - now_ms)


def _nothing() -> None:
    pass
