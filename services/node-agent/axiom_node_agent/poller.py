"""Asks one engine how it is, again and again, and tells its book."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine
from axiom_common.runtime.logging import Log
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.state import EngineBook

REST_MS_MIN = 10.0
"""Left to the engine between two polls even when it takes longer to answer than `poll_ms`."""


class Poller:
    """Polls every `poll_ms`; names each `names_ms`, and when the metrics tell of an adapter that is
    new. `on_restart` is called when the metrics are those of another process."""

    def __init__(
        self,
        book: EngineBook,
        engine: Engine,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
        *,
        poll_ms: float,
        names_ms: float,
        on_restart: Callable[[], None],
    ) -> None:
        self._book = book
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._poll_ms = poll_ms
        self._names_ms = names_ms
        self._on_restart = on_restart
        self._id = book.declared.engine
        self._restarts_logged = 0
        self._listing = asyncio.Lock()
        self._held: frozenset[EngineAdapter] = frozenset()
        self.polled = asyncio.Event()
        """Set once a poll has come to an end, well or badly."""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            started_ms = self._clock.now_ms()
            await self.poll()
            took_ms = self._clock.now_ms() - started_ms
            self._metrics.poll_duration.labels(self._id).observe(took_ms / 1e3)
            await self._clock.sleep_ms(max(self._poll_ms - took_ms, REST_MS_MIN))

    async def poll(self) -> None:
        """Ask once. A question without an answer leaves standing what the ones before it told."""
        try:
            await self._ask_metrics()
            self._book.saw_health(await self._engine.healthy(), self._clock.now_ms())
            await self.list_names(every_ms=self._names_ms)
        except UnavailableError as error:
            self._failed("engine poll not answered", error)
            self._book.unreachable(self._clock.now_ms())
        except EngineCallError as error:
            # It answers, so it lives; it does not serve yet, or not any more.
            self._failed("engine poll refused", error)
            self._book.not_serving(self._clock.now_ms())
        self.polled.set()
        if self._book.restarts > self._restarts_logged:
            self._restarts_logged = self._book.restarts
            self._metrics.restarts.labels(self._id).inc()
            self._log.info("engine restarted", engine=self._id)

    async def list_names(self, *, every_ms: float) -> None:
        """Hear the engine's names, unless they were heard in the last `every_ms`; for all askers
        at once. UnavailableError or EngineCallError when the engine does not list them."""
        names = self._book.names
        async with self._listing:
            if not names.due(self._clock.now_ms(), every_ms=every_ms):
                return
            version = names.version
            models = await self._engine.models()
            if version == names.version:
                self._book.saw_models(models, self._clock.now_ms())

    async def _ask_metrics(self) -> None:
        book = self._book
        asked_ms = self._clock.now_ms()
        sample = await self._engine.sample()
        restarts = book.restarts
        book.saw_sample(sample, self._clock.now_ms(), asked_ms=asked_ms)
        if book.restarts > restarts:
            self._on_restart()
        if sample.loaded is not None:
            self._look_for_names(sample.loaded.hbm | sample.loaded.host)

    def _look_for_names(self, held: frozenset[EngineAdapter]) -> None:
        """Others loaded what is held under a name not heard yet. A copy may outlive its name, so
        each is looked for once."""
        if not held <= self._held | self._book.registered.keys():
            self._book.names.doubted()
        self._held = held

    def _failed(self, event: str, error: Exception) -> None:
        self._metrics.poll_failures.labels(self._id).inc()
        self._log.warning(
            event, once_a_minute=f"{event} {self._id}", engine=self._id, cause=str(error)
        )
