"""One function a subject."""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.errors import WireError
from axiom_common.ports.clock import Clock
from axiom_common.runtime.logging import Log
from axiom_common.wire.reports import decode_node_report
from axiom_scheduler.metrics import SchedulerMetrics
from axiom_scheduler.state import SchedulerState


class Handlers:
    """`on_change` is called when a report changes what a placement depends on."""

    def __init__(
        self,
        state: SchedulerState,
        clock: Clock,
        metrics: SchedulerMetrics,
        log: Log,
        on_change: Callable[[], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._on_change = on_change

    async def node_report(self, subject: str, payload: bytes) -> None:
        """A node's state, whole or changed."""
        try:
            report = decode_node_report(subject, payload)
        except WireError as error:
            self._metrics.invalid_messages.labels("report").inc()
            self._log.warning(
                "report dropped", once_a_minute="report", subject=subject, cause=str(error)
            )
            return
        if self._state.report(report, self._clock.now_ms()):
            self._on_change()
