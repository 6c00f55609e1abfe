"""Settings of the telemetry service."""

from __future__ import annotations

from axiom_common.runtime.settings import Port, PositiveMs, ServiceSettings, Token


class TelemetrySettings(ServiceSettings):
    """`telemetry` names this process in logs and leases, `port` serves /healthz, /readyz, /metrics.

    `write_every_ms`: the least time between two writes of one node; what comes between is folded.
    """

    port: Port = 9103
    telemetry: Token = "telemetry"
    write_every_ms: PositiveMs = 200.0
