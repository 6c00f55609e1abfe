"""A gateway that tells nobody of its requests, to measure what telling costs.

It serves as `axiom-gateway` does, from the same settings. Left out is all that people and machines
learn of a request: its counts and times (metrics), its decision and outcome (ring, stream, log) and
the tokens that these read from its answer. Traces are left out by settings: without a collector.
"""

from __future__ import annotations

from typing import Any

from axiom_gateway.__main__ import main
from axiom_gateway.app import GatewayApp
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.telling import Telling


class UncountedMetrics(GatewayMetrics):
    """Counts nothing of a request."""

    def request(self, endpoint: str, status: int) -> None:
        """Nothing."""

    def decision(self, profile: str, decision: Any, duration_ms: float) -> None:
        """Nothing."""

    def first_byte(self, duration_ms: float) -> None:
        """Nothing."""


class Untelling(Telling):
    """Keeps no decision and no outcome, and counts none."""

    def decided(self, job: Any, record: Any) -> None:
        """Nothing."""

    def ended(self, job: Any) -> None:
        """Nothing."""


class UntoldGateway(GatewayApp):
    """A gateway of these parts."""

    metrics_kind = UncountedMetrics
    telling_kind = Untelling


if __name__ == "__main__":
    main(UntoldGateway)
