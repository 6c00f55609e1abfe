"""What of a gateway knows of prompts and of who holds them, put together."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from axiom_common.model.ids import GatewayId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_gateway.facts_feed import FactsFeed
from axiom_gateway.feed import RegionFeed
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.prefixes import Prefixes
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.prompts import Prompts
from axiom_gateway.settings import GatewaySettings
from axiom_gateway.state import GatewayState


class PrefixParts:
    """For a gateway without `prompts` in its settings all this is idle. `nonce`: no other gateway
    has it."""

    def __init__(
        self,
        settings: GatewaySettings,
        texts: PromptTexts | None,
        state: GatewayState,
        region: RegionFeed,
        bus: Bus,
        clock: Clock,
        metrics: GatewayMetrics,
        log: Log,
        nonce: str,
    ) -> None:
        self._texts = texts = PromptTexts(settings.prompts) if texts is None else texts
        self._idle = not settings.prompts
        self.prefixes = Prefixes(
            clock,
            state,
            texts.revision_of,
            random.Random(nonce).random,
            entries_max=settings.prefix_entries_max,
            predicted_ttl_ms=settings.predicted_ttl_ms,
        )
        self._feed = FactsFeed(
            self.prefixes,
            bus,
            clock,
            metrics,
            log,
            region=RegionId(settings.region),
            gateway=GatewayId(settings.gateway),
        )
        self.prompts = Prompts(texts, self.prefixes, clock, metrics)
        state.before_remove = self.prefixes.removed
        region.on_agent = self.prefixes.agent_is_in
        metrics.expose_prefixes(
            entries=lambda: self.prefixes.entries,
            predicted=lambda: self.prefixes.predicted,
            dropped=lambda: self.prefixes.dropped,
            lacking=lambda: len(self.prefixes.requests),
            told_engines=lambda: self.prefixes.told_engines,
        )

    async def start(self) -> None:
        """Listen to the bus."""
        if not self._idle:
            await self._feed.start()

    def jobs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs all the time, by name."""
        return {} if self._idle else {"follow facts": self._feed.run()}

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be, by stable names."""
        return (*self._texts.degraded(), *self._feed.degraded())
