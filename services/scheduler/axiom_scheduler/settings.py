"""Settings of a scheduler."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from axiom_common.errors import InvalidInputError
from axiom_common.runtime.settings import Port, PositiveMs, ServiceSettings, Token
from axiom_common.state.lease import LeaseTimes
from axiom_common.state.liveness import DEAD_MS


class SchedulerSettings(ServiceSettings):
    """What one scheduler needs to know. `scheduler` names it in the lease and in plans."""

    port: Port = 9104
    scheduler: Token = "scheduler-1"
    lease_ttl_ms: Annotated[float, Field(ge=1_000, le=60_000)] = 3_000.0
    lease_margin_ms: PositiveMs = 500.0
    """How much earlier than the lease's end a leader steps down by its own clock."""
    lease_renew_ms: PositiveMs = 800.0
    lease_retry_ms: PositiveMs = 200.0
    debounce_ms: PositiveMs = 100.0
    """Changes that come together lead to one placement."""
    settle_ms: PositiveMs = 2_000.0
    """How long after its start a scheduler waits for nodes that have a plan before it plans."""
    forget_ms: Annotated[float, Field(gt=DEAD_MS, le=3_600_000)] = 30_000.0
    """A node silent for so long is gone: its plan is deleted."""

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        try:
            self.lease_times()
        except InvalidInputError as error:
            raise ValueError(f"lease_{error}") from error
        return self

    def lease_times(self) -> LeaseTimes:
        """How the scheduler's lease is kept."""
        return LeaseTimes(
            ttl_ms=self.lease_ttl_ms,
            margin_ms=self.lease_margin_ms,
            renew_ms=self.lease_renew_ms,
            retry_ms=self.lease_retry_ms,
        )
