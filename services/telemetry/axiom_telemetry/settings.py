"""Settings of the telemetry service."""

from __future__ import annotations

from axiom_common.runtime.settings import Port, PositiveMs, ServiceSettings, Token


class TelemetrySettings(ServiceSettings):
    """`telemetry` names this process to agents, `port` serves /healthz, /readyz and /metrics.

    `write_every_ms`: the least time between two writes of one node; what comes between is folded.
    """

    port: Port = 9103
    telemetry: Token = "telemetry"
    write_every_ms: PositiveMs = 200.0
