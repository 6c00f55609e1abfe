"""What the bus brings: reports of nodes."""

from __future__ import annotations

import random

from axiom_common.errors import WireError
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.wire.reports import decode_node_report
from axiom_telemetry.metrics import TelemetryMetrics
from axiom_telemetry.state import TelemetryState


class Handlers:
    """One function a subject."""

    def __init__(
        self,
        state: TelemetryState,
        clock: Clock,
        metrics: TelemetryMetrics,
        log: Log,
        *,
        seed: str,
    ) -> None:
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self._log = log
        # Only spreads requests; what is decided does not depend on it.
        self._jitter = random.Random(seed)

    async def node_report(self, subject: str, payload: bytes) -> None:
        """Fold a report; what does not parse is counted and dropped."""
        try:
            report = decode_node_report(subject, payload)
        except WireError as error:
            self._metrics.invalid_messages.inc()
            self._log.warning(
                "bad report", once_a_minute="invalid", subject=subject[:200], cause=str(error)
            )
            return
        outcome = self._state.hear(report, self._clock.now_ms(), jitter=self._jitter.random())
        self._metrics.reports.labels(outcome.value).inc()

    async def reconnected(self) -> None:
        """Reports were missed while the bus was away."""
        self._state.want_all(self._clock.now_ms(), jitter=self._jitter.random)
