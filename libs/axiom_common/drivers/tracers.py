"""The tracer that a process's settings ask for."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING

from axiom_common.ports.clock import Clock

if TYPE_CHECKING:
    from axiom_common.drivers.otlp_tracer import OtlpTracer


def otlp_tracer(
    endpoint: str | None, *, ratio: float, service: str, instance: str, region: str, clock: Clock
) -> OtlpTracer | None:
    """One that sends to `endpoint`; None without."""
    if endpoint is None:
        return None
    # Hundreds of modules and a thread, only for a process that traces.
    from axiom_common.drivers.otlp_tracer import OtlpTracer

    return OtlpTracer(
        endpoint,
        ratio=ratio,
        random=random.Random(secrets.token_bytes(16)),
        resource={
            "service.name": f"axiom-{service}",
            "service.instance.id": instance,
            "axiom.region": region,
        },
        clock=clock,
    )
