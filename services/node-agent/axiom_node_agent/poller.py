"""Asks one engine how it is, again and again, and tells its book."""

from __future__ import annotations

import asyncio

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.model.adapter import ResidencySource
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine import Engine, EngineResidency
from axiom_common.runtime.logging import Log
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.state import EngineBook

REST_MS_MIN = 10.0
"""Left to the engine between two polls even when it takes longer to answer than `poll_ms`."""


class Poller:
    """Polls every `poll_ms`; names, and whether the engine tells of residency, each `names_ms`."""

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
    ) -> None:
        self._book = book
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._poll_ms = poll_ms
        self._names_ms = names_ms
        self._id = book.declared.engine
        self._listing = asyncio.Lock()
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
        restarts = self._book.restarts
        try:
            self._book.saw_sample(await self._engine.sample(), self._clock.now_ms())
            self._book.saw_health(await self._engine.healthy(), self._clock.now_ms())
            await self._ask_names()
        except UnavailableError as error:
            self._failed("engine poll not answered", error)
            self._book.unreachable(self._clock.now_ms())
        except EngineCallError as error:
            # It answers, so it lives; it does not serve yet, or not any more.
            self._failed("engine poll refused", error)
            self._book.not_serving(self._clock.now_ms())
        self.polled.set()
        if self._book.restarts > restarts:
            self._metrics.restarts.labels(self._id).inc()
            self._log.info("engine restarted", engine=self._id)

    async def list_names(self, *, every_ms: float) -> None:
        """Hear the engine's names, unless they were heard in the last `every_ms`; for all askers
        at once. UnavailableError or EngineCallError when the engine does not list them."""
        book = self._book
        async with self._listing:
            if not book.models_due(self._clock.now_ms(), every_ms=every_ms):
                return
            version = book.names_version
            models = await self._engine.models()
            if version == book.names_version:
                book.saw_models(models, self._clock.now_ms())

    async def _ask_names(self) -> None:
        book = self._book
        due = book.models_due(self._clock.now_ms(), every_ms=self._names_ms)
        await self.list_names(every_ms=self._names_ms)
        if due or book.source is ResidencySource.EXTENSION:
            book.saw_residency(await self._residency(), self._clock.now_ms())

    async def _residency(self) -> EngineResidency | None:
        try:
            return await self._engine.residency()
        except EngineCallError as error:
            # Without its word on residency the engine serves as well; inference goes on.
            self._failed("engine residency not readable", error)
            return None

    def _failed(self, event: str, error: Exception) -> None:
        self._metrics.poll_failures.labels(self._id).inc()
        self._log.warning(
            event, once_a_minute=f"{event} {self._id}", engine=self._id, cause=str(error)
        )
