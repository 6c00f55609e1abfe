"""Follows the settings file: engines come and go without a restart of the agent.

Only the engines are taken from it while the agent runs. A file that is wrong changes nothing, and
is told of until it is right again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from axiom_common.errors import SettingsError
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.runtime.settings import SettingsSource
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.settings import AgentSettings, EngineSettings

LOOK_MS = 1_000.0
SETTINGS_INVALID = "settings-invalid"


class SettingsWatch:
    """`apply` takes the engines that are wanted now, or raises SettingsError. `problem` is what is
    wrong with the file, None if nothing."""

    def __init__(
        self,
        source: SettingsSource[AgentSettings],
        apply: Callable[[tuple[EngineSettings, ...]], Awaitable[None]],
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
    ) -> None:
        self.problem: str | None = None
        self._source = source
        self._apply = apply
        self._clock = clock
        self._metrics = metrics
        self._log = log

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep_ms(LOOK_MS)
            if self._source.changed():
                await self._reload()

    async def _reload(self) -> None:
        before = self._source.settings
        try:
            settings = self._source.read()
            await self._apply(settings.engines)
        except SettingsError as error:
            self.problem = str(error)
            self._metrics.reloads.labels("refused").inc()
            self._log.error("settings refused, the old ones stand", cause=self.problem)
            return
        self.problem = None
        self._metrics.reloads.labels("taken").inc()
        self._log.info("settings taken", engines=[engine.name for engine in settings.engines])
        kept = AgentSettings.model_fields.keys() - {"engines"}
        other = sorted(name for name in kept if getattr(settings, name) != getattr(before, name))
        if other:
            self._log.warning("settings need a restart to count", settings=other)
