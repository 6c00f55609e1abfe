"""Whether an engine serves, from what came of the last polls."""

from __future__ import annotations

from axiom_common.model.engine import EngineStatus

UNHEALTHY_POLLS_MAX = 2
"""A busy engine may take long to say that it is healthy: one miss beside fresh metrics is none."""


class EngineHealth:
    """`reached`: whether the last poll was answered; None before the first."""

    def __init__(self) -> None:
        self.reached: bool | None = None
        self._unhealthy_polls = 0

    def answered(self) -> None:
        """A poll was answered as it should be."""
        self.reached = True

    def said(self, healthy: bool) -> None:
        """It said whether it is healthy, or took too long to say."""
        self._unhealthy_polls = 0 if healthy else self._unhealthy_polls + 1

    def refused(self) -> None:
        """A poll was answered with an error: it lives and does not serve."""
        self.reached = True
        self._unhealthy_polls = UNHEALTHY_POLLS_MAX

    def unreachable(self) -> None:
        """A poll was not answered."""
        self.reached = False

    def status(self, *, known: bool) -> EngineStatus:
        """`known`: it told what one has to know to use it."""
        if self.reached is False:
            return EngineStatus.UNREACHABLE
        if not known or self._unhealthy_polls >= UNHEALTHY_POLLS_MAX:
            return EngineStatus.STARTING
        return EngineStatus.READY
