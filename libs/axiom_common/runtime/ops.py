"""What operators ask any service: `/healthz` (alive), `/readyz` (fit to serve), `/metrics`.

Every degradation of a service is a field of `/readyz`: `degraded` lists them by a stable name. What
several services can lack has its name here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from axiom_common.runtime.metrics import exposition

NATS_AWAY = "nats-away"
SCHEDULER_AWAY = "scheduler-away"
NO_ENGINE_READY = "no-engine-ready"
REDIS_AWAY = "redis-away"
REGISTRY_AWAY = "registry-away"
REGISTRY_RESET = "registry-reset"
"""The registry lost its store; what it knew stays in force where it is still known."""
ORDERS_STALE = "orders-stale"
"""Cut off for so long that orders of engines and keys change without this gateway."""
LIVENESS_FROZEN = "liveness-frozen"
"""So many are silent, or this process hears so little, that nobody is declared dead."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether to send traffic here, what is degraded all the same, and facts worth seeing."""

    ready: bool
    degraded: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def ops_routes(registry: CollectorRegistry, readiness: Callable[[], Readiness]) -> list[Route]:
    """The three routes, for any Starlette app."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        now = readiness()
        body = {"ready": now.ready, "degraded": list(now.degraded), **now.facts}
        return JSONResponse(body, status_code=200 if now.ready else 503)

    async def metrics(_: Request) -> Response:
        body, content_type = exposition(registry)
        return Response(body, headers={"content-type": content_type})

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
