"""Loads and unloads of one engine: the one task that changes what the engine holds.

One call to the engine at a time. Requests of gateways come first, in their order; while none waits,
the plan's next step is done. Askers of a load that waits or runs share its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.placement import EnginePlan, EnsureOutcome, EnsureResult
from axiom_common.model.reason import Reason
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine
from axiom_common.runtime.logging import Log
from axiom_node_agent.admission import Admission, admit
from axiom_node_agent.engine_view import view_of
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.reconciler import next_steps
from axiom_node_agent.state import EngineBook

LOADS_WAITING_MAX = 8
RECONCILE_MS = 250.0
"""How often the plan is looked at again when nothing else happens."""
NOT_FOUND_STATUS = 404


@dataclass(slots=True)
class _Load:
    """A load under way; `asked` when a gateway waits for it. `reason` counts once `done` is set."""

    spec: AdapterSpec
    asked: bool
    done: asyncio.Event = field(default_factory=asyncio.Event)
    reason: Reason | None = None


class Loader:
    """`plan` tells what is wanted of this engine at the moment."""

    def __init__(
        self,
        book: EngineBook,
        engine: Engine,
        plan: Callable[[], EnginePlan | None],
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
    ) -> None:
        self._book = book
        self._engine = engine
        self._plan = plan
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._id = book.declared.engine
        self._waiting: deque[_Load] = deque()
        self._loads: dict[EngineAdapter, _Load] = {}
        self._wake = asyncio.Event()

    async def ensure(self, spec: AdapterSpec, *, deadline_ms: float) -> EnsureResult:
        """Make the adapter usable; answers at the latest after `deadline_ms`. A load goes on when
        its asker's time is up: the next one finds it done."""
        now_ms = self._clock.now_ms()
        view = view_of(self._book, now_ms)
        admission = admit(view, spec, now_ms, loads_waiting_max=LOADS_WAITING_MAX)
        match admission:
            case Reason():
                return _refused(admission)
            case Admission.RESIDENT:
                self._book.granted(spec.engine_name, now_ms)
                return EnsureResult(outcome=EnsureOutcome.RESIDENT)
            case Admission.ON_REQUEST:
                self._book.granted(spec.engine_name, now_ms)
                return EnsureResult(outcome=EnsureOutcome.ON_REQUEST)
            case Admission.LOAD:
                load = self._accept(spec, asked=True)
                self._waiting.append(load)
                self._wake.set()
                return await _ended(load, deadline_ms, EnsureOutcome.RESIDENT)
            case Admission.JOIN:
                load = self._loads[spec.engine_name]
                load.asked = True
                return await _ended(load, deadline_ms, EnsureOutcome.JOINED)

    def look_again(self) -> None:
        """The plan changed."""
        self._wake.set()

    async def run(self) -> None:
        """Do what waits and what the plan asks for, until cancelled."""
        while True:
            self._wake.clear()
            self._metrics.loads_waiting.labels(self._id).set(len(self._waiting))
            if self._waiting:
                await self._load(self._waiting.popleft())
            elif not await self._follow_plan():
                await self._until_woken()

    async def _follow_plan(self) -> bool:
        """Do one step of the plan; False when there is none to do now."""
        now_ms = self._clock.now_ms()
        steps = next_steps(self._plan(), view_of(self._book, now_ms), now_ms)
        self._book.draining(steps.draining, now_ms)
        if steps.unload is not None:
            return await self._unload(steps.unload)
        if steps.load is not None:
            await self._load(self._accept(steps.load, asked=False))
            return True
        return False

    def _accept(self, spec: AdapterSpec, *, asked: bool) -> _Load:
        self._book.load_accepted(spec, self._clock.now_ms())
        load = self._loads[spec.engine_name] = _Load(spec, asked)
        return load

    async def _load(self, load: _Load) -> None:
        name = load.spec.engine_name
        started_ms = self._clock.now_ms()
        if view_of(self._book, started_ms).idle_slots(name) <= 0:
            # The slots that were idle when it was accepted are used by now.
            self._book.load_withdrawn(name, started_ms)
            self._finish(load, Reason.NO_IDLE_SLOT)
            return
        self._book.load_started(name, started_ms)
        reason = await self._call_load(load.spec)
        now_ms = self._clock.now_ms()
        self._book.load_ended(name, reason, now_ms)
        if reason is None:
            self._metrics.load_duration.labels(self._id).observe((now_ms - started_ms) / 1e3)
            if load.asked:
                self._book.granted(name, now_ms)
        else:
            self._metrics.load_failures.labels(self._id, reason).inc()
        self._finish(load, reason)

    async def _call_load(self, spec: AdapterSpec) -> Reason | None:
        try:
            await self._engine.load(spec.engine_name, spec.path)
        except EngineCallError as error:
            self._warn("load refused", spec.engine_name, error)
            if error.status == NOT_FOUND_STATUS:
                return Reason.ADAPTER_NOT_FOUND
            return Reason.ENGINE_REFUSED
        except UnavailableError as error:
            self._warn("load not answered", spec.engine_name, error)
            return Reason.NOT_READY
        return None

    def _finish(self, load: _Load, reason: Reason | None) -> None:
        del self._loads[load.spec.engine_name]
        load.reason = reason
        load.done.set()

    async def _unload(self, name: EngineAdapter) -> bool:
        self._book.unload_started(name, self._clock.now_ms())
        done = True
        try:
            await self._engine.unload(name)
            self._metrics.unloads.labels(self._id).inc()
        except (EngineCallError, UnavailableError) as error:
            self._warn("unload failed", name, error)
            self._metrics.unload_failures.labels(self._id).inc()
            done = False
        self._book.unload_ended(name, self._clock.now_ms(), done=done)
        return done

    async def _until_woken(self) -> None:
        try:
            async with asyncio.timeout(RECONCILE_MS / 1e3):
                await self._wake.wait()
        except TimeoutError:
            return

    def _warn(self, event: str, name: EngineAdapter, error: Exception) -> None:
        self._log.warning(
            event,
            once_a_minute=f"{event} {self._id} {name}",
            engine=self._id,
            adapter=name,
            cause=str(error),
        )


async def _ended(load: _Load, deadline_ms: float, outcome: EnsureOutcome) -> EnsureResult:
    try:
        async with asyncio.timeout(deadline_ms / 1e3):
            await load.done.wait()
    except TimeoutError:
        return _refused(Reason.DEADLINE_EXCEEDED)
    return EnsureResult(outcome=outcome) if load.reason is None else _refused(load.reason)


def _refused(reason: Reason) -> EnsureResult:
    return EnsureResult(outcome=EnsureOutcome.REFUSED, reason=reason)
