"""Loads and unloads of one engine: the one task that changes what the engine holds.

One call to the engine at a time. Requests of gateways come first, in their order; while none waits,
the plan's next step is done. Askers of a load that waits or runs share its end. What a gateway asks
for after a plan came is spared by it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineStatus
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.plan import EnginePlan
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
ASKERS_MAX = 256
"""Ensures that may wait at one engine, for whatever; a further one is refused at once."""
RECONCILE_MS = 250.0
"""How often the plan is looked at again when nothing else happens."""
RELIST_MS = 250.0
"""An answer that rests on the engine's names rests on no older list, if the engine gives a newer
one within as long."""
SLOT_WAIT_MS = 150.0
"""The word that a request ended may be on its way for so long: a vector's 50 ms, and a young
lease's 100 ms."""
SLOT_POLL_MS = 10.0
READ_AHEAD_MS = 10_000.0
"""A disk that needs longer holds up the load itself."""
SLOT_WAITERS_MAX = 32
NOT_FOUND_STATUS = 404


@dataclass(slots=True)
class _Load:
    """A load under way; `asked` when a gateway waits for it, `anew` when the engine has to forget
    the name first. `reason` counts once `done` is set."""

    spec: AdapterSpec
    asked: bool
    anew: bool
    done: asyncio.Event = field(default_factory=asyncio.Event)
    reason: Reason | None = None


class Loader:
    """`list_names` refreshes the names that are older than RELIST_MS. `may_unload` says whether all
    requests in flight are known at the moment. `read_ahead` brings the files at a path into the
    page cache: an engine that loads from a disk stands still meanwhile."""

    def __init__(
        self,
        book: EngineBook,
        engine: Engine,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
        *,
        list_names: Callable[[], Awaitable[None]],
        may_unload: Callable[[], bool],
        read_ahead: Callable[[str], Awaitable[object]],
    ) -> None:
        self._book = book
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._list_names = list_names
        self._may_unload = may_unload
        self._read_ahead = read_ahead
        self._id = book.declared.engine
        self._wanted = EnginePlan(engine=self._id)
        self._spared: set[EngineAdapter] = set()
        self._waiting: deque[_Load] = deque()
        self._loads: dict[EngineAdapter, _Load] = {}
        self._askers = 0
        self._slot_waiters = 0
        self._wake = asyncio.Event()

    async def ensure(self, spec: AdapterSpec, *, deadline_ms: float) -> EnsureResult:
        """Make the adapter usable; answers at the latest after `deadline_ms`. A load goes on when
        its asker's time is up: the next one finds it done."""
        if self._askers >= ASKERS_MAX:
            return _refused(Reason.TOO_MANY_LOADS)
        self._askers += 1
        try:
            async with asyncio.timeout(deadline_ms / 1e3):
                return await self._ensure(spec, min(deadline_ms, SLOT_WAIT_MS))
        except TimeoutError:
            return _refused(Reason.DEADLINE_EXCEEDED)
        finally:
            self._askers -= 1

    def want(self, wanted: EnginePlan) -> None:
        """The plan wants this from now on. Told again, it changes nothing."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._spared.clear()
            self._wake.set()

    async def run(self) -> None:
        """Do what waits and what the plan asks for, until cancelled; who waits then is refused."""
        try:
            while True:
                self._wake.clear()
                self._metrics.loads_waiting.labels(self._id).set(len(self._waiting))
                if self._waiting:
                    await self._load(self._waiting.popleft())
                elif not await self._follow_plan():
                    await self._until_woken()
        finally:
            for load in list(self._loads.values()):
                self._finish(load, Reason.NOT_READY)

    async def _ensure(self, spec: AdapterSpec, slot_wait_ms: float) -> EnsureResult:
        book = self._book
        if book.status is EngineStatus.READY and spec.engine_name in book.registered:
            await self._hear_names()
        admission = await self._admitted(spec, slot_wait_ms)
        match admission:
            case Reason():
                return _refused(admission)
            case Admission.RESIDENT | Admission.ON_REQUEST:
                self._spare(spec.engine_name)
                book.granted(spec, self._clock.now_ms())
                return EnsureResult(outcome=EnsureOutcome(admission))
            case Admission.LOAD:
                load = self._accept(spec, asked=True)
                self._waiting.append(load)
                self._wake.set()
                return await _ended(load, EnsureOutcome.RESIDENT)
            case Admission.JOIN:
                load = self._loads[spec.engine_name]
                load.asked = True
                return await _ended(load, EnsureOutcome.JOINED)

    async def _hear_names(self) -> None:
        """The name may have been unloaded by hand, or gone with its process."""
        try:
            async with asyncio.timeout(RELIST_MS / 1e3):
                await self._list_names()
        except (EngineCallError, UnavailableError, TimeoutError) as error:
            self._warn("names not listed in time", error)

    async def _admitted(self, spec: AdapterSpec, slot_wait_ms: float) -> Admission | Reason:
        """The answer. What is refused for want of a slot may get one while it waits a little."""
        until_ms = self._clock.now_ms() + slot_wait_ms
        while True:
            now_ms = self._clock.now_ms()
            view = view_of(self._book, now_ms)
            answer = admit(view, spec, now_ms, loads_waiting_max=LOADS_WAITING_MAX)
            if answer is not Reason.NO_IDLE_SLOT or now_ms >= until_ms:
                return answer
            if self._slot_waiters >= SLOT_WAITERS_MAX:
                return answer
            self._slot_waiters += 1
            try:
                await self._clock.sleep_ms(SLOT_POLL_MS)
            finally:
                self._slot_waiters -= 1

    async def _follow_plan(self) -> bool:
        """Do one step of the plan; False when there is none to do now."""
        now_ms = self._clock.now_ms()
        view = view_of(self._book, now_ms)
        steps = next_steps(
            self._wanted, view, now_ms, spared=self._spared, may_unload=self._may_unload()
        )
        self._book.draining(steps.draining, now_ms)
        if steps.unload is not None:
            return await self._unload(steps.unload)
        if steps.load is not None:
            await self._load(self._accept(steps.load, asked=False))
            return True
        return False

    def _accept(self, spec: AdapterSpec, *, asked: bool) -> _Load:
        anew = spec.engine_name in self._book.registered
        if asked:
            self._spare(spec.engine_name)
        self._book.load_accepted(spec, self._clock.now_ms())
        load = self._loads[spec.engine_name] = _Load(spec, asked, anew)
        return load

    async def _load(self, load: _Load) -> None:
        name = load.spec.engine_name
        started_ms = self._clock.now_ms()
        if load.anew or all(copy.adapter != name for copy in self._book.lru.copies):
            await self._cache(load.spec.path)
        now_ms = self._clock.now_ms()
        if view_of(self._book, now_ms).idle_slots(name) <= 0:
            # The slots that were idle when it was accepted are used by now.
            self._book.load_withdrawn(name, now_ms)
            self._finish(load, Reason.NO_IDLE_SLOT)
            return
        self._book.load_started(name, started_ms)
        reason = await self._call_load(load)
        now_ms = self._clock.now_ms()
        self._book.load_ended(name, reason, now_ms)
        if reason is None:
            self._metrics.load_duration.labels(self._id).observe((now_ms - started_ms) / 1e3)
            if load.asked:
                self._book.granted(load.spec, now_ms)
        else:
            self._metrics.load_failures.labels(self._id, reason).inc()
        self._finish(load, reason)

    async def _cache(self, path: str) -> None:
        try:
            async with asyncio.timeout(READ_AHEAD_MS / 1e3):
                await self._read_ahead(path)
        except TimeoutError:
            self._log.warning("adapter not read ahead in time", once_a_minute="ahead", path=path)

    def _spare(self, name: EngineAdapter) -> None:
        """The plan has had its way with this name."""
        if name in self._wanted.unload:
            self._spared.add(name)

    async def _call_load(self, load: _Load) -> Reason | None:
        spec = load.spec
        try:
            if load.anew:
                await self._engine.unload(spec.engine_name)
            await self._engine.load(spec.engine_name, spec.path)
        except EngineCallError as error:
            self._warn("load refused", error, spec.engine_name)
            if error.status == NOT_FOUND_STATUS:
                return Reason.ADAPTER_NOT_FOUND
            return Reason.ENGINE_REFUSED
        except UnavailableError as error:
            self._warn("load not answered", error, spec.engine_name)
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
            self._warn("unload failed", error, name)
            self._metrics.unload_failures.labels(self._id).inc()
            done = False
        else:
            self._spare(name)
        self._book.unload_ended(name, self._clock.now_ms(), done=done)
        return done

    async def _until_woken(self) -> None:
        try:
            async with asyncio.timeout(RECONCILE_MS / 1e3):
                await self._wake.wait()
        except TimeoutError:
            return

    def _warn(self, event: str, error: Exception, adapter: EngineAdapter = BASE) -> None:
        self._log.warning(
            event,
            once_a_minute=f"{event} {self._id} {adapter}",
            engine=self._id,
            adapter=adapter,
            cause=str(error) or type(error).__name__,
        )


async def _ended(load: _Load, outcome: EnsureOutcome) -> EnsureResult:
    await load.done.wait()
    return EnsureResult(outcome=outcome) if load.reason is None else _refused(load.reason)


def _refused(reason: Reason) -> EnsureResult:
    return EnsureResult(outcome=EnsureOutcome.REFUSED, reason=reason)
