"""What the bus brings: reports of nodes."""

from __future__ import annotations

from axiom_common.errors import WireError
from axiom_common.model.ids import NodeId
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.wire.reports import decode_node_report
from axiom_telemetry.metrics import TelemetryMetrics
from axiom_telemetry.sharing import Sharing
from axiom_telemetry.state import TelemetryState


class Handlers:
    """One function a subject."""

    def __init__(
        self,
        state: TelemetryState,
        sharing: Sharing,
        clock: Clock,
        metrics: TelemetryMetrics,
        log: Log,
    ) -> None:
        self._state = state
        self._sharing = sharing
        self._clock = clock
        self._metrics = metrics
        self._log = log

    async def node_report(self, subject: str, payload: bytes) -> None:
        """Fold a report of an own node; another's is not even decoded, as the subject names it.

        What does not parse is counted and dropped.
        """
        now_ms = self._clock.now_ms()
        if not self._sharing.owns(NodeId(subject.rpartition(".")[2]), now_ms):
            self._metrics.others.inc()
            return
        try:
            report = decode_node_report(subject, payload)
        except WireError as error:
            self._metrics.invalid_messages.inc()
            self._log.warning(
                "bad report", once_a_minute="invalid", subject=subject[:200], cause=str(error)
            )
            return
        self._metrics.heard(self._state.hear(report, now_ms))

    async def reconnected(self) -> None:
        """Reports were missed while the bus was away."""
        self._state.want_all(self._clock.now_ms())
